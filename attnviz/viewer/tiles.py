"""A head's map as square tiles of bytes: level z shows the largest weight of every 2^z x 2^z cells.

Weights span many powers of ten, so that a byte holds the logarithm: 0 is a cell that no query of it may see, 1 to 255
run evenly over log10 from -6 to 0 (one step is 5.6 %, weights below 1e-6 are shown as 1e-6). The largest weight of a
block is kept, not the mean, because a single strong link must stay visible from afar.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import UsageError
from ..head import Head

TILE = 256
"""Cells along a tile's side."""

BAND = 1 << 22
"""Weights computed at once."""

DECADES = 6.0
"""Powers of ten below 1 that a byte covers."""


def deepest(rows: int, cols: int) -> int:
    """The level at which the whole map fits into one tile."""
    level = 0
    while max(rows, cols) > TILE << level:
        level += 1
    return level


def levels(rows: int, cols: int) -> list[tuple[int, int]]:
    """Cells down and across of every level, from single weights to the whole map in one tile."""
    return [(-(-rows >> z), -(-cols >> z)) for z in range(deepest(rows, cols) + 1)]


def tile_bytes(head: Head, level: int, down: int, across: int) -> Tensor:
    """The tile `down`, `across` of a level, [height, width] uint8; tiles at the border are smaller.

    Raises UsageError for a tile outside the map.
    """
    return torch.cat([codes(head, level, rows, cols) for rows, cols in bands(head, level, down, across)])


def bands(head: Head, level: int, down: int, across: int, most: int = BAND) -> list[tuple[slice, slice]]:
    """A tile as ranges of rows and columns, one below the other, each of at most `most` weights or one row of cells.

    Raises UsageError for a tile outside the map.
    """
    rows, cols = head.shape
    if not 0 <= level <= deepest(rows, cols):
        raise UsageError(f"level {level} does not exist: this map has levels 0 to {deepest(rows, cols)}")
    side = TILE << level
    top, left = down * side, across * side
    if not (0 <= top < rows and 0 <= left < cols):
        raise UsageError(f"tile {down}, {across} of level {level} lies outside the map of {rows} x {cols}")
    bottom, strip = min(top + side, rows), slice(left, min(left + side, cols))
    height = max(1, most // (strip.stop - left) >> level) << level
    return [(slice(start, min(start + height, bottom)), strip) for start in range(top, bottom, height)]


def codes(head: Head, level: int, rows: slice, cols: slice) -> Tensor:
    """The bytes of a range of a level, which begins at a multiple of 2^level on both axes."""
    return quantise(head.weights(rows, cols) if level == 0 else pool_cells(head, rows, cols, 1 << level))


def pool_cells(head: Head, rows: slice, cols: slice, size: int) -> Tensor:
    """The largest weight of every size x size cell of a range; the last cell of a row or column may be smaller."""
    bands = [
        torch.cat([head.pooled((high, wide), band, strip, "max") for strip, wide in _whole(cols, size)], dim=1)
        for band, high in _whole(rows, size)
    ]
    return torch.cat(bands, dim=0)


def _whole(part: slice, size: int) -> list[tuple[slice, int]]:
    """A range as one of whole blocks and, where it does not divide, one smaller block; each with its block count."""
    count, rest = divmod(part.stop - part.start, size)
    middle = part.start + count * size
    found = [(slice(part.start, middle), count)] if count else []
    return [*found, (slice(middle, part.stop), 1)] if rest else found


def quantise(weights: Tensor) -> Tensor:
    """Weights as bytes: 0 for none, else 1 + 254 * (log10(weight) + 6) / 6, rounded and kept within 1 to 255."""
    seen = torch.nan_to_num(weights, nan=0.0)
    steps = 1 + 254 * (torch.log10(seen.clamp(min=10**-DECADES)) + DECADES) / DECADES
    return torch.where(seen > 0, steps.round().clamp(1, 255), 0).to(torch.uint8)


def restore(codes: Tensor) -> Tensor:
    """The weights that bytes stand for, within half a step (2.8 %); 0 where there is none."""
    logarithm = (codes.float() - 1) / 254 * DECADES - DECADES
    return torch.where(codes > 0, 10**logarithm, 0.0)
