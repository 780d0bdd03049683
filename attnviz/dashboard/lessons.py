"""What the walkthrough computes: a toy head, masks on and off, shuffled tokens, one head for many."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import Emit, Mask, attend, check, view_of
from attnviz_kernels.reference import scores as dense_scores

from ..analysis import theory
from ..charts.scores import scores_of
from ..errors import UsageError
from ..head import Head, Record
from ..recording import record
from ..tokens import TokenAxis, named
from ..trace import Trace
from ..views import Dense, QueryKey
from .jobs import Job, watched
from .runs import Wanted, twin

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 48
"""Tokens of a text that maps of the walkthrough show."""
DIVISORS = tuple((2.0 ** torch.linspace(-3, 8, 56, dtype=torch.float64)).tolist())

TOY = ("the", "cat", "saw", "the", "dog")
_MEANING = {
    "the": (0.5, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0, 0.0),
    "cat": (0.0, 2.0, 0.5, 0.0, 0.0, 1.5, 0.0, 0.0),
    "saw": (0.0, 0.0, 0.0, 2.5, 0.0, 0.0, 1.0, 0.0),
    "dog": (0.0, 1.8, 0.9, 0.0, 0.0, 0.0, 0.0, 1.5),
}
"""Vectors of eight numbers, made up so that animals find each other."""


@cache
def toy() -> Trace:
    """One layer with two heads of size 4 over five words, whose queries and keys are the words' own vectors."""
    vectors = torch.tensor([_MEANING[word] for word in TOY]).reshape(1, len(TOY), 2, 4).transpose(1, 2)
    call = check(vectors * 2, vectors, vectors, None, Mask(), None, None, None, Emit())
    attended = attend(call.query, call.key, call.value, emit=Emit(statistics=True), backend="reference")
    view = QueryKey(view_of(call, attended))
    kept = Record("toy", 0, "self", "toy", "reference", view, statistics=attended.statistics)
    axis = TokenAxis(named(TOY), slice(0, len(TOY)))
    return Trace("toy", [kept], {"self": (axis,)})


def raw_scores(head: Head, query: int) -> tuple[Tensor, float]:
    """The products query . key of one query with the keys it sees, and the divisor of the model."""
    scores = scores_of(head, query)
    cells = scores.cells[scores.cells["query"] == query]
    return torch.tensor(cells["raw"].tolist(), dtype=torch.float64), scores.divisor


def gradients(head: Head, query: int) -> tuple[pd.DataFrame, float]:
    """Entropy, largest weight and norm of the Jacobian by divisor, and the divisor of the model."""
    raw, divisor = raw_scores(head, query)
    return theory.scaling(raw, sorted({1.0, *DIVISORS, divisor})), divisor


@dataclass(frozen=True)
class Masked:
    """A head with and without a causal mask, and the largest change of the ratio of two weights that stay visible."""

    without: Head
    with_mask: Head
    change: float


def masked(head: Head) -> Masked:
    """The head's own scores, once with every key visible and once with those up to the query."""
    view = _crop(head)
    scores = dense_scores(replace(view, mask=Mask(), bias=None))[0, 0].double()
    everything = torch.ones(scores.shape, dtype=torch.bool)
    back = everything.tril(scores.shape[1] - scores.shape[0])
    free, causal = theory.masked(scores, everything), theory.masked(scores, back)
    first = (causal[:, :1] / causal).where(back, 1.0), (free[:, :1] / free).where(back, 1.0)
    change = ((first[0] - first[1]).abs() / first[1]).nan_to_num(0.0).max().item()
    return Masked(_shown(head, free), _shown(head, causal), change)


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
    return Shuffled(_shown(kept, before), _shown(kept, _back(after, order)))


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
    return Shuffled(_shown(heads[0], heads[0].weights()), _shown(heads[0], _back(heads[1].weights(), order)))


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


def one_or_many(trace: Trace, layer: int) -> pd.DataFrame:
    """Each head of a layer, and one head that reads all their queries and keys as one long vector."""
    view = trace.view(layer)
    if not isinstance(view, QueryKey):
        raise UsageError(f"this needs query and key: of layer {layer} only the weights were recorded")
    query, key = view.view.query[0, :, -1024:].float(), view.view.key[0, :, -1024:].float()
    key = key.repeat_interleave(len(query) // len(key), 0)
    wide = [part.transpose(0, 1).flatten(1) for part in (query, key)]
    return theory.one_head_or_many(wide[0], wide[1], len(query))


def _crop(head: Head) -> Any:
    if not isinstance(head.view, QueryKey):
        raise UsageError(f"this needs query and key: of layer {head.layer} only the weights were recorded")
    rows, cols = (slice(0, min(count, LONGEST)) for count in head.shape)
    return head.view.view.crop(rows, cols)


def _shown(head: Head, weights: Tensor) -> Head:
    """A head with these weights [M, N] over the first tokens of the other."""
    kept = Record("lesson", head.layer, "self", "lesson", "", Dense(weights[None, None].float()))
    axis = TokenAxis(head.rows[: len(weights)], slice(0, len(weights)))
    one = Trace(head.model, [replace(kept, numbers=(head.head,))], {"self": (axis,)})
    return one[head.layer, head.head]
