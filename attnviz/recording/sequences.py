"""Which of a batch's sequences a trace shows: those that `generate` returned, each with its own history."""

from __future__ import annotations

import torch
from torch import Tensor

from .parts import Part
from .runs import Run


class Chosen:
    """The sequences [R] that a trace shows of a run.

    rows[k] says which sequences of the run's call k they are; stops where each one's tokens end. Both are None where
    the batch is shown as it was given.
    """

    def __init__(self, run: Run, sequences: Tensor | None, ends: tuple[int, ...]) -> None:
        self.run = run
        found = None if sequences is None else find(run, sequences.cpu(), ends)
        self.rows: list[Tensor] | None = None if found is None else found[0]
        self.stops: list[int] | None = None if found is None else found[1]
        if found is None and run.orders:
            self.rows = run.lineage(torch.arange(len(next(iter(run.orders.values()))[-1])), run.step)

    @property
    def count(self) -> int | None:
        """How many sequences; None where it is the batch size."""
        return None if self.rows is None else len(self.rows[0])

    def pick(self, part: Part, count: int | None) -> Part:
        """The part's share of the sequences; a smaller batch, such as an encoder's, serves several of them each."""
        if self.rows is not None:
            return part.picked(self.rows[part.step])
        if count is not None and count > part.batch and count % part.batch == 0:
            return part.picked(torch.arange(count) // (count // part.batch))
        return part


def find(run: Run, sequences: Tensor, ends: tuple[int, ...]) -> tuple[list[Tensor], list[int]] | None:
    """(rows, stops) of returned sequences [R, length], or None where the run did not make them.

    ends are the ids after which a sequence is over; what follows them is filling.
    """
    prompt = run.counts[0]
    fed = [start + count - run.starts[0] for start, count in zip(run.starts, run.counts, strict=True)]
    paths = []
    for sequence in sequences:
        path = _path(run, sequence[: _length(sequence, prompt, ends)], fed)
        if path is None:
            return None
        paths.append(path)
    calls = range(len(run.starts))
    rows = [torch.tensor([path[min(call, len(path) - 1)] for path in paths]) for call in calls]
    return rows, [fed[len(path) - 1] for path in paths]


def _length(sequence: Tensor, prompt: int, ends: tuple[int, ...]) -> int:
    """How many tokens of a returned sequence are its own."""
    over = torch.isin(sequence[prompt:], torch.tensor(ends, dtype=sequence.dtype))
    return prompt + int(over.to(torch.uint8).argmax()) + 1 if bool(over.any()) else len(sequence)


def _path(run: Run, sequence: Tensor, fed: list[int]) -> list[int] | None:
    """Its row in every call that took in its own tokens only."""
    for step in range(len(fed) - 1, -1, -1):
        ids = run.ids[step]
        if ids is None:
            return None
        if fed[step] > len(sequence):
            continue
        lineage = run.lineage(torch.arange(ids.shape[0]), step)
        tokens = run.tokens(lineage)
        if tokens is None:
            return None
        same = (tokens.cpu() == sequence[: fed[step]]).all(1)
        if bool(same.any()):
            row = int(same.to(torch.uint8).argmax())
            return [int(rows[row]) for rows in lineage]
    return None
