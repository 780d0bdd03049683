"""The exact numbers behind each view: as a document for JSON and as a table for CSV.

Numbers have the fewest digits that give back the same float32. What is not a number (rows that see no key) is null in
JSON and empty in CSV.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import pool_edges

from ..charts.links import LINKS
from ..charts.scores import scores_of
from ..charts.thumbnails import BLOCKS
from ..errors import BudgetError
from ..head import Head
from ..numbers import shortest
from ..tokens import Token
from ..trace import Trace

if TYPE_CHECKING:
    import pandas as pd

CELLS = 1 << 22
"""Weights that json and csv hold at most: a map of 2,048 x 2,048."""

_NAMES = {"query": "row", "key": "column"}
"""Positions are called row and column in every table."""


def place(source: Trace | Head) -> dict[str, Any]:
    """Model and, for a head, layer and head."""
    here = {"model": source.model}
    return {**here, "layer": source.layer, "head": source.head} if isinstance(source, Head) else here


def about(view: str, source: Trace | Head) -> dict[str, Any]:
    """What a document starts with: who wrote it, what it shows, and the tokens."""
    from .. import __version__

    start = {"attnviz": __version__, "view": view, **place(source)}
    if isinstance(source, Head):
        start |= {"altered": source.altered} if source.altered else {}
        return {**start, "queries": _tokens(source.rows), "keys": _tokens(source.cols)}
    return {**start, "tokens": _tokens(source.tokens)}


def _tokens(tokens: tuple[Token, ...]) -> list[dict[str, Any]]:
    return [
        {"position": position, "id": token.id, "token": token.raw, "text": token.text, "label": token.label}
        for position, token in enumerate(tokens)
    ]


def heatmap(head: Head) -> dict[str, Any]:
    """Weights as one list a query."""
    return {"weights": _nested(_weights(head))}


def heatmap_table(head: Head) -> pd.DataFrame:
    """One row a cell: row, column, from, to, weight."""
    import pandas as pd

    weights = _weights(head)
    rows, cols = head.shape
    query, key = torch.arange(rows).repeat_interleave(cols), torch.arange(cols).repeat(rows)
    froms, tos = [token.label for token in head.rows], [token.label for token in head.cols]
    return pd.DataFrame(
        {
            "row": query,
            "column": key,
            "from": [label for label in froms for _ in range(cols)],
            "to": tos * rows,
            "weight": shortest(weights),
        }
    )


def _weights(head: Head) -> Tensor:
    count = head.shape[0] * head.shape[1]
    if count > CELLS:
        raise BudgetError(
            f"json, csv and parquet hold at most {CELLS:,} weights, this map has {count:,}: export a shorter text,"
            " or take the weights as tiles with head.weights(rows=...)"
        )
    return head.weights()


def heads(trace: Trace, table: pd.DataFrame | None = None) -> dict[str, Any]:
    """One record a head."""
    return {"heads": records(heads_table(trace, table))}


def heads_table(trace: Trace, table: pd.DataFrame | None = None) -> pd.DataFrame:
    """The table of heads, or the one that stands in for it."""
    return trace.heads() if table is None else table.copy()


def entropy(source: Trace | Head) -> dict[str, Any]:
    """One record a head, or one number a query."""
    if isinstance(source, Trace):
        return heads(source)
    return {"entropy": _finite(shortest(source.entropy)), "visible_keys": source.visible.tolist()}


def entropy_table(source: Trace | Head) -> pd.DataFrame:
    """The table of heads, or one row a query."""
    import pandas as pd

    if isinstance(source, Trace):
        return source.heads()
    labels = [token.label for token in source.rows]
    numbers = {"entropy": shortest(source.entropy), "visible_keys": source.visible.tolist()}
    return pd.DataFrame({"row": range(len(labels)), "from": labels, **numbers})


def links(head: Head, count: int = LINKS) -> dict[str, Any]:
    """One record a link."""
    return {"links": records(head.links(count))}


def links_table(head: Head, count: int = LINKS) -> pd.DataFrame:
    """One row a link."""
    return head.links(count)


def thumbnails(trace: Trace) -> dict[str, Any]:
    """Block means of every head's map, and the first row and column of each block."""
    maps = [
        {
            **place(head),
            **{
                name: pool_edges(count, BLOCKS)[:-1]
                for name, count in zip(("rows", "columns"), head.shape, strict=True)
            },
            "means": _nested(head.pooled((BLOCKS, BLOCKS))),
        }
        for head in trace.every_head()
    ]
    return {"maps": [{name: value for name, value in each.items() if name != "model"} for each in maps]}


def thumbnails_table(trace: Trace) -> pd.DataFrame:
    """One row a block: layer, head, its first row and column, mean."""
    import pandas as pd

    return pd.concat([_blocks(head) for head in trace.every_head()], ignore_index=True)


def _blocks(head: Head) -> pd.DataFrame:
    import pandas as pd

    means = head.pooled((BLOCKS, BLOCKS))
    down, across = (torch.tensor(pool_edges(count, BLOCKS)[:-1]) for count in head.shape)
    query, key = down.repeat_interleave(len(across)), across.repeat(len(down))
    numbers = {"row": query, "column": key, "mean": shortest(means)}
    return pd.DataFrame({"layer": head.layer, "head": head.head, **numbers})


def scaling(head: Head, query: int | None = None) -> dict[str, Any]:
    """The query shown first, raw scores and the model's weights, the divisor, and the entropy at other divisors."""
    scores = scores_of(head, query)
    return {
        "query": scores.chosen,
        "divisor": scores.divisor,
        "formula": scores.formula,
        "scores": records(scores.cells.rename(columns=_NAMES)),
        "curves": records(scores.curves.rename(columns=_NAMES)),
    }


def scaling_table(head: Head, query: int | None = None) -> pd.DataFrame:
    """One row per query and visible key."""
    return scores_of(head, query).cells.rename(columns=_NAMES)


def as_records(name: str, table: Callable[..., pd.DataFrame]) -> Callable[..., dict[str, Any]]:
    """The document of a view whose numbers are a table: its rows as records under that name."""
    return lambda *given, **choice: {name: records(table(*given, **choice))}


def _nested(values: Tensor) -> list[list[float | None]]:
    return [_finite(shortest(row)) for row in values]


def _finite(values: list[float]) -> list[float | None]:
    return [value if math.isfinite(value) else None for value in values]


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows as dictionaries of plain Python values."""
    columns = {str(name): table[name].tolist() for name in table}
    clean = {name: [None if value != value else value for value in column] for name, column in columns.items()}
    return [dict(zip(clean, row, strict=True)) for row in zip(*clean.values(), strict=True)]
