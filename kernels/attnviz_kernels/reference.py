"""The definition, dense and short: what every other backend is tested against. Holds the N x N map in memory."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import torch
from torch import Tensor

from .spec import Attended, Call, Emit, Gradients, Mask, Statistics, View, accumulator, hides, pool_edges


def unavailable() -> str | None:
    """The reference runs wherever torch does."""
    return None


def refuses(call: Call | View) -> str | None:
    """The reference serves every call."""
    return None


def visible(mask: Mask, shape: tuple[int, int, int, int], device: torch.device) -> Tensor:
    """[B, H, M, N] bool (axes of size 1 where nothing depends on them): may query i see key j?"""
    _, _, rows, cols = shape
    position = torch.arange(rows, device=device)[:, None] + mask.offset
    key = torch.arange(cols, device=device)[None, :]
    seen = torch.ones(1, 1, rows, cols, dtype=torch.bool, device=device)
    if mask.causal:
        seen = seen & (key <= position)
    left, right = mask.window or (None, None)
    if left is not None:
        seen = seen & (key >= position - left)
    if right is not None:
        seen = seen & (key <= position + right)
    if mask.chunk is not None:
        seen = seen & (key // mask.chunk == position // mask.chunk)
    if mask.key_padding is not None:
        seen = seen & mask.key_padding[:, None, None, :]
    if mask.segments is not None:
        seen = seen & (mask.segments[0][:, None, :, None] == mask.segments[1][:, None, None, :])
    if mask.dense is not None:
        seen = seen & (mask.dense if mask.dense.dtype == torch.bool else ~hides(mask.dense))
    return seen


def scores(call: Call | View) -> Tensor:
    """[B, H, M, N] in the accumulator dtype; -inf where the mask hides the key."""
    wide = accumulator(call.query.dtype)
    repeat = call.query.shape[1] // call.key.shape[1]
    key = call.key.to(wide).repeat_interleave(repeat, dim=1)
    score = call.scale * (call.query.to(wide) @ key.transpose(-1, -2))
    if call.softcap is not None:
        score = call.softcap * torch.tanh(score / call.softcap)
    if call.bias is not None:
        score = score + call.bias.to(wide)
    if call.mask.dense is not None and call.mask.dense.dtype != torch.bool:
        score = score + call.mask.dense.to(wide)
    return score.masked_fill(~visible(call.mask, call.shape, score.device), -torch.inf)


def attend(call: Call, emit: Emit) -> Attended:
    """The whole contract, densely."""
    score = scores(call)
    blind = (score == -torch.inf).all(-1)
    outcomes = score
    if call.sinks is not None:
        sink = call.sinks.to(score.dtype)[None, :, None, None].expand(*score.shape[:3], 1)
        outcomes = torch.cat([score, sink], dim=-1)
    logsumexp = torch.logsumexp(outcomes, dim=-1).masked_fill(blind, -torch.inf)
    weights = _weights(score, logsumexp)
    value = call.value.to(score.dtype).repeat_interleave(call.query.shape[1] // call.key.shape[1], dim=1)
    view = View(call.query, call.key, logsumexp, call.scale, call.mask, call.softcap, call.bias, call.sinks)
    heads = list(emit.heads if emit.heads is not None else range(call.query.shape[1]))
    rows = emit.rows if emit.rows is not None else range(call.query.shape[2])
    return Attended(
        output=(weights @ value).to(call.query.dtype),
        logsumexp=logsumexp,
        statistics=statistics(view) if emit.statistics else None,
        pooled=pool(view, emit.pooled, slice(None), slice(None), "mean") if emit.pooled else None,
        weights=weights[:, heads, rows.start : rows.stop] if emit.weights else None,
    )


def backward(
    call: Call, output: Tensor, logsumexp: Tensor, output_gradient: Tensor, needs: tuple[bool, ...]
) -> Gradients:
    """d loss / d (query, key, value, bias, sinks) where `needs` asks, by torch's autograd through the dense map."""
    inputs = {name: getattr(call, name) for name in ("query", "key", "value", "bias", "sinks")}
    wanted = [name for (name, tensor), need in zip(inputs.items(), needs, strict=True) if need and tensor is not None]
    fresh = {name: inputs[name].detach().requires_grad_() for name in wanted}
    with torch.enable_grad():
        dense = attend(replace(call, **fresh), Emit()).output
        found = torch.autograd.grad(dense, list(fresh.values()), output_gradient)
    return Gradients(**dict(zip(wanted, found, strict=True)))


def statistics(view: View) -> Statistics:
    """Every row's statistics, from the dense map."""
    weights = _weights(scores(view), view.logsumexp)
    sink = None
    if view.sinks is not None:
        sink = torch.exp(view.sinks.to(weights.dtype)[None, :, None] - view.logsumexp)
    return statistics_of(weights, sink, view.logsumexp == -torch.inf, view.mask)


def statistics_of(weights: Tensor, sink: Tensor | None, blind: Tensor, mask: Mask) -> Statistics:
    """Statistics of weights [B, H, M, N], of the sinks' weights and of the rows that see nothing, both [B, H, M]."""
    batch, heads, rows, cols = weights.shape
    entropy = -torch.xlogy(weights, weights).sum(-1)
    if sink is not None:
        entropy = entropy - torch.xlogy(sink, sink)
    position = torch.arange(rows, device=weights.device) + mask.offset
    key = torch.arange(cols, device=weights.device)
    distance = (weights * (position[:, None] - key).abs()).sum(-1)
    first = torch.stack([weights[b, :, :, mask.first_key(b)] for b in range(batch)])
    largest, largest_key = weights.max(-1)

    def at(index: Tensor) -> Tensor:
        exists = (index >= 0) & (index < cols)
        where = index.clamp(0, cols - 1).expand(batch, heads, rows)[..., None]
        return weights.gather(-1, where)[..., 0] * exists

    nan = torch.nan
    return Statistics(
        entropy=entropy.masked_fill(blind, nan),
        largest=largest.masked_fill(blind, nan),
        largest_key=largest_key.masked_fill(blind, -1),
        distance=distance.masked_fill(blind, nan),
        own=at(position).masked_fill(blind, nan),
        previous=at(position - 1).masked_fill(blind, nan),
        first=first.masked_fill(blind, nan),
    )


def tile(view: View, rows: slice, cols: slice) -> Tensor:
    """weights[..., rows, cols], [B, H, rows, cols]."""
    return _weights(scores(view), view.logsumexp)[..., rows, cols]


def pool(view: View, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
    """[B, H, R, C] block means (or maxima) of weights[..., rows, cols]; blind rows left out, NaN where none is left."""
    return pool_of(tile(view, rows, cols), view.logsumexp[..., rows] > -torch.inf, shape, reduce)


def pool_of(weights: Tensor, seeing: Tensor, shape: tuple[int, int], reduce: str) -> Tensor:
    """Blocks of weights [B, H, rows, cols], of which `seeing` [B, H, rows] tells the rows that count."""
    row_edges, col_edges = (pool_edges(n, k) for n, k in zip(weights.shape[-2:], shape, strict=True))
    grid = weights.new_empty(*weights.shape[:2], len(row_edges) - 1, len(col_edges) - 1)
    for r, band in enumerate(pairwise(row_edges)):
        count = seeing[..., slice(*band)].sum(-1)
        for c, piece in enumerate(pairwise(col_edges)):
            block = weights[..., slice(*band), slice(*piece)]
            if reduce == "mean":
                grid[..., r, c] = block.sum((-1, -2)) / (count * block.shape[-1])
            else:
                grid[..., r, c] = block.amax((-1, -2)).masked_fill(count == 0, torch.nan)
    return grid


def received(view: View) -> Tensor:
    """[B, H, N]: the sum of each column, over all queries."""
    return _weights(scores(view), view.logsumexp).sum(-2)


def push(view: View, vector: Tensor) -> Tensor:
    """weights @ vector; vector [B, H, N, E] (axes B and H may be 1), result [B, H, M, E]."""
    weights = _weights(scores(view), view.logsumexp)
    return weights @ vector.to(weights.dtype)


def pull(view: View, vector: Tensor) -> Tensor:
    """weights.T @ vector; vector [B, H, M, E] (axes B and H may be 1), result [B, H, N, E]."""
    weights = _weights(scores(view), view.logsumexp)
    return weights.transpose(-1, -2) @ vector.to(weights.dtype)


def _weights(score: Tensor, logsumexp: Tensor) -> Tensor:
    """exp(score - logsumexp), with 0 (not NaN) in rows that see nothing."""
    return torch.exp(score - logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)[..., None])
