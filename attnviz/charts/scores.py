"""What the scaling walkthrough computes with: raw products query . key, and everything the model adds to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from attnviz_kernels import Mask, View
from attnviz_kernels.reference import scores as dense_scores

from ..composed import Stacked
from ..errors import UsageError
from ..numbers import shortest
from ..views import QueryKey

if TYPE_CHECKING:
    import pandas as pd

    from ..head import Head

CELLS = 1 << 12
"""Scores that a chart carries (altair takes 5,000 rows); of longer texts only some queries can be chosen."""
_MULTIPLES = 2.0 ** torch.linspace(-3, 2, 41, dtype=torch.float64)
"""The multiples of the model's own divisor at which entropy is drawn."""


@dataclass(frozen=True)
class Scores:
    """The scores of some queries of a head.

    cells: query, key, raw (query . key), added (bias, additive mask), own (the model's weight), for visible keys only;
    a sink is one more key, with raw 0. curves: query, divisor, entropy (nats).
    """

    rows: tuple[int, ...]
    chosen: int
    view: View
    added: bool
    cells: pd.DataFrame
    curves: pd.DataFrame

    @property
    def divisor(self) -> float:
        """What the model itself divides raw scores by."""
        return 1 / self.view.scale

    @property
    def formula(self) -> str:
        """How weights come from raw scores, in one line."""
        cap, inside = self.view.softcap, "q·k / divisor"
        if cap is not None:
            inside = f"{cap:g} tanh({inside} / {cap:g})"
        if self.added:
            inside += " + bias"
        return f"softmax({inside}{'' if self.view.sinks is None else ', sink'})"


def scores_of(head: Head, query: int | None) -> Scores:
    """The scores of as many queries as a chart can carry, or UsageError where there is no query and key."""
    import pandas as pd

    view, _ = _call(head, 0)
    rows = _rows(head, query)
    found = [(row, *_row(*_call(head, row), head.shape[1])) for row in rows]
    cells = pd.concat([pd.DataFrame({"query": row, **cell}) for row, cell, _ in found], ignore_index=True)
    divisors = (_MULTIPLES / view.scale).tolist()
    curves = [pd.DataFrame({"query": row, "divisor": divisors, "entropy": curve}) for row, _, curve in found]
    words = [row for row in rows if not head.rows[row].special]
    chosen = (words or rows)[-1] if query is None else query
    added = bool((cells["added"][cells["key"] < head.shape[1]] != 0).any())
    return Scores(rows, chosen, view, added, cells, pd.concat(curves, ignore_index=True))


def _call(head: Head, row: int) -> tuple[View, int]:
    """The call that one query was part of, cut down to that query, and the position of its first key."""
    view = head.view.crop(slice(row, row + 1), slice(0, head.shape[1]))
    part, first = (view.parts[0], view.lefts[0]) if isinstance(view, Stacked) else (view, 0)
    if not isinstance(part, QueryKey):
        raise UsageError(
            f"the walkthrough needs query and key: of layer {head.layer} only the weights were recorded"
            f" (by {head.record.rung})"
        )
    if part.view.scale <= 0:
        raise UsageError(f"the walkthrough needs a positive scale, layer {head.layer} has {part.view.scale:g}")
    return part.view, first


def _rows(head: Head, query: int | None) -> tuple[int, ...]:
    """All queries that see a key; of long texts evenly spaced ones and always the one asked for."""
    if head.shape[1] > CELLS:
        raise UsageError(f"the walkthrough shows at most {CELLS:,} keys, this text has {head.shape[1]:,}")
    seeing = [row for row, count in enumerate(head.visible.tolist()) if count > 0]
    if query is not None and query not in seeing:
        raise UsageError(f"query {query} does not exist or sees no key: queries are 0 to {head.shape[0] - 1}")
    if not seeing:
        raise UsageError(f"the walkthrough needs a query that sees a key: layer {head.layer} head {head.head} has none")
    many = max(1, CELLS // head.shape[1])
    if len(seeing) <= many:
        return tuple(seeing)
    spaced = [seeing[round(place)] for place in torch.linspace(0, len(seeing) - 1, many).tolist()]
    return tuple(sorted({*spaced, seeing[-1], *([] if query is None else [query])}))


def _row(one: View, first: int, sink: int) -> tuple[dict[str, Sequence[float]], list[float]]:
    """One query: the columns of `Scores.cells`, with a sink as the key of that number, and its entropy everywhere."""
    full = dense_scores(one)[0, 0, 0].double().cpu()
    keys = (full > -torch.inf).nonzero()[:, 0]
    bare = replace(one, bias=None, mask=Mask())
    raw = dense_scores(replace(bare, scale=1.0, softcap=None))[0, 0, 0].double().cpu()[keys]
    added = (full - dense_scores(bare)[0, 0, 0].double().cpu())[keys] if _adds(one) else torch.zeros_like(raw)
    keys = keys + first
    if one.sinks is not None:
        keys = torch.cat([keys, keys.new_tensor([sink])])
        raw, added = torch.cat([raw, raw.new_zeros(1)]), torch.cat([added, one.sinks.double().cpu()])
    own = _weights(raw, added, one.softcap, torch.tensor([1 / one.scale], dtype=torch.float64))[0]
    curve = _weights(raw, added, one.softcap, _MULTIPLES / one.scale)
    entropies = -torch.xlogy(curve, curve).sum(-1)
    columns = {name: shortest(each.float()) for name, each in (("raw", raw), ("added", added), ("own", own))}
    return {"key": keys.tolist(), **columns}, entropies.tolist()


def _weights(raw: Tensor, added: Tensor, softcap: float | None, divisors: Tensor) -> Tensor:
    """Weights [divisors, keys]."""
    scores = raw / divisors[:, None]
    if softcap is not None:
        scores = softcap * torch.tanh(scores / softcap)
    return torch.softmax(scores + added, dim=-1)


def _adds(view: View) -> bool:
    return view.bias is not None or (view.mask.dense is not None and view.mask.dense.dtype != torch.bool)
