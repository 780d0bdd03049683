"""Heads: all of them at once, and the selected one beside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import streamlit as st

from .. import charts
from . import exports, figures, runs
from .controls import choose, switch
from .jobs import READING
from .selection import select_head
from .sidebar import Look, heads_table
from .statistics import STATISTICS, title
from .waiting import obtain

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("layer", "head")


def draw(look: Look) -> None:
    """The page."""
    table = heads_table(look)
    left, right = st.columns([3, 2], gap="large")
    with left:
        VIEWS[switch("View", list(VIEWS), "view", label_visibility="collapsed")](look, table)
    with right:
        figures.show(charts.heatmap(look.head, theme=figures.theme(), width=420))
        _numbers(look, table)
        exports.offer(look.wanted, "heatmap", look.head)


def _grid(look: Look, table: pd.DataFrame) -> None:
    column = choose("Colour by", [name for name in STATISTICS if name in table], "by", words=title)
    st.caption(STATISTICS[column][1])
    chart = charts.head_grid(look.trace, column, theme=figures.theme(), width=560)
    figures.clickable(figures.framed(chart, look.head), "grid", select_head, PLACE)
    exports.offer(look.wanted, "heads", look.trace)


def _maps(look: Look, _: pd.DataFrame) -> None:
    theme = figures.theme()
    chart = obtain(
        runs.traces(),
        (look.wanted, look.kind, look.trace.batch, "maps", theme),
        lambda _: charts.thumbnails(look.trace, theme=theme, width=560),
        lambda chart: runs.table_bytes(chart.data),
        READING,
    )
    figures.clickable(figures.framed(chart, look.head), "maps", select_head, PLACE)
    exports.offer(look.wanted, "thumbnails", look.trace)


def _table(_: Look, table: pd.DataFrame) -> None:
    def picked() -> None:
        rows = st.session_state["table"].selection.rows
        if rows:
            select_head(table.iloc[rows[0]])

    st.dataframe(
        table.round(3), hide_index=True, key="table", on_select=picked, selection_mode="single-row", height=520
    )


def _numbers(look: Look, table: pd.DataFrame) -> None:
    row: Any = table[(table["layer"] == look.head.layer) & (table["head"] == look.head.head)].iloc[0]
    with st.container(horizontal=True):
        st.metric("Entropy", f"{row['entropy']:.2f} nats", width="content")
        st.metric("Largest weight", f"{row['largest']:.3f}", width="content")
        st.metric("First token", f"{row['first']:.3f}", width="content")


VIEWS = {"Grid": _grid, "Maps": _maps, "Table": _table}
