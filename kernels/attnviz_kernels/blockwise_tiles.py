"""Which tiles of the map exist, and their scores: the only part of the blockwise backend that knows the mask.

A tile is a pair of slices (rows, cols) of the map. Tiles of one row band lie side by side and cover exactly the keys
that some query of the band may see, so that hidden parts of the map are never computed.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from .spec import Call, Mask, View, accumulator, hides

BUDGET = 32 * 2**20
"""Bytes of scores that one tile may hold, all heads of all sequences together."""

CACHED = 3 * 2**20
"""The same on the CPU, where a tile goes through its caches a dozen times."""

LOWEST_BAND = 16
"""Rows of the smallest tiles, for calls of so many heads that no larger tile keeps the budget."""

WHOLE = slice(None)


def tile_size(call: Call | View) -> tuple[int, int]:
    """(rows, cols) of a tile: four times as wide as high, because a row band costs one more visit to each key."""
    batch, heads, _, _ = call.shape
    budget = CACHED if call.query.device.type == "cpu" else BUDGET
    cells = budget // (batch * heads * accumulator(call.query.dtype).itemsize)
    rows = LOWEST_BAND
    while 4 * (2 * rows) ** 2 <= cells and rows < 512:
        rows *= 2
    return rows, 4 * rows


def pieces(where: slice, size: int) -> Iterator[slice]:
    """A range cut into slices of at most `size`."""
    for start in range(where.start, where.stop, size):
        yield slice(start, min(start + size, where.stop))


def bands(call: Call | View, rows: slice) -> Iterator[slice]:
    """The row bands of a range of rows."""
    return pieces(rows, tile_size(call)[0])


def band_tiles(call: Call | View, rows: slice, cols: slice) -> Iterator[slice]:
    """The columns of every tile of one row band, within `cols`; none when the band sees nothing there."""
    start, stop = span(call.mask, rows, call.shape[3])
    return pieces(slice(max(start, cols.start), min(stop, cols.stop)), tile_size(call)[1])


def tiles(call: Call | View, rows: slice, cols: slice) -> Iterator[tuple[slice, slice]]:
    """Every tile of a region that holds something visible."""
    for band in bands(call, rows):
        for piece in band_tiles(call, band, cols):
            yield band, piece


def span(mask: Mask, rows: slice, keys: int) -> tuple[int, int]:
    """The smallest range of keys that holds all that a row band may see (not narrowed by a dense mask)."""
    first, last = rows.start + mask.offset, rows.stop - 1 + mask.offset
    left, right = mask.window or (None, None)
    start, stop = 0, keys
    if mask.causal:
        stop = min(stop, last + 1)
    if left is not None:
        start = max(start, first - left)
    if right is not None:
        stop = min(stop, last + right + 1)
    if mask.chunk is not None:
        start = max(start, first // mask.chunk * mask.chunk)
        stop = min(stop, (last // mask.chunk + 1) * mask.chunk)
    for flags in _key_flags(mask, rows):
        found = flags.nonzero()
        start = max(start, int(found[0]) if len(found) else stop)
        stop = min(stop, int(found[-1]) + 1 if len(found) else start)
    return start, max(start, stop)


def hidden(mask: Mask, rows: slice, cols: slice, device: torch.device) -> Tensor | None:
    """Where the mask hides keys of a tile: bool, broadcasts to [B, H, rows, cols]; None where it hides nothing."""
    parts = [*_structure(mask, rows, cols, device), *_per_sequence(mask, rows, cols)]
    if mask.dense is not None:
        dense = part_of(mask.dense, rows, cols)
        parts.append(~dense if dense.dtype == torch.bool else hides(dense))
    if not parts:
        return None
    whole = parts[0]
    for part in parts[1:]:
        whole = whole | part
    return whole


def products(call: Call | View, rows: slice, cols: slice) -> Tensor:
    """scale * q.k of a tile, soft-capped: [B, H, rows, cols] in the accumulator dtype."""
    wide = accumulator(call.query.dtype)
    query = by_group(call.query[:, :, rows].to(wide), call.key.shape[1])  # [B, G, H/G * rows, D]
    key = call.key[:, :, cols].to(wide)  # [B, G, cols, D]
    score = by_head(query @ key.transpose(-1, -2), call.shape[1]).mul_(call.scale)
    if call.softcap is not None:
        score.div_(call.softcap).tanh_().mul_(call.softcap)
    return score


def scores(call: Call | View, rows: slice, cols: slice) -> Tensor:
    """The scores of a tile, [B, H, rows, cols]; -inf where the mask hides the key."""
    return mask_scores(call, products(call, rows, cols), rows, cols)


def mask_scores(call: Call | View, score: Tensor, rows: slice, cols: slice) -> Tensor:
    """Bias and mask applied, in place, to the products of a tile."""
    if call.bias is not None:
        score += part_of(call.bias, rows, cols).to(score.dtype)
    dense = call.mask.dense
    if dense is not None and dense.dtype != torch.bool:
        score += part_of(dense, rows, cols).to(score.dtype)
    hide = hidden(call.mask, rows, cols, score.device)
    if hide is not None:  # a minimum takes a small part of the time of masked_fill_ on the CPU
        score.clamp_max_(torch.where(hide, -torch.inf, torch.inf).to(score.dtype))
    return score


def weights(view: View, rows: slice, cols: slice) -> Tensor:
    """The weights of a tile, [B, H, rows, cols]; 0 in rows that see nothing."""
    logsumexp = view.logsumexp[..., rows]
    shift = logsumexp.masked_fill(logsumexp == -torch.inf, 0.0)[..., None]
    return scores(view, rows, cols).sub_(shift).exp_()


def by_group(tensor: Tensor, groups: int) -> Tensor:
    """[B, H, rows, X] as [B, G, H/G * rows, X]: the heads that read one key/value head, stacked."""
    batch, heads, rows, size = tensor.shape
    return tensor.reshape(batch, groups, heads // groups * rows, size)


def by_head(tensor: Tensor, heads: int) -> Tensor:
    """[B, G, H/G * rows, X] as [B, H, rows, X]."""
    batch, groups, stacked, size = tensor.shape
    return tensor.view(batch, heads, stacked * groups // heads, size)


def part_of(tensor: Tensor, rows: slice, cols: slice) -> Tensor:
    """The part of a tensor that broadcasts to [B, H, M, N] which falls on a tile; axes of size 1 stay."""
    where = padded(tensor)
    return where[:, :, rows if where.shape[2] > 1 else WHOLE, cols if where.shape[3] > 1 else WHOLE]


def padded(tensor: Tensor) -> Tensor:
    """A tensor that broadcasts to [B, H, M, N], with all four axes."""
    return tensor.reshape((1,) * (4 - tensor.dim()) + tuple(tensor.shape))


def _structure(mask: Mask, rows: slice, cols: slice, device: torch.device) -> Iterator[Tensor]:
    """[rows, cols] of each condition on positions alone that hides something in the tile."""
    first, last = rows.start + mask.offset, rows.stop - 1 + mask.offset
    left, right = mask.window or (None, None)
    position = torch.arange(first, last + 1, device=device, dtype=torch.int32)[:, None]
    key = torch.arange(cols.start, cols.stop, device=device, dtype=torch.int32)
    if mask.causal and cols.stop - 1 > first:
        yield key > position
    if left is not None and cols.start < last - left:
        yield key < position - left
    if right is not None and cols.stop - 1 > first + right:
        yield key > position + right
    if mask.chunk is not None:
        blocks = {place // mask.chunk for place in (first, last, cols.start, cols.stop - 1)}
        if len(blocks) > 1:
            yield key // mask.chunk != position // mask.chunk


def _per_sequence(mask: Mask, rows: slice, cols: slice) -> Iterator[Tensor]:
    """[B, 1, rows or 1, cols] of padding that touches the tile, and of segments."""
    if mask.key_padding is not None:
        real = mask.key_padding[:, cols]
        if not bool(real.all()):
            yield ~real[:, None, None, :]
    if mask.segments is not None:
        own, other = mask.segments
        yield own[:, None, rows, None] != other[:, None, None, cols]


def _key_flags(mask: Mask, rows: slice) -> Iterator[Tensor]:
    """[N] bool, for each condition of a sequence: can any query of the band, in any sequence, see the key?"""
    if mask.key_padding is not None:
        yield mask.key_padding.any(0)
    if mask.segments is not None:
        own, other = mask.segments[0][:, rows], mask.segments[1]
        low, high = own.amin(1, keepdim=True), own.amax(1, keepdim=True)
        yield ((other >= low) & (other <= high)).any(0)
