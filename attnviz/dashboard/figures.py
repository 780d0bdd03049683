"""Charts on a page: in the page's own colours and font, and clickable."""

from __future__ import annotations

from collections.abc import Callable
from html import escape
from typing import TYPE_CHECKING, Any

import altair as alt
import streamlit as st

if TYPE_CHECKING:
    import pandas as pd

    from ..head import Head

FONT = '"Source Sans", sans-serif'
"""Of the page, so that charts match it; exported charts have their own."""
PADDING = dict.fromkeys(("left", "top", "right", "bottom"), 2)


WINDOW = "attnviz-window"
"""The cookie in which the page says how wide its window is when it opens, in pixels."""
PHONE = 640
"""Pixels up to which the parts of a page stand below each other."""
SIDES = 32
"""Pixels that a phone's page leaves free at its sides."""
LEGEND = 90
"""Pixels for a legend that stands below on phones."""
SMALLEST = 10
"""Pixels of the smallest letters."""


def room() -> int | None:
    """Pixels that a phone has for a figure; None elsewhere."""
    window = st.context.cookies.get(WINDOW, "")
    return max(int(window), 320) - SIDES if window.isdigit() and int(window) <= PHONE else None


def fit(width: int, beside: int = 0) -> int:
    """The width of a figure, smaller on phones; beside: pixels for what stands beside it elsewhere, but not there."""
    most = room()
    return width if most is None else min(width, most) + beside


def wide(columns: int) -> int:
    """Pixels of a figure with a grid: half a page, or less where the squares would be large; on phones as much as there
    is, or more where the squares would be too small for a finger."""
    whole, most = min(560, 180 + 44 * columns), room()
    return whole if most is None else max(min(whole, most + LEGEND + 35), 160 + 20 * columns)


def wide_of(table: pd.DataFrame) -> int:
    """The same for a table of heads."""
    return wide(int(table["head"].max()) + 1)


def small_maps(table: pd.DataFrame) -> int:
    """Pixels of a figure with every head's map; on phones no narrower than maps that a finger can meet."""
    return 560 if room() is None else max(fit(560), 70 + 24 * (int(table["head"].max()) + 1))


def theme() -> str:
    """The chart theme that goes with the page: "dark" or "screen"."""
    return "dark" if st.context.theme.type == "dark" else "screen"


def show(chart: Any, **options: Any) -> None:
    """Draw a chart at its own size; its description is read out by screen readers. The title stands above it as text
    of the page, which wraps where the page is narrow."""
    config = {**chart.config, "font": FONT}
    if room() is not None:
        config["legend"] = {**config["legend"], "orient": "bottom", "direction": "horizontal"}
    fitted = readable(chart.properties(config=config, padding=PADDING, autosize="pad"))
    with st.container(gap=None):
        st.html(heading(fitted.title))
        fitted.title = alt.Undefined
        st.altair_chart(fitted, width="content", theme=None, **options)


def readable(chart: Any) -> Any:
    """The chart without letters that are too small to read: where labels would be, there are fewer of them."""
    for part in (part for name in ("layer", "vconcat") for part in _given(chart, name) or ()):
        readable(part)
    for name in ("x", "y"):
        axis = _given(_given(_given(chart, "encoding"), name), "axis")
        if _is_small(axis, "labelFontSize"):
            axis["labelFontSize"], axis["labelOverlap"] = SMALLEST, True
    if _is_small(_given(chart, "mark"), "fontSize"):
        chart["mark"]["fontSize"] = SMALLEST
    return chart


def _given(part: Any, name: str) -> Any:
    """A property of a part of a chart, or None."""
    found = getattr(part, "_kwds", {}).get(name)
    return None if found is alt.Undefined else found


def _is_small(part: Any, name: str) -> bool:
    size = _given(part, name)
    return isinstance(size, int | float) and size < SMALLEST


def heading(title: str | dict[str, str]) -> str:
    """The title of a chart, and its subtitle if it has one, as HTML in which nothing is markup."""
    given = title if isinstance(title, dict) else {"text": title}
    return "".join(
        f'<p class="figure-{name}">{escape(given[part])}</p>'
        for name, part in (("title", "text"), ("subtitle", "subtitle"))
        if part in given
    )


def clickable(chart: Any, key: str, pick: Callable[[dict[str, Any]], None], fields: tuple[str, ...]) -> None:
    """Draw a chart whose marks can be clicked; `pick` gets the fields of one before the page runs again.

    After that it is a new chart to the browser, which would keep silent about a mark that it remembers as chosen, even
    where something else was chosen in another way since.
    """
    turn = f"{key}_turn"
    key = f"{key}{st.session_state.setdefault(turn, 0)}"

    def picked() -> None:
        points = st.session_state[key].selection["pick"]
        if points:
            st.session_state[turn] += 1
            pick(points[0])

    parameter = alt.selection_point(name="pick", fields=list(fields), on="click", empty=False)
    show(chart.add_params(parameter), key=key, on_select=picked, selection_mode="pick")


def framed(chart: Any, head: Head) -> Any:
    """The grid of heads with a frame around one of them."""
    if isinstance(chart, alt.LayerChart):
        ground, *others = chart.layer
        layered = chart.copy(deep=False)
        layered.layer = [_framed(ground, head, chart.config), *others]
        return layered
    return _framed(chart, head, chart.config)


def _framed(marks: Any, head: Head, config: dict[str, Any]) -> Any:
    here = alt.when(f"datum.layer === {head.layer} && datum.head === {head.head}")
    colour = alt.value(config["text"]["color"])
    return marks.encode(stroke=here.then(colour), strokeWidth=here.then(alt.value(2.5)))
