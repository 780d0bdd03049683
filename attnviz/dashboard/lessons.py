"""What happens when tokens are shuffled, with and without position information."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..analysis import theory
from ..export.lessons import LONGEST, TOY, shown, toy
from ..head import Head
from ..recording import record
from ..views import QueryKey
from .jobs import Job, watched
from .runs import Wanted, twin


@dataclass(frozen=True)
class Shuffled:
    """A head's map before the tokens were shuffled, and after, put back into the first order."""

    before: Head
    after: Head

    @property
    def change(self) -> float:
        """The largest change of a weight between two tokens."""
        return (self.after.weights() - self.before.weights()).abs().max().item()


def shuffled_toy(head: int, positions: bool) -> Shuffled:
    """The toy head; position information is one more number for each place, added to what words mean."""
    kept = toy()[0, head]
    assert isinstance(kept.view, QueryKey)
    query, key = kept.view.view.query[0, 0], kept.view.view.key[0, 0]
    order = order_of(len(TOY))
    place = torch.linspace(-1.5, 1.5, len(TOY))[:, None] * torch.tensor([1.0, 0.5, 0.0, -0.5]) * positions
    before = theory.softmax_row((query + place) @ (key + place).T, 2.0)
    after = theory.softmax_row((query[order] + place) @ (key[order] + place).T, 2.0)
    return Shuffled(shown(kept, before), shown(kept, _back(after, order)))


def shuffled_model(
    model: Any, tokenizer: Any, wanted: Wanted, place: tuple[int, int], positions: bool, job: Job
) -> Shuffled:
    """The model run on the text and on the same tokens in another order, special tokens at the ends staying put.

    Without position information every token is told the same position.
    """
    own = twin(model)
    inputs = tokenizer(wanted.text, return_tensors="pt")
    ids = inputs["input_ids"][:, :LONGEST]
    special = set(tokenizer.all_special_ids)
    fixed = [index for index, token in enumerate(ids[0].tolist()) if token in special]
    order = order_of(ids.shape[1], fixed)
    where = torch.arange(ids.shape[1])[None] * int(positions)
    heads = []
    for given in (ids, ids[:, order]):
        with watched(own, job, "Reading the tokens"), torch.inference_mode(), record(own, tokenizer=tokenizer) as trace:
            own(input_ids=given, position_ids=where)
        trace.model = wanted.model
        heads.append(trace[place])
    return Shuffled(shown(heads[0], heads[0].weights()), shown(heads[0], _back(heads[1].weights(), order)))


def order_of(count: int, fixed: list[int] | None = None) -> list[int]:
    """The positions from 0 in another order, the same every time; fixed ones stay."""
    free = [place for place in range(count) if place not in (fixed or [])]
    drawn = torch.randperm(len(free), generator=torch.Generator().manual_seed(3)).tolist()
    order = list(range(count))
    for place, other in zip(free, drawn, strict=True):
        order[place] = free[other]
    return order


def _back(weights: Tensor, order: list[int]) -> Tensor:
    inverse = torch.tensor(order).argsort()
    return weights[inverse][:, inverse]
