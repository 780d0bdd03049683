"""What differs, in diverging colours: blue where it is less, orange where it is more, the middle where it is equal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import pool_edges

from ..errors import UsageError
from ..numbers import shortest
from ..tokens import Token, named
from . import titles
from .axis import TOKENS, fit, position_axis, position_scale
from .grid import head_axis
from .labels import axis_text, parameters
from .legend import around_zero
from .sources import check_columns, check_head
from .theme import AltairChart, themed
from .titles import Title

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from ..head import Head

BLOCKS = 64
"""Block means a side that are drawn of maps larger than that."""
_MARGIN = 150


def difference(
    one: Head,
    other: Head,
    title: Title | None = None,
    top: float | None = None,
    *,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """The other map less the first, cell by cell; beyond 64 tokens block by block, as means. Where the texts differ, a
    label has the token of the first and that of the other: "river/city".

    top is the difference that gets the strongest colours, the largest one if None. UsageError for maps of different
    shapes.
    """
    change = _change(one, other)
    rows, cols = one.shape
    step = fit(cols, _MARGIN, width, most=30, total=620)
    chart = _cells(change, one, other, step, top or change.abs().max().item()).properties(
        title=title or titles.difference(one, other),
        description=f"{_place(other)} less {_place(one)}: {rows} queries down, {cols} keys across.",
        width=step * cols,
        height=step * rows,
    )
    return themed(chart, theme)


def difference_table(one: Head, other: Head) -> pd.DataFrame:
    """The numbers of `difference`, one row a cell: row, column, difference, and from and to where tokens have cells.

    Beyond 64 tokens row and column are the first positions of a block, and difference is its mean. UsageError for maps
    of different shapes.
    """
    import pandas as pd

    change = _change(one, other)
    firsts = [pool_edges(total, count)[:-1] for total, count in zip(one.shape, change.shape, strict=True)]
    rows, cols = ([first for first in firsts[0] for _ in firsts[1]], firsts[1] * len(firsts[0]))
    table = pd.DataFrame({"row": rows, "column": cols, "difference": shortest(change.flatten())})
    if change.shape == one.shape:
        froms, tos = _both(one.rows, other.rows), _both(one.cols, other.cols)
        table.insert(2, "from", [froms[row].label for row in rows])
        table.insert(3, "to", [tos[col].label for col in cols])
    return table


def change_grid(
    table: pd.DataFrame, column: str, title: Title, *, theme: str | None = "screen", width: int | None = None
) -> AltairChart:
    """Layers down, heads across, a column of positive and negative numbers as colour."""
    import altair as alt

    check_columns(table, column)
    top = float(table[column].abs().max())
    step = fit(int(table["head"].max()) + 1, 160, width, most=28, total=700)
    chart = (
        alt.Chart(table[["layer", "head", column]])
        .mark_rect(cursor="pointer", width={"band": 0.94}, height={"band": 0.94}, cornerRadius=2)
        .encode(
            x=alt.X("head:O", axis=head_axis("head", "top", step)),
            y=alt.Y("layer:O", axis=head_axis("layer", "left", step)),
            color=alt.Color(f"{column}:Q", title=column, scale=_scale(top), legend=around_zero(top)),
            tooltip=["layer:O", "head:O", alt.Tooltip(f"{column}:Q", format="+.4f")],
        )
        .properties(
            title=title,
            description=f"Layers by heads, coloured by {column}, blue below zero and orange above.",
            width={"step": step},
            height={"step": step},
        )
    )
    return themed(chart, theme)


def _change(one: Head, other: Head) -> Tensor:
    """[rows, cols] of the difference, or of its block means."""
    check_head(one)
    check_head(other)
    if one.shape != other.shape:
        raise UsageError(f"maps of {_size(one.shape)} and {_size(other.shape)} cannot be subtracted: they must match")
    if max(one.shape) <= TOKENS:
        return torch.nan_to_num(other.weights() - one.weights())
    maps = [torch.nan_to_num(head.pooled((BLOCKS, BLOCKS))) for head in (one, other)]
    return maps[1] - maps[0]


def _both(one: Sequence[Token], other: Sequence[Token]) -> list[Token]:
    """The tokens; at positions where two texts differ, that of the first and that of the second."""
    pairs = zip(one, other, strict=True)
    return [a if a.label == b.label else named([f"{a.label}/{b.label}"])[0] for a, b in pairs]


def _cells(change: Tensor, one: Head, other: Head, step: float, top: float) -> Any:
    import altair as alt
    import pandas as pd

    tall, wide = (total / count for total, count in zip(one.shape, change.shape, strict=True))
    query = torch.arange(change.shape[0]).repeat_interleave(change.shape[1])
    key = torch.arange(change.shape[1]).repeat(change.shape[0])
    data = pd.DataFrame({"query": query, "key": key, "difference": change.flatten().tolist()})
    rows, cols = axis_text(_both(one.rows, other.rows)), axis_text(_both(one.cols, other.cols))
    base = alt.Chart(data).transform_calculate(
        top=f"datum.query * {tall}",
        bottom=f"(datum.query + 1) * {tall}",
        left=f"datum.key * {wide}",
        right=f"(datum.key + 1) * {wide}",
    )
    tooltip = [alt.Tooltip("query:Q"), alt.Tooltip("key:Q"), alt.Tooltip("difference:Q", format="+.4f")]
    if max(one.shape) <= TOKENS:
        base = base.transform_calculate(
            from_token=f"{rows.whole.name}[datum.query]", to_token=f"{cols.whole.name}[datum.key]"
        )
        tooltip[:2] = [alt.Tooltip("from_token:N", title="query"), alt.Tooltip("to_token:N", title="key")]
    marks = base.mark_rect(aria=False).encode(
        x=alt.X(
            "left:Q", scale=position_scale(one.shape[1]), axis=position_axis(cols, "key", one.shape[1], step, "top")
        ),
        x2="right:Q",
        y=alt.Y(
            "top:Q",
            scale=position_scale(one.shape[0], reverse=True),
            axis=position_axis(rows, "query", one.shape[0], step, "left"),
        ),
        y2="bottom:Q",
        color=alt.Color("difference:Q", scale=_scale(top), legend=around_zero(top)),
        tooltip=tooltip,
    )
    return marks.add_params(*parameters(rows, cols)) if max(one.shape) <= TOKENS else marks


def _scale(top: float) -> alt.Scale:
    import altair as alt

    top = top or 1.0
    return alt.Scale(domain=[-top, 0, top], range="category", interpolate="rgb")


def _place(head: Head) -> str:
    return f"layer {head.layer}, head {head.head}"


def _size(shape: tuple[int, int]) -> str:
    return f"{shape[0]} x {shape[1]}"
