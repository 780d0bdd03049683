"""Where a head's weights come from: a view answers for any region, at any resolution, without holding the map.

Every view has the same methods; axes as in `axes`. `QueryKey` recomputes from query, key and logsumexp, `Dense` holds
weights that a model handed over. Views made of other views are in `composed`.
"""

# ruff: noqa: D102 - `WeightView` says what the methods of every view do

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Protocol

import torch
from torch import Tensor

from attnviz_kernels import Statistics, View, pool_edges, pull, push, received, statistics, tile, visible_keys
from attnviz_kernels import pool as pool_tiles

Shape = tuple[int, int, int, int]


class WeightView(Protocol):
    """The map of every head of every sequence of one attention module."""

    @property
    def shape(self) -> Shape:
        """(B, H, M, N)."""

    def sequence(self, batch: int) -> WeightView:
        """Every head of one sequence; axis B is 1."""

    def select(self, batch: int, head: int) -> WeightView:
        """One head of one sequence; its axes B and H are 1."""

    def crop(self, rows: slice, cols: slice) -> WeightView:
        """Only those queries and keys; the keys left out must be ones no query sees (padding)."""

    def tile(self, rows: slice, cols: slice) -> Tensor:
        """Exact weights [B, H, rows, cols]."""

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        """Block means or maxima [B, H, R, C]; rows that see no key are left out."""

    def received(self) -> Tensor:
        """Column sums [B, H, N]."""

    def push(self, vector: Tensor) -> Tensor:
        """weights @ vector: [B, H, N, E] to [B, H, M, E]."""

    def pull(self, vector: Tensor) -> Tensor:
        """weights.T @ vector: [B, H, M, E] to [B, H, N, E]."""

    def statistics(self) -> Statistics:
        """Per-row statistics, each [B, H, M]."""

    def visible(self) -> Tensor:
        """How many keys each query may see, [B, H, M] int64."""

    def own_keys(self) -> Tensor:
        """The column that stands for each query's own position, [M] int64; outside 0 to N - 1 where there is none."""


@dataclass(frozen=True)
class QueryKey:
    """Weights recomputed tile by tile from what the kernel call left behind."""

    view: View

    @property
    def shape(self) -> Shape:
        return self.view.shape

    def sequence(self, batch: int) -> QueryKey:
        return QueryKey(self.view.sequence(batch))

    def select(self, batch: int, head: int) -> QueryKey:
        return QueryKey(self.view.select(batch, head))

    def crop(self, rows: slice, cols: slice) -> QueryKey:
        return QueryKey(self.view.crop(rows, cols))

    def tile(self, rows: slice, cols: slice) -> Tensor:
        found = tile(self.view, rows, cols)
        return found if found.shape[-1] < self.shape[3] else self._exact(found, rows)

    def _exact(self, weights: Tensor, rows: slice) -> Tensor:
        """Whole rows of weights, made to sum to what they must.

        The scores are computed anew, in another order of summation than those behind logsumexp: the difference grows
        with the size of the scores and is the same for a whole row.
        """
        total = torch.ones_like(weights[..., 0])
        if self.view.sinks is not None:
            sinks = self.view.sinks[:, None].to(weights.dtype)
            total = 1 - torch.exp(sinks - self.view.logsumexp[:, :, rows])
        return weights * torch.nan_to_num(total / weights.sum(-1)).unsqueeze(-1)

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        return pool_tiles(self.view, shape, rows, cols, reduce)

    def received(self) -> Tensor:
        return received(self.view)

    def push(self, vector: Tensor) -> Tensor:
        return push(self.view, vector)

    def pull(self, vector: Tensor) -> Tensor:
        return pull(self.view, vector)

    def statistics(self) -> Statistics:
        return statistics(self.view)

    def visible(self) -> Tensor:
        return visible_keys(self.view)

    def own_keys(self) -> Tensor:
        return torch.arange(self.shape[2], device=self.view.query.device) + self.view.mask.offset


@dataclass(frozen=True)
class Dense:
    """Weights [B, H, M, N] that exist already. offset: query i stands at key position i + offset.

    Where the mask is not known, a key counts as visible when its weight is not exactly zero.
    """

    weights: Tensor
    offset: int = 0

    @property
    def shape(self) -> Shape:
        batch, heads, rows, cols = self.weights.shape
        return batch, heads, rows, cols

    def sequence(self, batch: int) -> Dense:
        return replace(self, weights=self.weights[batch : batch + 1])

    def select(self, batch: int, head: int) -> Dense:
        return replace(self, weights=self.weights[batch : batch + 1, head : head + 1])

    def crop(self, rows: slice, cols: slice) -> Dense:
        start, moved = rows.indices(self.shape[2])[0], cols.indices(self.shape[3])[0]
        return Dense(self.weights[:, :, rows, cols], self.offset + start - moved)

    def tile(self, rows: slice, cols: slice) -> Tensor:
        return self._wide[:, :, rows, cols]

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        return pool_dense(self.tile(rows, cols), (self.weights[:, :, rows] != 0).any(-1), shape, reduce)

    def received(self) -> Tensor:
        return self._wide.sum(-2)

    def push(self, vector: Tensor) -> Tensor:
        return self.weights.to(vector.dtype) @ vector

    def pull(self, vector: Tensor) -> Tensor:
        return self.weights.to(vector.dtype).transpose(-1, -2) @ vector

    def statistics(self) -> Statistics:
        return dense_statistics(self._wide, self.offset)

    def visible(self) -> Tensor:
        return (self.weights != 0).sum(-1)

    def own_keys(self) -> Tensor:
        return torch.arange(self.shape[2], device=self.weights.device) + self.offset

    @property
    def _wide(self) -> Tensor:
        return self.weights if self.weights.dtype == torch.float64 else self.weights.float()


def pool_dense(weights: Tensor, seeing: Tensor, shape: tuple[int, int], reduce: str) -> Tensor:
    """[..., R, C] block means or maxima of [..., M, N]; rows where `seeing` [..., M] is False are left out."""
    row_edges, col_edges = (pool_edges(n, k) for n, k in zip(weights.shape[-2:], shape, strict=True))
    bands = []
    for top, bottom in pairwise(row_edges):
        band, count = weights[..., top:bottom, :], seeing[..., top:bottom].sum(-1, keepdim=True)
        line = band.sum(-2) if reduce == "mean" else band.amax(-2)
        blocks = [
            line[..., left:right].sum(-1) / (right - left) if reduce == "mean" else line[..., left:right].amax(-1)
            for left, right in pairwise(col_edges)
        ]
        row = torch.stack(blocks, dim=-1)
        bands.append((row / count if reduce == "mean" else row).masked_fill(count == 0, torch.nan))
    return torch.stack(bands, dim=-2)


def dense_statistics(weights: Tensor, offset: int) -> Statistics:
    """`Statistics` of weights [B, H, M, N] as they are; a rest to one is counted as one more outcome (a sink)."""
    batch, heads, rows, cols = weights.shape
    blind = ~(weights != 0).any(-1)
    rest = (1 - weights.sum(-1)).clamp(min=0)
    rest = torch.where(rest < 1e-3, 0, rest)  # rounding of half precision weights is no sink
    position = torch.arange(rows, device=weights.device) + offset
    key = torch.arange(cols, device=weights.device)
    largest, largest_key = weights.max(-1)

    def at(index: Tensor) -> Tensor:
        exists = (index >= 0) & (index < cols)
        where = index.clamp(0, cols - 1).expand(batch, heads, rows)[..., None]
        return weights.gather(-1, where)[..., 0] * exists

    entropy = -torch.xlogy(weights, weights).sum(-1) - torch.xlogy(rest, rest)
    distance = (weights * (position[:, None] - key).abs()).sum(-1)
    columns = (entropy, largest, distance, at(position), at(position - 1), weights[..., 0])
    seen = [column.masked_fill(blind, torch.nan) for column in columns]
    return Statistics(seen[0], seen[1], largest_key.masked_fill(blind, -1), seen[2], seen[3], seen[4], seen[5])
