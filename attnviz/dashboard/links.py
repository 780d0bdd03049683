"""Links: the strongest links of the selected head as curves from query to key, at any length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st

from .. import charts
from ..charts.links import LINKS
from . import exports, figures, frames
from .address import asked_of_address, warn_beyond
from .controls import switch
from .selection import row_of, select_token
from .sidebar import Look

if TYPE_CHECKING:
    import pandas as pd

STRONGEST, HEAD_VIEW, MODEL_VIEW = "Strongest links", "Head view", "Model view"
MOST = 200
"""Links drawn at most."""


def draw(look: Look) -> None:
    """The page."""
    view = switch("View", [STRONGEST, HEAD_VIEW, MODEL_VIEW], "links", label_visibility="collapsed")
    if view == STRONGEST:
        _strongest(look)
    else:
        frames.draw(look, view == HEAD_VIEW)


def _strongest(look: Look) -> None:
    """Our own view, and the same as a table."""
    asked = asked_of_address("count")
    with st.container(width=320):
        count = st.slider("Links", 5, MOST, LINKS, 5, key="count", bind="query-params")
        warn_beyond("Links", asked, 5, MOST, count)
    st.caption("A strong link says where the head looked, not that what it found there mattered.")
    left, right = st.columns([6, 5], gap="large")
    with left:
        figures.show(charts.links(look.head, count, theme=figures.theme(), width=figures.fit(520)))
        exports.offer(look, "links", **exports.place_of(look.head), **({} if count == LINKS else {"count": count}))
    with right:
        _table(look.head.links(count))


def _table(table: pd.DataFrame) -> None:
    def picked() -> None:
        row = row_of("strongest", len(table))
        if row is not None:
            select_token(int(table["row"].iloc[row]))

    bar = st.column_config.ProgressColumn("weight", format="%.3f", min_value=0.0, max_value=1.0, width=128)
    st.dataframe(
        table,
        hide_index=True,
        key="strongest",
        on_select=picked,
        selection_mode="single-row",
        height=560,
        column_config={"weight": bar},
    )
