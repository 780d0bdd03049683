"""The map that a state-space layer applies to its input: weights from discretised states, tile by tile."""

# ruff: noqa: D102 - `WeightView` says what the methods of every view do

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnviz_kernels import Statistics

from .composed import join_statistics, pool_in_bands
from .views import Shape, dense_statistics

_BLOCK = 16
"""Queries whose nearest keys are weighed one by one; all earlier keys go through one state."""

_CELLS = 1 << 22
"""Weights looked at together."""


@dataclass(frozen=True)
class StateSpace:
    """Implicit attention of a selective state-space layer (Ali et al. 2024, arXiv 2403.01590), one map a channel:

        weights[i, j] = sum over s of reader[i, s] exp(decay[s] (time[i] - time[j])) step[j] writer[j, s]  for j <= i

    decay [H, S] is A (negative), step [B, H, N] is delta, writer [B, H, N, S] is B and reader [B, H, M, S] is C (axis H
    is 1 where all channels share them); row_time [B, H, M] and key_time [B, H, N], float64, are the sums of steps up to
    and with a position. offset: query i stands at key position i + offset. mean shows one map, the mean of all H.

    Weights may be negative and a row does not sum to one, so it is no distribution: entropy and distance are NaN.
    Memory is O(N) a channel; time grows with N squared, also of `push` and `pull`.
    """

    decay: Tensor
    reader: Tensor
    row_time: Tensor
    writer: Tensor
    key_time: Tensor
    step: Tensor
    offset: int = 0
    mean: bool = False

    @property
    def shape(self) -> Shape:
        batch, heads, keys = self.step.shape
        return batch, 1 if self.mean else heads, self.row_time.shape[2], keys

    def sequence(self, batch: int) -> StateSpace:
        return self._part(slice(batch, batch + 1), slice(None))

    def select(self, batch: int, head: int) -> StateSpace:
        return self._part(slice(batch, batch + 1), slice(None) if self.mean else slice(head, head + 1))

    def crop(self, rows: slice, cols: slice) -> StateSpace:
        return replace(
            self,
            reader=self.reader[:, :, rows],
            row_time=self.row_time[:, :, rows],
            writer=self.writer[:, :, cols],
            key_time=self.key_time[:, :, cols],
            step=self.step[:, :, cols],
            offset=self.offset + rows.indices(self.shape[2])[0] - cols.indices(self.shape[3])[0],
        )

    def tile(self, rows: slice, cols: slice) -> Tensor:
        part = self.crop(rows, cols)
        if not self.mean:
            return part._weights()
        heads = self.step.shape[1]
        count = max(1, _CELLS // max(1, part.shape[2] * part.shape[3]))
        chunks = (part._part(slice(None), slice(first, first + count)) for first in range(0, heads, count))
        total = self.reader.new_zeros(part.shape)
        for chunk in chunks:
            total += chunk._weights().sum(1, keepdim=True)
        return total / heads

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        return pool_in_bands(self, shape, rows, cols, reduce)

    def received(self) -> Tensor:
        batch, heads, _, keys = self.shape
        total = self.reader.new_zeros(batch, heads, keys)
        for _, weights in self._bands():
            total += weights.sum(-2)
        return total

    def push(self, vector: Tensor) -> Tensor:
        return torch.cat([weights.to(vector.dtype) @ vector for _, weights in self._bands()], -2)

    def pull(self, vector: Tensor) -> Tensor:
        batch, heads, _, keys = self.shape
        total = vector.new_zeros(batch, heads, keys, vector.shape[-1])
        for rows, weights in self._bands():
            total += weights.to(vector.dtype).transpose(-1, -2) @ vector[:, :, rows]
        return total

    def statistics(self) -> Statistics:
        found = [self._signed(weights, self.offset + rows.start) for rows, weights in self._bands()]
        return join_statistics(found, (0,) * len(found))

    def visible(self) -> Tensor:
        batch, heads, rows, keys = self.shape
        seen = (torch.arange(rows, device=self.step.device) + self.offset + 1).clamp(0, keys)
        return seen.expand(batch, heads, rows)

    def own_keys(self) -> Tensor:
        return torch.arange(self.shape[2], device=self.step.device) + self.offset

    def only(self, heads: Sequence[int]) -> StateSpace:
        """The same, with some of the channels."""
        return self._part(slice(None), list(heads))

    def averaged(self) -> StateSpace:
        """One map, the mean of all channels."""
        return replace(self, mean=True)

    def _bands(self) -> Iterator[tuple[slice, Tensor]]:
        """(rows, their weights), as many rows at a time as fit."""
        batch, heads, rows, keys = self.shape
        height = max(1, _CELLS // max(1, batch * heads * keys))
        for top in range(0, rows, height):
            band = slice(top, min(top + height, rows))
            yield band, self.tile(band, slice(None))

    def _weights(self) -> Tensor:
        """[B, H, M, N] of every channel, whether `mean` or not."""
        rows = self.row_time.shape[2]
        blocks = [self._block(slice(top, min(top + _BLOCK, rows))) for top in range(0, rows, _BLOCK)]
        return torch.cat(blocks, -2)

    def _block(self, rows: slice) -> Tensor:
        """[B, H, rows, N]: keys before the first of the rows through the state at that row, the others one by one."""
        keys = self.step.shape[2]
        near, after = (min(max(edge + self.offset, 0), keys) for edge in (rows.start, rows.stop))
        at, wrote = self.row_time[:, :, rows], self.step.unsqueeze(-1) * self.writer
        pivot = at[:, :, :1]
        reads = self.reader[:, :, rows] * self._decayed(at - pivot)
        far = reads @ (wrote[:, :, :near] * self._decayed(pivot - self.key_time[:, :, :near])).transpose(-1, -2)
        gaps = (at[..., None] - self.key_time[:, :, None, near:after]).clamp(min=0)
        close = torch.einsum(
            "bhis,bhijs,bhjs->bhij", self.reader[:, :, rows], self._decayed(gaps), wrote[:, :, near:after]
        )
        close = close.tril(rows.start + self.offset - near)
        return torch.cat([far, close, far.new_zeros(*far.shape[:3], keys - after)], -1)

    def _decayed(self, gap: Tensor) -> Tensor:
        """exp(decay * gap) [B, H, ..., S] for gaps of time [B, H, ...]."""
        decay = self.decay[(slice(None), *(None,) * (gap.dim() - 2))]
        return torch.exp(gap.to(self.reader.dtype).unsqueeze(-1) * decay)

    def _part(self, batch: slice, heads: slice | list[int]) -> StateSpace:
        shared = heads if self.writer.shape[1] > 1 else slice(None)
        return replace(
            self,
            decay=self.decay[heads],
            reader=self.reader[batch, shared],
            row_time=self.row_time[batch, heads],
            writer=self.writer[batch, shared],
            key_time=self.key_time[batch, heads],
            step=self.step[batch, heads],
        )

    def _signed(self, weights: Tensor, offset: int) -> Statistics:
        """`Statistics` of rows that are no distributions; the largest weight is that of a key the query sees."""
        found = dense_statistics(weights, offset)
        keys = torch.arange(weights.shape[-1], device=weights.device)
        places = torch.arange(weights.shape[-2], device=weights.device) + offset
        largest, key = weights.masked_fill(keys > places[:, None], -torch.inf).max(-1)
        blind = torch.isnan(found.largest)
        return replace(
            found,
            entropy=torch.full_like(found.entropy, torch.nan),
            distance=torch.full_like(found.distance, torch.nan),
            largest=largest.masked_fill(blind, torch.nan),
            largest_key=key.masked_fill(blind, -1),
        )
