"""Views made of other views: calls joined row by row, one map less another, and a map that was not kept."""

# ruff: noqa: D102 - `WeightView` says what the methods of every view do

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import NoReturn

import torch
from torch import Tensor
from torch.nn import functional as F

from attnviz_kernels import Statistics, pool_edges

from .errors import UsageError
from .views import Dense, Shape, WeightView, pool_dense


@dataclass(frozen=True)
class Stacked:
    """Calls joined row by row: prefill and decoding steps of one run.

    parts[i] covers the columns from lefts[i] on; N is `columns`. Keys that a call did not have are keys it did not see.
    """

    parts: tuple[WeightView, ...]
    lefts: tuple[int, ...]
    columns: int

    @property
    def shape(self) -> Shape:
        batch, heads = self.parts[0].shape[:2]
        return batch, heads, sum(part.shape[2] for part in self.parts), self.columns

    def sequence(self, batch: int) -> Stacked:
        return self._each(lambda part: part.sequence(batch))

    def select(self, batch: int, head: int) -> Stacked:
        return self._each(lambda part: part.select(batch, head))

    def crop(self, rows: slice, cols: slice) -> Stacked:
        start, stop, _ = cols.indices(self.columns)
        kept: list[WeightView] = []
        lefts = []
        for part, left, inside in self._within(rows):
            first, last = max(start, left), min(stop, left + part.shape[3])
            if first < last:
                kept.append(part.crop(inside, slice(first - left, last - left)))
                lefts.append(first - start)
            else:
                kept.append(Dense(part.tile(inside, slice(0, 1)) * 0))
                lefts.append(0)
        return Stacked(tuple(kept), tuple(lefts), stop - start)

    def tile(self, rows: slice, cols: slice) -> Tensor:
        start, stop, _ = cols.indices(self.columns)
        bands = []
        for part, left, inside in self._within(rows):
            first, last = max(start, left), min(stop, left + part.shape[3])
            if first < last:
                band = part.tile(inside, slice(first - left, last - left))
                bands.append(F.pad(band, (first - start, stop - last)))
            else:
                height = inside.stop - inside.start
                bands.append(part.tile(inside, slice(0, 1)).new_zeros(*self.shape[:2], height, stop - start))
        return torch.cat(bands, -2)

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        return pool_in_bands(self, shape, rows, cols, reduce)

    def received(self) -> Tensor:
        return self._sum(lambda part, _: part.received().unsqueeze(-1))[..., 0]

    def push(self, vector: Tensor) -> Tensor:
        found = [
            part.push(vector[:, :, left : left + part.shape[3]])
            for part, left in zip(self.parts, self.lefts, strict=True)
        ]
        return torch.cat(found, -2)

    def pull(self, vector: Tensor) -> Tensor:
        return self._sum(lambda part, rows: part.pull(vector[:, :, rows]))

    def statistics(self) -> Statistics:
        return join_statistics([part.statistics() for part in self.parts], self.lefts)

    def visible(self) -> Tensor:
        return torch.cat([part.visible() for part in self.parts], -1)

    def own_keys(self) -> Tensor:
        return torch.cat([part.own_keys() + left for part, left in zip(self.parts, self.lefts, strict=True)])

    def _each(self, change: Callable[[WeightView], WeightView]) -> Stacked:
        return replace(self, parts=tuple(change(part) for part in self.parts))

    def _within(self, rows: slice) -> list[tuple[WeightView, int, slice]]:
        """The parts that a range of rows meets: (part, its first column, the range in the part's own rows)."""
        start, stop, _ = rows.indices(self.shape[2])
        found, top = [], 0
        for part, left in zip(self.parts, self.lefts, strict=True):
            height = part.shape[2]
            first, last = max(start - top, 0), min(stop - top, height)
            if first < last:
                found.append((part, left, slice(first, last)))
            top += height
        return found

    def _sum(self, take: Callable[[WeightView, slice], Tensor]) -> Tensor:
        """The sum over all parts of [B, H, columns of the part, E], each at its place."""
        total: Tensor | None = None
        top = 0
        for part, left in zip(self.parts, self.lefts, strict=True):
            found = take(part, slice(top, top + part.shape[2]))
            if total is None:
                total = found.new_zeros(*found.shape[:2], self.columns, found.shape[3])
            total[:, :, left : left + part.shape[3]] += found
            top += part.shape[2]
        assert total is not None
        return total


@dataclass(frozen=True)
class Difference:
    """first - factor * second: what a differential attention (Ye et al. 2024, arXiv 2410.05258) applies to the values.

    Weights may be negative, so a row is no distribution: its entropy is NaN, its distance the signed sum.
    """

    first: WeightView
    second: WeightView
    factor: float

    @property
    def shape(self) -> Shape:
        return self.first.shape

    def sequence(self, batch: int) -> Difference:
        return replace(self, first=self.first.sequence(batch), second=self.second.sequence(batch))

    def select(self, batch: int, head: int) -> Difference:
        return replace(self, first=self.first.select(batch, head), second=self.second.select(batch, head))

    def crop(self, rows: slice, cols: slice) -> Difference:
        return replace(self, first=self.first.crop(rows, cols), second=self.second.crop(rows, cols))

    def tile(self, rows: slice, cols: slice) -> Tensor:
        return self._less(lambda view: view.tile(rows, cols))

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        if reduce == "mean":
            return self._less(lambda view: view.pool(shape, rows, cols, "mean"))
        return pool_in_bands(self, shape, rows, cols, reduce)

    def received(self) -> Tensor:
        return self._less(lambda view: view.received())

    def push(self, vector: Tensor) -> Tensor:
        return self._less(lambda view: view.push(vector))

    def pull(self, vector: Tensor) -> Tensor:
        return self._less(lambda view: view.pull(vector))

    def statistics(self) -> Statistics:
        first, second = self.first.statistics(), self.second.statistics()
        less = {
            name: getattr(first, name) - self.factor * getattr(second, name)
            for name in ("distance", "own", "previous", "first")
        }
        rows = [self.tile(slice(row, row + 1), slice(None)).max(-1) for row in range(self.shape[2])]
        largest = torch.cat([row.values for row in rows], -1)
        largest_key = torch.cat([row.indices for row in rows], -1)
        blind = torch.isnan(first.entropy)
        return Statistics(
            entropy=torch.full_like(largest, torch.nan),
            largest=largest.masked_fill(blind, torch.nan),
            largest_key=largest_key.masked_fill(blind, -1),
            **less,
        )

    def visible(self) -> Tensor:
        return self.first.visible()

    def own_keys(self) -> Tensor:
        return self.first.own_keys()

    def _less(self, take: Callable[[WeightView], Tensor]) -> Tensor:
        return take(self.first) - self.factor * take(self.second)


@dataclass(frozen=True)
class Unkept:
    """The shape of a map whose weights were not kept (`keep="statistics"`), and how many keys each query saw."""

    shape: Shape
    seen: Tensor

    def sequence(self, batch: int) -> Unkept:
        return Unkept((1, *self.shape[1:]), self.seen[batch : batch + 1])

    def select(self, batch: int, head: int) -> Unkept:
        return Unkept((1, 1, *self.shape[2:]), self.seen[batch : batch + 1, head : head + 1])

    def crop(self, rows: slice, cols: slice) -> Unkept:
        height, width = (
            len(range(*part.indices(size))) for part, size in zip((rows, cols), self.shape[2:], strict=True)
        )
        return Unkept((*self.shape[:2], height, width), self.seen[:, :, rows])

    def visible(self) -> Tensor:
        return self.seen

    def tile(self, rows: slice, cols: slice) -> NoReturn:
        raise self._refusal()

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> NoReturn:
        raise self._refusal()

    def received(self) -> NoReturn:
        raise self._refusal()

    def push(self, vector: Tensor) -> NoReturn:
        raise self._refusal()

    def pull(self, vector: Tensor) -> NoReturn:
        raise self._refusal()

    def statistics(self) -> NoReturn:
        raise self._refusal()

    def own_keys(self) -> NoReturn:
        raise self._refusal()

    def _refusal(self) -> UsageError:
        return UsageError(
            'this trace keeps statistics only: record with keep="qk" to look at weights'
            " (attnviz record without --statistics-only)"
        )


def pool_in_bands(view: WeightView, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
    """`WeightView.pool` from tiles, one band of blocks after another."""
    start, stop, _ = rows.indices(view.shape[2])
    edges = [start + edge for edge in pool_edges(stop - start, shape[0])]
    bands = [slice(top, bottom) for top, bottom in pairwise(edges)]
    seeing = view.visible() > 0
    pooled = [pool_dense(view.tile(band, cols), seeing[:, :, band], (1, shape[1]), reduce) for band in bands]
    return torch.cat(pooled, -2)


def join_statistics(parts: list[Statistics], lefts: tuple[int, ...]) -> Statistics:
    """The statistics of calls whose columns begin at `lefts`, row after row."""
    joined = {f.name: torch.cat([getattr(part, f.name) for part in parts], -1) for f in fields(Statistics)}
    if any(lefts):
        keys = [
            torch.where(part.largest_key < 0, part.largest_key, part.largest_key + left)
            for part, left in zip(parts, lefts, strict=True)
        ]
        joined["largest_key"] = torch.cat(keys, -1)
    return Statistics(**joined)


def each(statistics: Statistics, take: Callable[[Tensor], Tensor]) -> Statistics:
    """The same function applied to every column of the statistics."""
    return Statistics(**{f.name: take(getattr(statistics, f.name)) for f in fields(Statistics)})
