"""A text in one line with arcs over and under it: above what is known, below what a head answers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .labels import short
from .theme import AltairChart, themed
from .titles import Title

if TYPE_CHECKING:
    import pandas as pd

_LETTER = 7.2
"""Pixels a letter takes, about."""
_SMALL = 5.0
"""Pixels a letter of a relation takes, about."""
_GAP = 12
"""Pixels between words."""
_POINTS = 24
"""Straight pieces of an arc."""
_TALLEST = 120
"""Pixels an arc rises at most."""
_LEGEND = "Above: the annotation. Below: what the head answers, blue where right, grey and dashed where wrong."
_WORD = 15
"""Pixels from the middle of a word to where its arcs begin."""


@dataclass(frozen=True)
class Arc:
    """From one word to another (positions), drawn above or below, with what a tooltip says; right: as it should be.

    The arrow is at `stop`, or at `start` where the arc runs back, and relation stands over it.
    """

    start: int
    stop: int
    about: str
    above: bool = True
    right: bool = True
    relation: str = ""
    back: bool = False


def arcs(
    words: Sequence[str],
    drawn: Sequence[Arc],
    marks: Mapping[int, str] | None = None,
    title: Title = "",
    *,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Words with arcs; marks underlines words and gives each group its colour. Wrong arcs are grey and dashed.

    The text keeps its size, so a long one makes a wide figure; `width` is the least it takes. The words can be clicked
    by a selection over the field word.
    """
    import altair as alt

    over = {_end(arc): arc.relation for arc in drawn}
    places = _places(words, over)
    long = max(width or 0, places[-1][1] + _GAP)
    rise = [_height(places, arc) for arc in drawn]
    top = max((height for height, arc in zip(rise, drawn, strict=True) if arc.above), default=0) + _WORD + 8
    bottom = max((height for height, arc in zip(rise, drawn, strict=True) if not arc.above), default=0) + _WORD + 8
    bottom += 16 if drawn else 0
    x = alt.X("x:Q", axis=None, scale={"domain": [0, long], "nice": False})
    y = alt.Y("y:Q", axis=None, scale={"domain": [-bottom, top], "nice": False})
    layers = [layer for right in (False, True) for layer in _curves(places, drawn, right)]
    chart = alt.layer(
        # words come first: a selection added to layers goes to the first of them
        *_words(words, places, marks or {}, x, y),
        *(layer.encode(x=x, y=y, tooltip="about:N") for layer in layers),
        *(layer.encode(x=x, y=y) for layer in _said(places, drawn, bottom)),
    ).properties(
        title=title,
        description=f"{len(words)} words with {len(drawn)} arcs between them.",
        width=long,
        height=top + bottom,
        view={"stroke": None},
    )
    return themed(chart, theme)


def _end(arc: Arc) -> int:
    """The word that an arc points to."""
    return arc.start if arc.back else arc.stop


def _places(words: Sequence[str], over: Mapping[int, str]) -> list[tuple[float, float]]:
    """Where each word begins and ends, in pixels, with room for what stands over it."""
    places, at = [], float(_GAP)
    for place, word in enumerate(words):
        wide = max(_LETTER * max(len(short(word)), 1), _SMALL * len(short(over.get(place, ""))))
        places.append((at, at + wide))
        at += wide + _GAP
    return places


def _middle(places: Sequence[tuple[float, float]], word: int) -> float:
    return sum(places[word]) / 2


def _height(places: Sequence[tuple[float, float]], arc: Arc) -> float:
    span = abs(_middle(places, arc.start) - _middle(places, arc.stop))
    return min(_TALLEST, 10 + 4.2 * math.sqrt(span))


def _curves(places: Sequence[tuple[float, float]], drawn: Sequence[Arc], right: bool) -> list[Any]:
    """All right or all wrong arcs, and their arrows."""
    import altair as alt
    import pandas as pd

    points = [
        {"arc": index, "x": x, "y": y, "step": step, "about": arc.about}
        for index, arc in enumerate(drawn)
        if arc.right is right
        for step, (x, y) in enumerate(_curve(places, arc))
    ]
    if not points:
        return []
    look: dict[str, Any] = {"style": "accent"} if right else {"style": "muted", "strokeDash": [4, 3]}
    lines = alt.Chart(pd.DataFrame(points)).mark_line(strokeWidth=1.8, strokeCap="round", **look)
    return [lines.encode(detail="arc:N", order="step:Q"), *_arrows(places, drawn, right)]


def _arrows(places: Sequence[tuple[float, float]], drawn: Sequence[Arc], right: bool) -> list[Any]:
    """Where the arcs above and those below point."""
    import altair as alt
    import pandas as pd

    layers = []
    for above, shape in ((True, "triangle-down"), (False, "triangle-up")):
        ends = [
            {
                "x": _middle(places, _end(arc)),
                "y": _WORD if above else -_WORD,
                "about": arc.about,
            }
            for arc in drawn
            if arc.right is right and arc.above is above
        ]
        if ends:
            style = "accent" if right else "muted"
            layers.append(
                alt.Chart(pd.DataFrame(ends)).mark_point(shape=shape, filled=True, size=45, opacity=1, style=style)
            )
    return layers


def _said(places: Sequence[tuple[float, float]], drawn: Sequence[Arc], bottom: float) -> list[Any]:
    """Relations over their arcs, and a line on what arcs mean."""
    import altair as alt
    import pandas as pd

    names = [
        {
            "x": _middle(places, _end(arc)),
            "y": (1 if arc.above else -1) * (_WORD + 12),
            "relation": short(arc.relation),
        }
        for arc in drawn
        if arc.relation
    ]
    said = _LEGEND + (" Arrows above end at the dependent." if names else "")
    texts = alt.Chart(pd.DataFrame(names)).encode(text="relation:N") if names else None
    # twice, so that the arc below does not run through the letters
    layers = [] if texts is None else [texts.mark_text(style=style, fontSize=9) for style in ("ground", "muted")]
    if drawn:
        line = pd.DataFrame([{"x": 0.0, "y": 6 - bottom, "legend": said}])
        layers.append(alt.Chart(line).mark_text(style="muted", align="left").encode(text="legend:N"))
    return layers


def _curve(places: Sequence[tuple[float, float]], arc: Arc) -> list[tuple[float, float]]:
    """Half an ellipse between the middles of two words."""
    start, stop, height = _middle(places, arc.start), _middle(places, arc.stop), _height(places, arc)
    side = 1 if arc.above else -1
    turns = [math.pi * step / _POINTS for step in range(_POINTS + 1)]
    return [
        (start + (stop - start) * (1 - math.cos(turn)) / 2, side * (_WORD + height * math.sin(turn))) for turn in turns
    ]


def _words(words: Sequence[str], places: list[tuple[float, float]], marks: Mapping[int, str], x: Any, y: Any) -> Any:
    import altair as alt

    table = _table(words, places, marks)
    base = alt.Chart(table).transform_calculate(y="0")
    text = base.mark_text(fontSize=13, cursor="pointer").encode(x=x, y=y, text="label:N", tooltip="whole:N")
    if not marks:
        return [text]
    lines = (
        base.transform_filter("datum.group !== null")
        .transform_calculate(low="-10")
        .mark_rule(strokeWidth=3, strokeCap="round")
        .encode(
            x=alt.X("left:Q", axis=None),
            x2="right:Q",
            y=alt.Y("low:Q", axis=None),
            color=alt.Color("group:N", scale={"scheme": "tableau10"}, title="entity", legend={"orient": "bottom"}),
            tooltip="whole:N",
        )
    )
    return [text, lines]


def _table(words: Sequence[str], places: list[tuple[float, float]], marks: Mapping[int, str]) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        {
            "word": range(len(words)),
            "label": [short(word) for word in words],
            "whole": [f"{place} {short(word, 500)}" for place, word in enumerate(words)],
            "x": [_middle(places, place) for place in range(len(words))],
            "left": [begin for begin, _ in places],
            "right": [end for _, end in places],
            "group": [marks.get(place) for place in range(len(words))],
        }
    )
