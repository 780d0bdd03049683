"""The contract in torch tiles: any device, any dtype, any mask, memory that grows as N."""

from __future__ import annotations

from dataclasses import fields

import torch
from torch import Tensor

from .blockwise_backward import backward
from .blockwise_pool import pool
from .blockwise_softmax import Band
from .blockwise_tiles import band_tiles, bands, scores, tiles, weights
from .spec import Attended, Call, Emit, Statistics, View, accumulator

__all__ = ["attend", "backward", "pool", "pull", "push", "received", "refuses", "statistics", "tile", "unavailable"]


def unavailable() -> str | None:
    """Torch is all it needs."""
    return None


def refuses(call: Call | View) -> str | None:
    """It serves every call."""
    return None


def attend(call: Call, emit: Emit) -> Attended:
    """One online pass for output, logsumexp and statistics; pooled maps and weights from a second one."""
    batch, heads, rows, _ = call.shape
    output = call.query.new_empty(batch, heads, rows, call.value.shape[3])
    logsumexp, found = _sweep(call, call.value, output, emit.statistics)
    view = View(call.query, call.key, logsumexp, call.scale, call.mask, call.softcap, call.bias, call.sinks)
    return Attended(
        output=output,
        logsumexp=logsumexp,
        statistics=found,
        pooled=pool(view, emit.pooled, *_everything(view), "mean") if emit.pooled else None,
        weights=_chosen_weights(view, emit) if emit.weights else None,
    )


def statistics(view: View) -> Statistics:
    """Every row's statistics, after the fact: the online pass again, without values."""
    found = _sweep(view, None, None, True)[1]
    assert found is not None
    return found


def tile(view: View, rows: slice, cols: slice) -> Tensor:
    """weights[..., rows, cols], [B, H, rows, cols]."""
    batch, heads, _, _ = view.shape
    whole = view.logsumexp.new_zeros(batch, heads, rows.stop - rows.start, cols.stop - cols.start)
    for band, piece in tiles(view, rows, cols):
        whole[..., _within(band, rows), _within(piece, cols)] = weights(view, band, piece)
    return whole


def received(view: View) -> Tensor:
    """[B, H, N]: the sum of each column, over all queries."""
    batch, heads, _, keys = view.shape
    total = view.logsumexp.new_zeros(batch, heads, keys)
    for band, piece in tiles(view, *_everything(view)):
        total[..., piece] += weights(view, band, piece).sum(-2)
    return total


def push(view: View, vector: Tensor) -> Tensor:
    """weights @ vector; vector [B, H, N, E] (axes B and H may be 1), result [B, H, M, E]."""
    result = view.logsumexp.new_zeros(*view.shape[:3], vector.shape[3])
    for band, piece in tiles(view, *_everything(view)):
        result[:, :, band] += weights(view, band, piece) @ vector[:, :, piece].to(result.dtype)
    return result


def pull(view: View, vector: Tensor) -> Tensor:
    """weights.T @ vector; vector [B, H, M, E] (axes B and H may be 1), result [B, H, N, E]."""
    batch, heads, _, keys = view.shape
    result = view.logsumexp.new_zeros(batch, heads, keys, vector.shape[3])
    for band, piece in tiles(view, *_everything(view)):
        result[:, :, piece] += weights(view, band, piece).transpose(-1, -2) @ vector[:, :, band].to(result.dtype)
    return result


def _sweep(
    call: Call | View, value: Tensor | None, output: Tensor | None, wants_statistics: bool
) -> tuple[Tensor, Statistics | None]:
    """Fill `output`, and return logsumexp and statistics, band by band."""
    _, _, rows, keys = call.shape
    logsumexp = call.query.new_empty(call.shape[:3], dtype=accumulator(call.query.dtype))
    found = _empty_statistics(logsumexp) if wants_statistics else None
    first_keys = [call.mask.first_key(batch) for batch in range(call.shape[0])] if wants_statistics else None
    for band in bands(call, slice(0, rows)):
        running = Band(call, band, None if value is None else value.shape[3], first_keys)
        for piece in band_tiles(call, band, slice(0, keys)):
            running.add(scores(call, band, piece), None if value is None else value[:, :, piece], piece)
        mixed, logsumexp[..., band], part = running.results()
        if output is not None and mixed is not None:
            output[:, :, band] = mixed
        if found is not None and part is not None:
            for field in fields(Statistics):
                getattr(found, field.name)[..., band] = getattr(part, field.name)
    return logsumexp, found


def _empty_statistics(like: Tensor) -> Statistics:
    names = [field.name for field in fields(Statistics)]
    return Statistics(
        **{name: torch.empty_like(like, dtype=torch.int64 if name == "largest_key" else like.dtype) for name in names}
    )


def _chosen_weights(view: View, emit: Emit) -> Tensor:
    """The rows and heads of the map that `emit` asks for, [B, heads, rows, N]."""
    all_rows, cols = _everything(view)
    rows = all_rows if emit.rows is None else slice(emit.rows.start, emit.rows.stop)
    if emit.heads is None:
        return tile(view, rows, cols)
    batch, _, _, keys = view.shape
    chosen = view.logsumexp.new_empty(batch, len(emit.heads), rows.stop - rows.start, keys)
    for sequence in range(batch):
        for place, head in enumerate(emit.heads):
            chosen[sequence, place] = tile(view.select(sequence, head), rows, cols)[0, 0]
    return chosen


def _everything(view: View) -> tuple[slice, slice]:
    return slice(0, view.shape[2]), slice(0, view.shape[3])


def _within(part: slice, whole: slice) -> slice:
    return slice(part.start - whole.start, part.stop - whole.start)
