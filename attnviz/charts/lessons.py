"""The figures of the walkthrough beside the scaling chart: gradients that vanish, several heads, and what maps cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .axis import inside
from .grid import head_axis
from .theme import AltairChart, themed

if TYPE_CHECKING:
    import pandas as pd

_HEIGHT = 150
_MARGIN = 90
_ONE_HEAD = "orange: one head as wide as all · without a mask"
SIZES = ("map in bytes", "query, key and logsumexp in bytes")
"""The columns of a table of costs that are sizes."""


def gradients(
    table: pd.DataFrame, divisor: float, *, theme: str | None = "screen", width: int | None = None
) -> AltairChart:
    """Norm of the softmax Jacobian and largest weight over the divisor; lines mark no division and the model's own."""
    import altair as alt
    import pandas as pd

    axis = {"tickCount": 6, "format": "~g"}
    x = alt.X("divisor:Q", title="divisor", scale={"type": "log", "nice": False}, axis=axis)
    marks = alt.Chart(pd.DataFrame({"divisor": [1.0, divisor], "name": ["not divided", "the model's own"]}))
    panels = []
    for column, title in (("jacobian", "size of the softmax Jacobian"), ("largest", "largest weight")):
        y = alt.Y(f"{column}:Q", title=title, scale={"domainMin": 0}, axis={"grid": True, "tickCount": 4})
        tooltip = [alt.Tooltip("divisor:Q", format=".3g"), alt.Tooltip(f"{column}:Q", format=".3g")]
        line = alt.Chart(table).mark_line(style="accent", strokeWidth=2).encode(x=x, y=y, tooltip=tooltip)
        rules = marks.mark_rule(style="second", strokeWidth=2).encode(x=x, tooltip=["name:N", "divisor:Q"])
        panels.append(alt.layer(rules, line).properties(width=_inside(width), height=_HEIGHT))
    chart = alt.vconcat(*panels).properties(
        title={"text": "What gets through softmax backwards", "subtitle": "orange: not divided, and the model's own"},
        description="Norm of the softmax Jacobian and largest weight by divisor.",
    )
    return themed(chart, theme)


def heads_and_one(table: pd.DataFrame, *, theme: str | None = "screen", width: int | None = None) -> AltairChart:
    """Entropy of each of several heads as bars, and that of one head over the same numbers as a line."""
    import altair as alt

    several, one = table[table["head"] >= 0], table[table["head"] < 0]
    across = _inside(width)
    y = alt.Y("entropy:Q", title="mean entropy (nats)", axis={"grid": True, "tickCount": 5})
    tooltip = [
        alt.Tooltip("head:O"),
        alt.Tooltip("entropy:Q", format=".3f"),
        alt.Tooltip("largest:Q", format=".3f", title="mean largest weight"),
    ]
    bars = (
        alt.Chart(several)
        .mark_bar(style="accent")
        .encode(x=alt.X("head:O", axis=head_axis("head", "bottom", across / len(several))), y=y, tooltip=tooltip)
    )
    line = alt.Chart(one).mark_rule(style="second", strokeWidth=2).encode(y=y, tooltip=tooltip[1:])
    chart = alt.layer(bars, line).properties(
        title={
            "text": f"{len(several)} heads, and one in their place",
            "subtitle": _ONE_HEAD,
        },
        description="Mean entropy of each head, and of a single head over the same queries and keys.",
        width=across,
        height=240,
    )
    return themed(chart, theme)


def cost(table: pd.DataFrame, *, theme: str | None = "screen", width: int | None = None) -> AltairChart:
    """Bytes of one head's whole map and of what is kept instead, by the number of tokens, both on log scales."""
    import altair as alt

    long = table.melt("tokens", SIZES, "what", "bytes")
    base = alt.Chart(long).encode(
        x=alt.X("tokens:Q", scale={"type": "log", "base": 2, "nice": False}, axis=_thousands(table)),
        y=alt.Y("bytes:Q", scale={"type": "log"}, axis={"grid": True, "format": "~s", "tickCount": 6}),
        tooltip=["what:N", "tokens:Q", alt.Tooltip("bytes:Q", format=".3s")],
    )
    layers: list[Any] = []
    for what, style in zip(SIZES, ("second", "accent"), strict=True):
        part = base.transform_filter(alt.datum.what == what)
        layers += [part.mark_line(style=style, strokeWidth=2), part.mark_circle(style=style, size=50, opacity=1)]
        end = part.transform_filter(alt.datum.tokens == int(table["tokens"].max()))
        layers.append(end.mark_text(text=what.removesuffix(" in bytes"), align="right", dx=4, dy=-16, style=style))
    chart = alt.layer(*layers).properties(
        title="What one head takes, in bytes",
        description="Bytes of the whole map and of query, key and logsumexp, by the number of tokens.",
        width=_inside(width),
        height=260,
    )
    return themed(chart, theme)


def _thousands(table: pd.DataFrame) -> Any:
    """An axis of token counts, in multiples of 1,024."""
    return {"values": table["tokens"].tolist(), "labelExpr": "datum.value / 1024 + 'k'"}


def _inside(width: int | None) -> float:
    return inside(600 if width is None else width, _MARGIN, 120)
