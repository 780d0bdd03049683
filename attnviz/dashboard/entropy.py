"""Entropy: how broadly heads look, layer by layer and token by token."""

from __future__ import annotations

import streamlit as st

from .. import charts
from . import figures
from .selection import select_head, select_query
from .sidebar import Look
from .strip import strip


def draw(look: Look) -> None:
    """The page."""
    left, right = st.columns([2, 3], gap="large")
    with left:
        chart = charts.entropy(look.trace, theme=figures.theme(), width=560)
        figures.clickable(chart, "layers", select_head, ("layer", "head"))
    with right:
        figures.show(charts.entropy(look.head, theme=figures.theme(), width=560))
        strip(
            look.head.rows,
            look.head.entropy.tolist(),
            0,
            key="tokens",
            label="Queries, shaded by entropy",
            pick=select_query,
        )
