"""What a stack of layers was given, call after call, and which of a beam search's sequences continued which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

GivenMask = tuple[int, Tensor]
"""The position of a first key, and which keys [B, N] from there on are real."""


@dataclass
class Run:
    """The calls of one stack that belong together: a prefill and the steps that continue it.

    starts, ids and masks have one entry a call: the position of its first token, its ids [B, M] and what it said about
    padding, where they were seen. orders[k] are the reorderings [B] of the batch between calls k - 1 and k.
    """

    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ids: list[Tensor | None] = field(default_factory=list)
    masks: list[GivenMask | None] = field(default_factory=list)
    orders: dict[int, list[Tensor]] = field(default_factory=dict)
    grid: tuple[int, int] | None = None

    @property
    def step(self) -> int:
        """The number of the latest call, from zero."""
        return len(self.starts) - 1

    def add(self, start: int, count: int, ids: Tensor | None, mask: GivenMask | None) -> None:
        """One more call."""
        self.starts.append(start)
        self.counts.append(count)
        self.ids.append(ids)
        self.masks.append(mask)

    def complete(self, around: Run) -> None:
        """Take what was not seen, because the tokens came embedded, from the run of the model around this stack."""
        if around.counts == self.counts:
            self.ids = [own if own is not None else other for own, other in zip(self.ids, around.ids, strict=True)]
            self.masks = [own if own else other for own, other in zip(self.masks, around.masks, strict=True)]

    def real(self, total: int) -> Tensor | None:
        """[B, total]: which tokens are real, by the latest mask that says so: a window's holds few keys."""
        given = [mask for mask in self.masks if mask is not None]
        if not given:
            return None
        whole = given[-1][1].new_ones(len(given[-1][1]), total, dtype=torch.bool)
        for start, mask in given:
            if len(mask) == len(whole):
                whole[:, start : start + mask.shape[1]] = mask[:, : max(0, total - start)]
        return whole

    def reorder(self, rows: Tensor) -> None:
        """The batch was put into another order before the next call."""
        self.orders.setdefault(len(self.starts), []).append(rows.detach().cpu())

    def lineage(self, last: Tensor, step: int) -> list[Tensor]:
        """For each call up to `step`, which of its sequences those of call `step` given by `last` [R] came from."""
        rows = [last]
        for call in range(step, 0, -1):
            above = rows[-1]
            for order in reversed(self.orders.get(call, [])):
                above = order[above]
            rows.append(above)
        return rows[::-1]

    def tokens(self, lineage: Sequence[Tensor]) -> Tensor | None:
        """[R, M]: the ids of whole sequences up to the lineage's last call, or None where some were not seen."""
        last = len(lineage) - 1
        whole = lineage[0].new_zeros(len(lineage[0]), self.starts[last] + self.counts[last] - self.starts[0])
        for start, ids, rows in zip(self.starts, self.ids, lineage, strict=False):
            if ids is None:
                return None
            place = slice(start - self.starts[0], start - self.starts[0] + ids.shape[1])
            piece = (ids if ids.shape[0] > 1 else ids.expand(int(rows.max()) + 1, -1))[rows]
            whole[:, place] = piece[:, : whole.shape[1] - place.start]
        return whole
