"""The strongest links of one head as curves between two columns of tokens: queries left, keys right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import TOKENS, inside
from .heatmap import heading
from .labels import numbered, short, tooltips
from .sources import check_head
from .theme import AltairChart, themed

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd

    from ..head import Head
    from ..tokens import Token

LINKS = 40
"""Links of a figure where no number is given."""
_MARGIN = 44
"""Pixels that padding and gaps take beside tokens and curves."""
_STEP = 17
"""Pixels from token to token."""
_BEND = (0.0, 0.35, 0.65, 1.0)
"""Where the points of a curve stand between the columns: two at the query's height, two at the key's."""


def links(head: Head, count: int = LINKS, *, theme: str | None = "screen", width: int | None = None) -> AltairChart:
    """The `count` strongest links; the stronger, the wider and the more opaque.

    Beyond 64 tokens only those that a link touches are listed, with their positions.
    """
    import altair as alt

    check_head(head)
    table = head.links(count)
    left, right = _listed(table["row"], head.rows), _listed(table["column"], head.cols)
    shown = f"{len(table)} strongest of {head.shape[0] * head.shape[1]:,} links{_between(table['weight'])}"
    title = heading(head)
    tall = max(len(left), len(right))
    chart = alt.layer(
        _curves(head, table, places_of(left), places_of(right)),
        column_of(left, places_of(left), "query", 0),
        column_of(right, places_of(right), "key", 1),
    )
    chart = chart.properties(
        title={**title, "subtitle": f"{title['subtitle']} · {shown}"},
        description=f"Layer {head.layer}, head {head.head}: {shown}, as curves from query to key.",
        width=240 if width is None else inside(width, _MARGIN + 6 * sum(map(_longest, (left, right))), 60),
        height=_STEP * tall,
        view={"stroke": None},
    )
    return themed(chart, theme)


def _between(weights: pd.Series[float]) -> str:
    """The ends of the weights that are drawn, since no legend says what widths mean."""
    digits = ".2f" if weights.max() >= 0.1 else ".1e"
    return f": {weights.min():{digits}} to {weights.max():{digits}}" if len(weights) else ""


def _listed(touched: pd.Series[int], tokens: Sequence[Token]) -> dict[int, str]:
    """The positions that a column lists, in order, with their labels."""
    if len(tokens) <= TOKENS:
        return {position: short(token.label) for position, token in enumerate(tokens)}
    return {position: numbered(position, tokens[position]) for position in sorted({*touched.tolist()})}


def _longest(listed: dict[int, str]) -> int:
    return max(len(label) for label in listed.values())


def places_of(listed: dict[int, str]) -> dict[int, float]:
    """How far down each position stands, as a share of the height: both columns fill it."""
    return {position: (place + 0.5) / len(listed) for place, position in enumerate(listed)}


def _curves(head: Head, table: pd.DataFrame, left: dict[int, float], right: dict[int, float]) -> Any:
    import altair as alt
    import pandas as pd

    queries, keys = tooltips(head.rows), tooltips(head.cols)
    points: list[dict[str, Any]] = []
    for rank, (row, col, weight) in enumerate(zip(table["row"], table["column"], table["weight"], strict=True)):
        ends = (left[row], left[row], right[col], right[col])
        link = {"rank": rank, "query": queries[row], "key": keys[col], "weight": weight}
        points += [{**link, "x": x, "place": place} for x, place in zip(_BEND, ends, strict=True)]
    return (
        alt.Chart(pd.DataFrame(points, columns=["rank", "query", "key", "weight", "x", "place"]))
        .mark_line(interpolate="basis", strokeCap="round", style="accent")
        .encode(
            x=alt.X("x:Q", axis=None, scale={"domain": [0, 1]}),
            y=alt.Y("place:Q", axis=None, scale={"domain": [0, 1], "reverse": True}),
            detail="rank:N",
            strokeWidth=alt.StrokeWidth("weight:Q", scale=alt.Scale(domain=[0, 1], range=[0.5, 4]), legend=None),
            opacity=alt.Opacity("weight:Q", scale=alt.Scale(type="sqrt", domain=[0, 1], range=[0.1, 1]), legend=None),
            tooltip=["query:N", "key:N", alt.Tooltip("weight:Q", format=".4f")],
        )
    )


def column_of(listed: dict[int, str], places: dict[int, float], title: str, side: int) -> Any:
    """A column of labels under its title, on the left (side 0) or on the right (1)."""
    import altair as alt
    import pandas as pd

    beside: dict[str, Any] = {"align": "left", "dx": 6} if side else {"align": "right", "dx": -6}
    data = pd.DataFrame({"place": list(places.values()), "label": list(listed.values()), "x": side})
    above = pd.DataFrame([{"place": 0, "label": title, "x": side}])
    texts = (
        alt.Chart(data).mark_text(**beside),
        alt.Chart(above).mark_text(**beside, dy=-12, style="muted"),
    )
    return alt.layer(*(text.encode(x="x:Q", y="place:Q", text="label:N", tooltip=alt.value(None)) for text in texts))
