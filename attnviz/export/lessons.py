"""The views of the walkthrough: what division, masks, several heads and long texts do, on any head or on a toy."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import Emit, Mask, View, attend, check, view_of
from attnviz_kernels.reference import scores as dense_scores

from .. import charts
from ..analysis import theory
from ..analysis.sparsity import cost_table
from ..charts import lessons
from ..charts.labels import short
from ..charts.scores import scores_of
from ..charts.theme import AltairChart
from ..errors import UsageError
from ..head import Head, Record
from ..numbers import shortest
from ..tokens import TokenAxis, named, printable
from ..trace import Trace
from ..views import Dense, QueryKey, WeightView
from .data import records

if TYPE_CHECKING:
    import pandas as pd

LONGEST = 48
"""Tokens of a text that maps of the walkthrough show."""
LAST = 1024
"""Tokens at the end of a text over which a single head stands in for several."""
DIVISORS = tuple((2.0 ** torch.linspace(-3, 8, 56, dtype=torch.float64)).tolist())

TOY = ("the", "cat", "saw", "the", "dog")
_MEANING = {
    "the": (0.5, 0.0, 0.0, 0.0, 0.3, 0.0, 0.0, 0.0),
    "cat": (0.0, 2.0, 0.5, 0.0, 0.0, 1.5, 0.0, 0.0),
    "saw": (0.0, 0.0, 0.0, 2.5, 0.0, 0.0, 1.0, 0.0),
    "dog": (0.0, 1.8, 0.9, 0.0, 0.0, 0.0, 0.0, 1.5),
}
"""Vectors of eight numbers, made up so that animals find each other."""
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)
"""Tokens at which costs are told."""


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


def gradients(head: Head, query: int | None = None) -> tuple[pd.DataFrame, float]:
    """Entropy, largest weight and norm of the Jacobian of one query (the last that is no special token if None) by
    divisor, and the divisor of the model."""
    scores = scores_of(head, query)
    cells = scores.cells[scores.cells["query"] == scores.chosen]
    raw = torch.tensor(cells["raw"].tolist(), dtype=torch.float64)
    return theory.scaling(raw, sorted({1.0, *DIVISORS, scores.divisor})), scores.divisor


def gradients_chart(head: Head, query: int | None = None, **look: Any) -> AltairChart:
    """What gets through softmax backwards, by divisor."""
    scores = scores_of(head, query)
    chosen = f"query {scores.chosen} “{short(head.rows[scores.chosen].label)}”"
    bare = "" if scores.formula == "softmax(q·k / divisor)" else "softmax(q·k / divisor) alone"
    return captioned(lessons.gradients(*gradients(head, scores.chosen), **look), of(head), chosen, bare)


def gradients_numbers(head: Head, query: int | None = None) -> dict[str, Any]:
    """The query, the model's own divisor, and one record a divisor."""
    table, divisor = gradients(head, query)
    return {"query": scores_of(head, query).chosen, "divisor": divisor, "divisors": records(table)}


def gradients_table(head: Head, query: int | None = None) -> pd.DataFrame:
    """One row a divisor."""
    return gradients(head, query)[0]


@dataclass(frozen=True)
class Masked:
    """A head with and without a causal mask, and the largest change of the ratio of two weights that stay visible."""

    without: Head
    with_mask: Head
    change: float


def masked(head: Head) -> Masked:
    """The head's own scores, once with every key visible and once with those up to the query; UsageError for
    cross-attention."""
    if head.record.kind == "cross":
        raise UsageError("a causal mask is for tokens of one text: cross-attention has none, choose another kind")
    view = _crop(head)
    scores = dense_scores(replace(view, mask=Mask(), bias=None))[0, 0].double()
    everything = torch.ones(scores.shape, dtype=torch.bool)
    back = everything.tril(scores.shape[1] - scores.shape[0])
    free, causal = theory.masked(scores, everything), theory.masked(scores, back)
    first = (causal[:, :1] / causal).where(back, 1.0), (free[:, :1] / free).where(back, 1.0)
    change = ((first[0] - first[1]).abs() / first[1]).nan_to_num(0.0).max().item()
    return Masked(shown(head, free), shown(head, causal), change)


def mask_chart(head: Head, **look: Any) -> AltairChart:
    """What a causal mask changes."""
    found = masked(head)
    chart = charts.difference(found.without, found.with_mask, "Causal mask less no mask", **look)
    return captioned(chart, of(head), first_of(LONGEST, len(head.rows)))


def mask_table(head: Head) -> pd.DataFrame:
    """One row a cell: the weight without a mask and with it."""
    found = masked(head)
    return cells(without=found.without, causal=found.with_mask)


def cells(**maps: Head) -> pd.DataFrame:
    """One row a cell: its place, and its weight in each of these maps of one shape."""
    import pandas as pd

    one = next(iter(maps.values()))
    query, key = torch.meshgrid(torch.arange(one.shape[0]), torch.arange(one.shape[1]), indexing="ij")
    table = pd.DataFrame({"row": query.flatten(), "column": key.flatten()})
    table["from"] = [one.rows[row].label for row in table["row"]]
    table["to"] = [one.cols[col].label for col in table["column"]]
    return table.assign(**{name: shortest(head.weights().flatten()) for name, head in maps.items()})


def captioned(chart: Any, *parts: str) -> AltairChart:
    """The chart with these parts in front of what its subtitle says; empty ones are left out."""
    title = chart.title if isinstance(chart.title, dict) else {"text": chart.title}
    subtitle = " · ".join(filter(None, (*parts, title.get("subtitle", ""))))
    whole: AltairChart = chart.properties(title={**title, "subtitle": subtitle})
    return whole


def of(head: Head) -> str:
    """Model, layer and head, for a subtitle."""
    return f"{printable(head.model)} · layer {head.layer}, head {head.head}"


def first_of(most: int, count: int) -> str:
    """What a figure says that shows only the first tokens of a text; "" for one that shows all."""
    return f"the first {most} of {count:,} tokens" if count > most else ""


def one_or_many(head: Head) -> pd.DataFrame:
    """Each head of a head's layer, and one head that reads all their queries and keys as one long vector; without a
    mask, of the last `LAST` tokens."""
    whole = head.record.view
    assert whole is not None
    view = _call(head, whole.sequence(head.batch).crop(head.row_axis.valid, head.col_axis.valid))
    query, key = view.query[0, :, -LAST:].float(), view.key[0, :, -LAST:].float()
    key = key.repeat_interleave(len(query) // len(key), 0)
    wide = [part.transpose(0, 1).flatten(1) for part in (query, key)]
    return theory.one_head_or_many(wide[0], wide[1], len(query))


def many_chart(head: Head, **look: Any) -> AltairChart:
    """Several heads, and one in their place."""
    count, chart = len(head.rows), lessons.heads_and_one(one_or_many(head), **look)
    last = f"the last {LAST:,} of {count:,} tokens" if count > LAST else ""
    return captioned(chart, printable(head.model), f"layer {head.layer}", last)


def costs(head: Head) -> pd.DataFrame:
    """What a head of this size takes, by the number of tokens."""
    return cost_table(LENGTHS, head_size=_size(head))


def _size(head: Head) -> int:
    """Numbers of a query; 64 where only weights were kept."""
    return head.view.view.query.shape[-1] if isinstance(head.view, QueryKey) else 64


def cost_chart(head: Head, **look: Any) -> AltairChart:
    """What a map takes, and what is kept in its place."""
    size = f"head size {_size(head)}"
    return captioned(lessons.cost(costs(head), **look), of(head), size)


def _crop(head: Head) -> View:
    rows, cols = (slice(0, min(count, LONGEST)) for count in head.shape)
    return _call(head, head.view).crop(rows, cols)


def _call(head: Head, view: WeightView) -> View:
    """The call behind a view, or UsageError where only weights were kept."""
    if not isinstance(view, QueryKey):
        raise UsageError(f"this needs query and key: of layer {head.layer} only the weights were recorded")
    return view.view


def shown(head: Head, weights: Tensor) -> Head:
    """A head with these weights [M, N] over the first tokens of the other."""
    kept = Record("lesson", head.layer, "self", "lesson", "", Dense(weights[None, None].float()))
    axis = TokenAxis(head.rows[: len(weights)], slice(0, len(weights)))
    one = Trace(head.model, [replace(kept, numbers=(head.head,))], {"self": (axis,)})
    return one[head.layer, head.head]
