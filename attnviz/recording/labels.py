"""What stands on a recorded map's axes: taken from what the model was given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ..tokens import Token, TokenAxis, named, positions, read_ids

Labels = Sequence[str] | Mapping[str, Sequence[str]]


@dataclass(frozen=True)
class Given:
    """What one sequence was made of: ids [total] from position `start` on, which are real [total], steps, image grid.

    stop is where the tokens of a returned sequence end.
    """

    total: int
    start: int = 0
    ids: Tensor | None = None
    real: Tensor | None = None
    stop: int | None = None
    steps: tuple[int, ...] | None = None
    grid: tuple[int, int] | None = None


def axis(given: Given, tokenizer: Any, labels: Sequence[str] | None, text: str | None) -> TokenAxis:
    """The labels of one sequence: those a user gave, else tokens, ids, patches or positions."""
    valid = _valid(given)
    if labels is not None:
        return TokenAxis(_named(labels, valid, given.total), valid, steps=given.steps)
    if given.ids is None:
        tokens = positions(given.total) if given.grid is None else patches(given.grid, given.total)
        return TokenAxis(tokens, valid, None, given.grid, given.steps)
    ids = [int(number) for number in given.ids]
    tokens, source = _read(ids, tokenizer, text)
    return TokenAxis((*positions(given.start), *tokens), valid, source, None, given.steps)


def side_labels(labels: Labels | None, side: str) -> Sequence[str] | None:
    """The labels a user gave for one side: a mapping names sides, a plain sequence is for all of them."""
    return labels.get(side) if isinstance(labels, Mapping) else labels


def patches(grid: tuple[int, int], total: int) -> tuple[Token, ...]:
    """Labels "row,column" of image patches, after the tokens that a model puts before them."""
    height, width = grid
    extra = total - height * width
    if extra < 0:
        return positions(total)
    first = [Token(None, name, name, special=True) for name in ("[CLS]", *(f"[extra {k}]" for k in range(1, extra)))]
    cells = [f"{row},{column}" for row in range(height) for column in range(width)]
    return (*first[:extra], *named(cells))


def _read(ids: list[int], tokenizer: Any, text: str | None) -> tuple[tuple[Token, ...], str | None]:
    if tokenizer is None:
        return tuple(Token(number, str(number), str(number)) for number in ids), None
    return read_ids(tokenizer, ids, text)


def _named(labels: Sequence[str], valid: slice, total: int) -> tuple[Token, ...]:
    if len(labels) == total:
        return named(labels)
    if len(labels) != valid.stop - valid.start:
        raise UsageError(f"tokens= must have one label for each of the {total} tokens, got {len(labels)}")
    blank = positions(total)
    return (*blank[: valid.start], *named(labels), *blank[valid.stop :])


def _valid(given: Given) -> slice:
    stop = given.total if given.stop is None else min(given.stop, given.total)
    if given.real is None:
        return slice(0, stop)
    where = torch.nonzero(given.real[:stop])[:, 0]
    return slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, stop)
