"""What a stack of layers was given, call after call, and which of a beam search's sequences continued which."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from torch import Tensor


@dataclass
class Run:
    """The calls of one stack that belong together: a prefill and the steps that continue it.

    starts, ids and masks have one entry a call: the position of its first token, its ids [B, M] and its attention
    mask [B, N], where they were seen. orders[k] are the reorderings [B] of the batch between calls k - 1 and k.
    """

    starts: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    ids: list[Tensor | None] = field(default_factory=list)
    masks: list[Tensor | None] = field(default_factory=list)
    orders: dict[int, list[Tensor]] = field(default_factory=dict)
    grid: tuple[int, int] | None = None

    @property
    def step(self) -> int:
        """The number of the latest call, from zero."""
        return len(self.starts) - 1

    def add(self, start: int, count: int, ids: Tensor | None, mask: Tensor | None) -> None:
        """One more call."""
        self.starts.append(start)
        self.counts.append(count)
        self.ids.append(ids)
        self.masks.append(mask)

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
