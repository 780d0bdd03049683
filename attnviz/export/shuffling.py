"""The view of the walkthrough that reads other texts: what shuffling tokens changes, with and without positions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .. import charts
from ..analysis import theory
from ..charts.theme import AltairChart, themed
from ..errors import UsageError
from ..head import Head
from ..recording import record
from ..views import QueryKey
from .lessons import LONGEST, TOY, captioned, cells, first_of, of, shown, toy

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Shuffled:
    """A head's map before the tokens were shuffled, and after, put back into the first order."""

    before: Head
    after: Head

    @property
    def change(self) -> float:
        """The largest change of a weight between two tokens."""
        return (self.after.weights() - self.before.weights()).abs().max().item()


Both = tuple[Shuffled, Shuffled]
"""With position information, and without."""
HOW = ("with", "without")


def shuffled_toy(head: int) -> Both:
    """The toy head; position information is one more number for each place, added to what words mean."""
    return _toy(head, True), _toy(head, False)


def _toy(head: int, positions: bool) -> Shuffled:
    kept = toy()[0, head]
    assert isinstance(kept.view, QueryKey)
    query, key = kept.view.view.query[0, 0], kept.view.view.key[0, 0]
    order = order_of(len(TOY))
    place = torch.linspace(-1.5, 1.5, len(TOY))[:, None] * torch.tensor([1.0, 0.5, 0.0, -0.5]) * positions
    before = theory.softmax_row((query + place) @ (key + place).T, 2.0)
    after = theory.softmax_row((query[order] + place) @ (key[order] + place).T, 2.0)
    return Shuffled(shown(kept, before), shown(kept, _back(after, order)))


def shuffled(model: Any, tokenizer: Any, text: str, place: tuple[int, int], name: str = "model") -> Both:
    """One head (layer, head) of a model run on a text and on the same tokens in another order, special tokens staying
    put; name is what figures call the model.

    Without position information every token is told the same position. UsageError for encoder-decoder models.
    """
    if model.config.is_encoder_decoder:
        raise UsageError("tokens are shuffled for models of one text: give an encoder or a decoder")
    ids = tokenizer(text, return_tensors="pt")["input_ids"][:, :LONGEST].to(model.device)
    special = set(tokenizer.all_special_ids)
    fixed = [index for index, token in enumerate(ids[0].tolist()) if token in special]
    order = order_of(ids.shape[1], fixed)

    def read(given: Tensor, positions: bool) -> Head:
        where = torch.arange(ids.shape[1], device=model.device)[None] * int(positions)
        with torch.inference_mode(), record(model, tokenizer=tokenizer, text=text) as trace:
            model(input_ids=given, position_ids=where)
        trace.model = name
        return trace[place]

    def one(positions: bool) -> Shuffled:
        before, after = read(ids, positions), read(ids[:, order], positions)
        return Shuffled(shown(before, before.weights()), shown(before, _back(after.weights(), order)))

    return one(True), one(False)


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


def order_title(how: str) -> str:
    """Of one of the two differences."""
    return f"Shuffled less before, {how} positions"


def order_chart(head: Head, shuffled: Both, *, theme: str | None = "screen", width: int | None = None) -> AltairChart:
    """Both differences in the same colours, one below the other."""
    import altair as alt

    top = max(0.01, *(found.change for found in shuffled))
    panels: list[Any] = [
        charts.difference(found.before, found.after, f"{how} positions".capitalize(), top, theme=None, width=width)
        for how, found in zip(HOW, shuffled, strict=True)
    ]
    about = f"What shuffling the tokens changes in layer {head.layer}, head {head.head}, with and without positions."
    chart = alt.vconcat(*panels).properties(title="Shuffled less before", description=about)
    return themed(captioned(chart, of(head), first_of(LONGEST, len(head.rows))), theme)


def order_table(head: Head, shuffled: Both) -> pd.DataFrame:
    """One row a cell: the weight before and after shuffling, with and without positions."""
    import pandas as pd

    pairs = zip(HOW, shuffled, strict=True)
    tables = [cells(before=found.before, after=found.after).assign(positions=how) for how, found in pairs]
    return pd.concat(tables, ignore_index=True)
