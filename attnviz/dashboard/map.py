"""Map: the selected head, whole, and the text shaded by one token's weights."""

from __future__ import annotations

import streamlit as st

from .. import charts
from . import figures
from .controls import position
from .selection import select_query
from .sidebar import Look
from .strip import strip


def draw(look: Look) -> None:
    """The page."""
    head = look.head
    left, right = st.columns([3, 2], gap="large")
    with left:
        figures.show(charts.heatmap(head, theme=figures.theme(), width=620))
    with right:
        query = position("Query token", len(head.rows), "query")
        weights = head.weights(rows=slice(query, query + 1))[0]
        strip(head.cols, weights.tolist(), query, key="strip", label="Keys, shaded by their weight", pick=select_query)
        st.dataframe(head.links(10, rows=[query]), hide_index=True)
