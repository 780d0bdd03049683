"""Which of a batch's sequences a trace shows: those that `generate` returned, each with its own history."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .parts import Part
from .runs import Run


@dataclass(frozen=True)
class Returned:
    """What `generate` gave back: sequences [R, length] for a number of prompts, and the ids that end a sequence."""

    sequences: Tensor
    prompts: int
    ends: tuple[int, ...] = ()


class Chosen:
    """The sequences [R] that a trace shows of a run.

    rows[k] says which sequences of the run's call k they are; stops where each one's tokens end. Both are None where
    the batch is shown as it was given.
    """

    def __init__(self, run: Run, returned: Returned | None) -> None:
        self.run = run
        found = None if returned is None else find(run, returned)
        self.rows: list[Tensor] | None = None if found is None else found[0]
        self.stops: list[int] | None = None if found is None else found[1]
        if found is None and run.orders:
            self.rows = run.lineage(torch.arange(len(next(iter(run.orders.values()))[-1])), run.step)
        self._as_given = [torch.equal(rows, torch.arange(len(rows))) for rows in self.rows or ()]

    @property
    def count(self) -> int | None:
        """How many sequences; None where it is the batch size."""
        return None if self.rows is None else len(self.rows[0])

    def pick(self, part: Part, count: int | None) -> Part:
        """The part's share of the sequences; a smaller batch, such as an encoder's, serves several of them each."""
        if self.rows is not None:
            rows = self.rows[part.step]
            return part if self._as_given[part.step] and len(rows) == part.batch else part.picked(rows)
        if count is not None and count > part.batch and count % part.batch == 0:
            return part.picked(torch.arange(count) // (count // part.batch))
        return part


def find(run: Run, returned: Returned) -> tuple[list[Tensor], list[int]] | None:
    """(rows, stops) of returned sequences, or None where the run did not make them."""
    sequences = returned.sequences.cpu()
    if sequences.dim() != 2 or sequences.is_floating_point():
        return None
    found = _find(run, sequences, returned)
    first = run.ids[0]
    if found is None and first is not None:  # Whisper returns what follows the prompt
        own = torch.arange(len(sequences)) * first.shape[0] // len(sequences)
        found = _find(run, torch.cat([first.cpu()[own], sequences], 1), returned)
        return None if found is None or max(found[1]) == run.counts[0] else found
    return found


def _find(run: Run, sequences: Tensor, returned: Returned) -> tuple[list[Tensor], list[int]] | None:
    """`find` for sequences that begin with their prompts."""
    prompt = run.counts[0]
    fed = [start + count - run.starts[0] for start, count in zip(run.starts, run.counts, strict=True)]
    paths = []
    for index, sequence in enumerate(sequences):
        own = index * returned.prompts // len(sequences)
        path = _path(run, sequence[: _length(sequence, prompt, returned.ends)], fed, own, returned.prompts)
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


def _path(run: Run, sequence: Tensor, fed: list[int], own: int, prompts: int) -> list[int] | None:
    """A sequence's row in every call that took in its own tokens only, among the rows of its prompt."""
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
        prompt = torch.arange(len(tokens)) * prompts // len(tokens)
        same = (tokens.cpu() == sequence[: fed[step]]).all(1) & (prompt == own)
        if bool(same.any()):
            row = int(same.to(torch.uint8).argmax())
            return [int(rows[row]) for rows in lineage]
    return None
