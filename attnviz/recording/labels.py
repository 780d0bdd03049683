"""What stands on a recorded map's axes: taken from what the model was given."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..tokens import Token, TokenAxis, named, positions, read_ids


@dataclass
class Given:
    """The inputs of one stack over a run: ids [B, M] and which of them are real [B, M], where they were seen."""

    ids: Tensor | None = None
    real: Tensor | None = None


def axes(given: Given, batch: int, length: int, tokenizer: Any, labels: Sequence[str] | None, text: str | None) -> tuple[TokenAxis, ...]:
    """The labels of each sequence of a batch, for an axis of the given length."""
    return tuple(_axis(given, index, length, tokenizer, labels, text) for index in range(batch))


def _axis(given: Given, index: int, length: int, tokenizer: Any, labels: Sequence[str] | None, text: str | None) -> TokenAxis:
    valid = _valid(given.real, index, length)
    if labels is not None and len(labels) in (length, valid.stop - valid.start):
        start = valid.start if len(labels) != length else 0
        return TokenAxis(_filled(named(labels), start, length), valid)
    if given.ids is None or given.ids.shape[1] != length:
        return TokenAxis(positions(length), valid)
    ids = [int(number) for number in given.ids[min(index, len(given.ids) - 1)]]
    if tokenizer is None:
        return TokenAxis(tuple(Token(number, str(number), str(number)) for number in ids), valid)
    tokens, source = read_ids(tokenizer, ids, text)
    return TokenAxis(tokens, valid, source)


def _filled(tokens: tuple[Token, ...], start: int, length: int) -> tuple[Token, ...]:
    blank = positions(length)
    return (*blank[:start], *tokens, *blank[start + len(tokens) :])


def _valid(real: Tensor | None, index: int, length: int) -> slice:
    if real is None or real.shape[1] != length:
        return slice(0, length)
    where = torch.nonzero(real[min(index, len(real) - 1)])[:, 0]
    return slice(int(where[0]), int(where[-1]) + 1) if len(where) else slice(0, length)
