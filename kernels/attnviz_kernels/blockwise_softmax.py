"""Online softmax of one row band, with the statistics of its rows kept in the same pass.

Everything is kept relative to the largest score m seen so far, so scores of any size are safe:

    total    l = sum exp(s - m)             entropy  = ln l - t / l
    moment   t = sum exp(s - m) (s - m)     distance = d / l
    reach    d = sum exp(s - m) |p - j|     largest  = exp(m - m) / l

When a tile raises m by x, the sums of before shrink: l becomes l e^-x, and t becomes (t - x l) e^-x. Both terms of the
entropy are positive, so nothing cancels: one visible key gives l = 1 and t = 0, hence exactly 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from .blockwise_tiles import by_group, by_head
from .spec import Call, Statistics, View, accumulator

GONE = -1000.0
"""A difference of scores whose exponential is 0 in every dtype; stands for -inf where -inf * 0 would be NaN."""


@dataclass
class Marks:
    """What the statistics need besides `total`, each [B, H, rows]: sums, and scores at chosen keys."""

    first_keys: list[int]
    moment: Tensor
    reach: Tensor
    largest_key: Tensor
    own: Tensor
    previous: Tensor
    first: Tensor


class Band:
    """The running softmax of a band of rows: give it tiles from left to right, then ask for the results.

    `size` is that of the values, if there is an output to be made; `first_keys`, one a sequence, asks for statistics.
    """

    def __init__(self, call: Call | View, rows: slice, size: int | None, first_keys: list[int] | None) -> None:
        batch, heads, _, _ = call.shape
        self.call, self.rows = call, rows
        like = call.query.new_zeros(batch, heads, rows.stop - rows.start, dtype=accumulator(call.query.dtype))
        self.total = like
        self.peak = torch.full_like(like, -torch.inf)
        self.output = None if size is None else like[..., None].repeat(1, 1, 1, size)
        self.marks = None if first_keys is None else _no_marks(like, first_keys)

    def add(self, score: Tensor, value: Tensor | None, cols: slice) -> None:
        """Take in one tile: its scores [B, H, rows, cols], which are overwritten, and its values [B, G, cols, E]."""
        highest = score.amax(-1)
        if self.marks is not None:
            self._mark_keys(self.marks, score, highest, cols)
        peak = torch.maximum(self.peak, highest)
        base = _base(peak)
        shift = (self.peak - base).clamp_min(GONE)
        shrink = shift.exp()
        score.sub_(base[..., None])
        if self.marks is not None:
            score.clamp_(min=GONE)
            weight = score.exp()
            self.marks.moment = (self.marks.moment + shift * self.total) * shrink + _dot(score, weight)
            self.marks.reach = self.marks.reach * shrink + torch.mul(weight, self._distance(cols), out=score).sum(-1)
        else:
            weight = score.exp_()
        self.peak = peak
        self.total = self.total * shrink + weight.sum(-1)
        if self.output is not None and value is not None:
            mixed = by_group(weight, value.shape[1]) @ value.to(weight.dtype)
            self.output.mul_(shrink[..., None]).add_(by_head(mixed, weight.shape[1]))

    def results(self) -> tuple[Tensor | None, Tensor, Statistics | None]:
        """(output [B, H, rows, E], logsumexp [B, H, rows], statistics) of the finished band."""
        blind = self.peak == -torch.inf
        base, total, moment = self._with_sinks()
        total = total.masked_fill(blind, 1.0)
        largest = (self.peak - base).clamp_min(GONE).exp() / total
        logsumexp = (base + total.log()).masked_fill(blind, -torch.inf)
        output = None if self.output is None else self.output * largest[..., None]
        if self.marks is None:
            return output, logsumexp, None
        marks = self.marks
        numbers = {
            "entropy": total.log() - moment / total,
            "largest": largest,
            "distance": marks.reach * largest,
            "own": (marks.own - base).exp() / total,
            "previous": (marks.previous - base).exp() / total,
            "first": (marks.first - base).exp() / total,
        }
        known = {name: number.masked_fill(blind, torch.nan) for name, number in numbers.items()}
        return output, logsumexp, Statistics(largest_key=marks.largest_key, **known)

    def _with_sinks(self) -> tuple[Tensor, Tensor, Tensor]:
        """The score that sums are relative to, total and moment, with each head's sink as one more outcome."""
        moment = self.total if self.marks is None else self.marks.moment
        if self.call.sinks is None:
            return _base(self.peak), self.total, moment
        sink = self.call.sinks.to(self.total.dtype)[None, :, None]
        base = _base(torch.maximum(self.peak, sink))
        shift, lift = (self.peak - base).clamp_min(GONE), (sink - base).clamp_min(GONE)
        total = self.total * shift.exp() + lift.exp()
        return base, total, (moment + shift * self.total) * shift.exp() + lift * lift.exp()

    def _distance(self, cols: slice) -> Tensor:
        """|p - j| of a tile, [rows, cols]."""
        offset = self.call.mask.offset
        like = self.total
        position = torch.arange(self.rows.start + offset, self.rows.stop + offset, dtype=like.dtype, device=like.device)
        key = torch.arange(cols.start, cols.stop, dtype=like.dtype, device=like.device)
        return (position[:, None] - key).abs_()

    def _mark_keys(self, marks: Marks, score: Tensor, highest: Tensor, cols: slice) -> None:
        _copy_largest(marks.largest_key, score, highest > self.peak, cols)
        ahead = self.rows.start + self.call.mask.offset - cols.start
        for target, diagonal in ((marks.own, ahead), (marks.previous, ahead - 1)):
            _copy_diagonal(target, score, diagonal)
        _copy_first(marks.first, score, marks.first_keys, cols)


def _dot(one: Tensor, other: Tensor) -> Tensor:
    """Sum over the last axis of the product, which is not held."""
    return torch.einsum("bhrc,bhrc->bhr", one, other)


def _no_marks(zeros: Tensor, first_keys: list[int]) -> Marks:
    unseen = torch.full_like(zeros, -torch.inf)
    key = torch.full_like(zeros, -1, dtype=torch.int64)
    return Marks(first_keys, zeros, zeros, key, unseen, unseen.clone(), unseen.clone())


def _base(peak: Tensor) -> Tensor:
    """The score that exponentials are taken relative to: the peak, or 0 where nothing has been seen."""
    return peak.masked_fill(peak == -torch.inf, 0.0)


def _copy_largest(target: Tensor, score: Tensor, improved: Tensor, cols: slice) -> None:
    """target[..., i] = the lowest key with the largest score of row i, in rows that this tile improved.

    First the block of the row, then the key in it: on the CPU, torch's argmax takes ten times as long as its amax.
    """
    width = math.gcd(score.shape[-1], 64)
    blocks = score.view(-1, score.shape[-1] // width, width)  # [B * H * rows, blocks, width]
    rows = improved.flatten().nonzero()[:, 0]
    block = blocks.amax(-1)[rows].argmax(-1)
    target.view(-1)[rows] = cols.start + block * width + blocks[rows, block].argmax(-1)


def _copy_diagonal(target: Tensor, score: Tensor, diagonal: int) -> None:
    """target[..., i] = score[..., i, i + diagonal] for every row whose column lies in the tile."""
    rows, cols = score.shape[-2:]
    if -rows < diagonal < cols:
        found = score.diagonal(diagonal, -2, -1)
        start = max(0, -diagonal)
        target[..., start : start + found.shape[-1]] = found


def _copy_first(target: Tensor, score: Tensor, firsts: list[int], cols: slice) -> None:
    """target[b] = score of the first real key of sequence b, where that key lies in the tile."""
    for batch, first in enumerate(firsts):
        if cols.start <= first < cols.stop:
            target[batch] = score[batch, :, :, first - cols.start]
