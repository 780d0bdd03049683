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


def wide(columns: int) -> int:
    """Pixels of a figure with a grid: half a page, or less where the squares would be large."""
    return min(560, 180 + 44 * columns)


def wide_of(table: pd.DataFrame) -> int:
    """The same for a table of heads."""
    return wide(int(table["head"].max()) + 1)


def theme() -> str:
    """The chart theme that goes with the page: "dark" or "screen"."""
    return "dark" if st.context.theme.type == "dark" else "screen"


def show(chart: Any, **options: Any) -> None:
    """Draw a chart at its own size; its description is read out by screen readers. The title stands above it as text
    of the page, which wraps where the page is narrow."""
    fitted = chart.properties(config={**chart.config, "font": FONT}, padding=PADDING, autosize="pad")
    with st.container(gap=None):
        st.html(heading(fitted.title))
        fitted.title = alt.Undefined
        st.altair_chart(fitted, width="content", theme=None, **options)


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
