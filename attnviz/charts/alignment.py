"""Two texts word by word: a head's weights as a matrix, and its links as lines, beside gold links where there are any.

Both take the table of `attnviz.analysis.alignment.cells`: target, source, weight, link, gold.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..tokens import Word, named, printable
from .axis import fit, inside, token_axis
from .labels import axis_text, parameters, short
from .legend import between
from .links import column_of, places_of
from .theme import MAP, AltairChart, themed
from .titles import Title

if TYPE_CHECKING:
    import pandas as pd

_MARGIN = 190
"""Pixels that labels, legend and padding take beside the matrix."""
_STEP = 24
"""Pixels from word to word of the links."""


def alignment_matrix(
    table: pd.DataFrame,
    targets: Sequence[Word],
    sources: Sequence[Word],
    title: Title,
    *,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Target words down, source words across, the weight as colour. Dots are the head's links; frames are gold links,
    dashed where they are only possible."""
    import altair as alt

    step = fit(len(sources), _MARGIN, width, most=36, total=700)
    rows, cols = (axis_text(named(_numbered(words))) for words in (targets, sources))
    base = alt.Chart(table).encode(
        x=alt.X("source:O", scale={"domain": list(range(len(sources)))}, axis=token_axis(cols, "source", step, "top")),
        y=alt.Y("target:O", scale={"domain": list(range(len(targets)))}, axis=token_axis(rows, "target", step, "left")),
    )
    named_words = {"from_word": f"{rows.whole.name}[datum.target]", "to_word": f"{cols.whole.name}[datum.source]"}
    tooltip = [
        alt.Tooltip("from_word:N", title="target"),
        alt.Tooltip("to_word:N", title="source"),
        alt.Tooltip("weight:Q", format=".4f"),
        alt.Tooltip("gold:N"),
    ]
    top = float(table["weight"].max()) or 1.0
    scale = alt.Scale(type="sqrt", domain=[0, top], range="heatmap")
    colour = alt.Color("weight:Q", scale=scale, legend=between(0.0, top, root=True))
    weights = base.transform_calculate(**named_words).mark_rect().encode(color=colour, tooltip=tooltip)
    frame: dict[str, Any] = {"style": "second", "filled": False, "strokeWidth": 2.5, "opacity": 1, "tooltip": None}
    frames = [
        base.transform_filter(f"datum.gold === '{kind}'").mark_square(size=(step * 0.78) ** 2, strokeDash=dash, **frame)
        for kind, dash in (("sure", [1, 0]), ("possible", [4, 3]))
    ]
    dots = base.transform_filter("datum.link").mark_circle(
        size=(step * 0.3) ** 2, opacity=1, fill="#ffffff", stroke="#1b1f27", strokeWidth=1.5, tooltip=None
    )
    chart = alt.layer(weights, *frames, dots).properties(
        title=title,
        description=f"{len(targets)} target words down, {len(sources)} source words across.",
        width=step * len(sources),
        height=step * len(targets),
        view={"style": MAP},
    )
    return themed(chart.add_params(*parameters(rows, cols)), theme)


def alignment_links(
    table: pd.DataFrame,
    targets: Sequence[Word],
    sources: Sequence[Word],
    title: Title,
    *,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Target words left, source words right. Broad bands are gold links, pale where they are only possible; lines are
    the head's links, grey and dashed where gold links do not have them."""
    import altair as alt

    left, right = (dict(enumerate(_numbered(words))) for words in (targets, sources))
    longest = sum(max(map(len, side.values())) for side in (left, right))
    scored = bool((table["gold"] != "").any())
    wrong = table["link"] & (table["gold"] == "") if scored else table["link"] & False
    kinds = (
        (table["gold"] == "sure", {"style": "second", "strokeWidth": 9, "opacity": 0.38}),
        (table["gold"] == "possible", {"style": "second", "strokeWidth": 9, "opacity": 0.16}),
        (wrong, {"style": "muted", "strokeWidth": 1.8, "strokeDash": [4, 3]}),
        (table["link"] & ~wrong, {"style": "accent", "strokeWidth": 1.8}),
    )
    ends = places_of(left), places_of(right)
    chart = alt.layer(
        *(_lines(table[chosen], left, right, ends, look) for chosen, look in kinds if chosen.any()),
        column_of(left, ends[0], "target", 0),
        column_of(right, ends[1], "source", 1),
    ).properties(
        title=title,
        description=f"{int(table['link'].sum())} links from {len(targets)} target to {len(sources)} source words.",
        width=160 if width is None else inside(width, 44 + 6 * longest, 60),
        height=_STEP * max(len(left), len(right)),
        view={"stroke": None},
    )
    return themed(chart, theme)


def _numbered(words: Sequence[Word]) -> list[str]:
    """The words with the numbers that gold links call them by; a space that breaks no line needs no sign for it."""
    return [f"{place}\u00a0{short(printable(word.text))}" for place, word in enumerate(words)]


def _lines(
    table: pd.DataFrame,
    left: dict[int, str],
    right: dict[int, str],
    ends: tuple[dict[int, float], dict[int, float]],
    look: dict[str, Any],
) -> Any:
    import altair as alt
    import pandas as pd

    points: list[dict[str, Any]] = []
    for target, source, weight in table[["target", "source", "weight"]].itertuples(index=False):
        link = {"link": len(points), "target": left[target], "source": right[source], "weight": weight}
        points += [{**link, "x": 0, "place": ends[0][target]}, {**link, "x": 1, "place": ends[1][source]}]
    return (
        alt.Chart(pd.DataFrame(points))
        .mark_line(strokeCap="round", **look)
        .encode(
            x=alt.X("x:Q", axis=None, scale={"domain": [0, 1]}),
            y=alt.Y("place:Q", axis=None, scale={"domain": [0, 1], "reverse": True}),
            detail="link:N",
            tooltip=["target:N", "source:N", alt.Tooltip("weight:Q", format=".4f")],
        )
    )
