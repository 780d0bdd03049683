"""Block means and maxima of the map, reduced tile by tile."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import torch
from torch import Tensor

from .blockwise_tiles import span, tile_size, weights
from .spec import View, pool_edges


def pool(view: View, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
    """[B, H, R, C] block means (or maxima) of weights[..., rows, cols]; blind rows left out, NaN where none is left."""
    row_edges = [rows.start + edge for edge in pool_edges(rows.stop - rows.start, shape[0])]
    col_edges = [cols.start + edge for edge in pool_edges(cols.stop - cols.start, shape[1])]
    height, width = tile_size(view)
    grid = view.logsumexp.new_zeros(*view.shape[:2], len(row_edges) - 1, len(col_edges) - 1)
    for band, down in cut(row_edges, height):
        start, stop = span(view.mask, band, view.shape[3])
        for piece, across in cut(col_edges, width):
            if piece.start < stop and piece.stop > start:
                tile = reduce_blocks(weights(view, band, piece), col_edges[across.start : across.stop + 1], -1, reduce)
                tile = reduce_blocks(tile, row_edges[down.start : down.stop + 1], -2, reduce)
                held = grid[..., down, across]
                held.copy_(held + tile if reduce == "mean" else torch.maximum(held, tile))
    seeing = _count_seeing(view, row_edges)[..., None]
    if reduce == "max":
        return grid.masked_fill_(seeing == 0, torch.nan)
    sizes = torch.tensor([stop - start for start, stop in pairwise(col_edges)], device=grid.device)
    return grid.div_(seeing * sizes)


def cut(edges: list[int], size: int) -> Iterator[tuple[slice, slice]]:
    """(positions, blocks) of pieces of an axis: whole blocks as far as `size` allows, or a part of a longer one."""
    first, blocks = 0, len(edges) - 1
    while first < blocks:
        last = first + 1
        while last < blocks and edges[last + 1] - edges[first] <= size:
            last += 1
        for start in range(edges[first], edges[last], size):
            yield slice(start, min(start + size, edges[last])), slice(first, last)
        first = last


def reduce_blocks(tile: Tensor, edges: list[int], axis: int, reduce: str) -> Tensor:
    """Sums (or maxima) of consecutive blocks of an axis, whose length becomes len(edges) - 1. Values are >= 0."""
    blocks = len(edges) - 1
    tile = _equal_blocks(tile, edges, axis) if blocks > 1 else tile.unsqueeze(axis - 1)
    return tile.sum(axis) if reduce == "mean" else tile.amax(axis)


def _equal_blocks(tile: Tensor, edges: list[int], axis: int) -> Tensor:
    """The axis as (blocks, positions); a shorter block is filled up with zeros, which no sum or maximum notices."""
    lengths = [stop - start for start, stop in pairwise(edges)]
    longest = max(lengths)
    if min(lengths) < longest:
        place = torch.arange(longest, device=tile.device)
        starts = torch.tensor(edges[:-1], device=tile.device)[:, None] - edges[0]
        inside = place < torch.tensor(lengths, device=tile.device)[:, None]  # [blocks, longest]
        where = torch.where(inside, starts + place, 0).flatten()
        shape = [-1 if k == tile.dim() + axis else 1 for k in range(tile.dim())]
        tile = tile.index_select(axis, where).mul_(inside.flatten().view(shape))
    shape = list(tile.shape)
    shape[axis : axis + 1 or None] = [len(lengths), longest]
    return tile.view(shape)


def _count_seeing(view: View, edges: list[int]) -> Tensor:
    """[B, H, R]: how many queries of each block see a key."""
    seeing = (view.logsumexp > -torch.inf).cumsum(-1)
    seeing = torch.nn.functional.pad(seeing, (1, 0))[..., edges]
    return seeing.diff(dim=-1)
