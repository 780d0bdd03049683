"""Gradients in tiles: weights are recomputed from logsumexp, so no N x N tensor is kept between the passes.

With g = d loss / d output, for each tile:

    d value  = weights.T g              d score = weights * (g value.T - delta),   delta = g . output
    d bias   = d score                  d query = scale * slope * d score key      (slope: derivative of the soft cap)
    d sink   = -weight of sink * delta  d key   = scale * slope * d score.T query

Source: Dao, FlashAttention-2 (2023), arXiv 2307.08691, algorithm 2.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .blockwise_tiles import by_group, by_head, mask_scores, padded, part_of, products, tiles
from .spec import Call, Gradients, accumulator


def backward(
    call: Call, output: Tensor, logsumexp: Tensor, output_gradient: Tensor, needs: tuple[bool, ...]
) -> Gradients:
    """d loss / d (query, key, value, bias, sinks) where `needs` asks for it."""
    wide = accumulator(call.query.dtype)
    inputs = (call.query, call.key, call.value, None if call.bias is None else padded(call.bias), call.sinks)
    query, key, value, bias, sinks = (
        torch.zeros_like(tensor, dtype=wide, memory_format=torch.contiguous_format)
        if need and tensor is not None
        else None
        for tensor, need in zip(inputs, needs, strict=True)
    )
    delta = (output_gradient.to(wide) * output.to(wide)).sum(-1)  # [B, H, M]
    safe = logsumexp.masked_fill(logsumexp == -torch.inf, torch.inf)
    for rows, cols in tiles(call, slice(0, call.shape[2]), slice(0, call.shape[3])):
        _add_tile(call, safe, delta, output_gradient, rows, cols, (query, key, value, bias))
    if sinks is not None and call.sinks is not None:
        share = (call.sinks.to(wide)[None, :, None] - safe).exp()
        sinks = -(share * delta).sum((0, 2))
    grown = (query, key, value, None if bias is None or call.bias is None else bias.reshape(call.bias.shape), sinks)
    originals = (call.query, call.key, call.value, call.bias, call.sinks)
    return Gradients(
        *(
            None if tensor is None or original is None else tensor.to(original.dtype)
            for tensor, original in zip(grown, originals, strict=True)
        )
    )


def _add_tile(
    call: Call,
    logsumexp: Tensor,
    delta: Tensor,
    output_gradient: Tensor,
    rows: slice,
    cols: slice,
    into: tuple[Tensor | None, Tensor | None, Tensor | None, Tensor | None],
) -> None:
    """Add what one tile contributes to the gradients of query, key, value and bias."""
    query, key, value, bias = into
    heads, groups = call.shape[1], call.key.shape[1]
    score = products(call, rows, cols)
    slope = None if call.softcap is None else 1 - (score / call.softcap).square()
    weight = mask_scores(call, score, rows, cols).sub_(logsumexp[..., rows, None]).exp_()
    gradient = by_group(output_gradient[:, :, rows].to(weight.dtype), groups)  # [B, G, H/G * rows, E]
    if value is not None:
        value[:, :, cols] += by_group(weight, groups).transpose(-1, -2) @ gradient
    if query is None and key is None and bias is None:
        return
    change = by_head(gradient @ call.value[:, :, cols].to(weight.dtype).transpose(-1, -2), heads)
    change.sub_(delta[..., rows, None]).mul_(weight)  # d loss / d score
    if bias is not None:
        _add_reduced(part_of(bias, rows, cols), change)
    change = by_group((change if slope is None else change.mul_(slope)).mul_(call.scale), groups)
    if query is not None:
        query[:, :, rows] += by_head(change @ call.key[:, :, cols].to(change.dtype), heads)
    if key is not None:
        stacked = by_group(call.query[:, :, rows].to(change.dtype), groups)
        key[:, :, cols] += change.transpose(-1, -2) @ stacked


def _add_reduced(target: Tensor, tile: Tensor) -> None:
    """Add a tile to a tensor that broadcasts to it, summed over the axes that broadcast."""
    axes = [axis for axis in range(4) if target.shape[axis] == 1 and tile.shape[axis] > 1]
    target += tile.sum(axes, keepdim=True) if axes else tile
