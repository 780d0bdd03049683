"""Entropy: how broadly heads look, layer by layer and token by token."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import streamlit as st

from .. import charts
from ..analysis.heads import normalised_entropy
from ..head import Head
from . import exports, figures
from .controls import position, switch
from .selection import row_of, select_head, select_token
from .sidebar import Look, heads_table
from .strip import strip

if TYPE_CHECKING:
    import pandas as pd

NATS, SHARE = "In nats", "Of the most possible"
PLACE = ("layer", "head")

EXTREMES = 5
"""Heads listed at either end."""


def draw(look: Look) -> None:
    """The page."""
    normalised = switch("Unit", [NATS, SHARE], "entropy", label_visibility="collapsed") == SHARE
    table = heads_table(look)
    left, right = st.columns([2, 3], gap="large")
    with left:
        chart = charts.entropy(
            look.trace, table=table, theme=figures.theme(), width=figures.fit(330), normalised=normalised
        )
        figures.clickable(chart, "layers", select_head, PLACE)
        exports.offer(look, "entropy", **({"normalised": True} if normalised else {}))
    with right:
        figures.show(charts.entropy(look.head, theme=figures.theme(), width=figures.fit(550), normalised=normalised))
        place = exports.place_of(look.head)
        exports.offer(look, "entropy", **place, **({"normalised": True} if normalised else {}))
        _token(look.head, normalised)
    _extremes(table)


def _token(head: Head, normalised: bool) -> None:
    with st.container(width=200):
        token = position("Token", len(head.rows), "token")
    values = (normalised_entropy(head) if normalised else head.entropy).tolist()
    st.text(sentence(head, token))
    floor = min((value for value in values if math.isfinite(value)), default=0.0)
    strip(head.rows, values, token, key="tokens", label="Tokens shaded by entropy", pick=select_token, floor=floor)


def sentence(head: Head, token: int) -> str:
    """The entropy of one query in words."""
    entropy, visible = head.entropy[token].item(), int(head.visible[token])
    if visible == 0:
        return f"{head.rows[token].label} sees no key"
    keys = "1 key" if visible == 1 else f"{visible:,} keys"
    return f"{head.rows[token].label}: {entropy:.2f} nats of at most {math.log(visible):.2f} over {keys}"


def _extremes(table: pd.DataFrame) -> None:
    ordered = table.sort_values("entropy_normalised")
    narrow, broad = st.columns(2, gap="large")
    with narrow:
        st.subheader("Narrowest heads", anchor=False)
        _listed(ordered.head(EXTREMES), "narrow")
    with broad:
        st.subheader("Broadest heads", anchor=False)
        _listed(ordered.tail(EXTREMES)[::-1], "broad")


def _listed(table: pd.DataFrame, key: str) -> None:
    def picked() -> None:
        row = row_of(key, len(table))
        if row is not None:
            select_head(table.iloc[row])

    columns = {
        "entropy": st.column_config.NumberColumn("entropy (nats)", format="%.2f"),
        "entropy_normalised": st.column_config.ProgressColumn(
            "of the most possible", format="%.2f", min_value=0.0, max_value=1.0
        ),
    }
    st.dataframe(
        table[["layer", "head", *columns]],
        hide_index=True,
        key=key,
        on_select=picked,
        selection_mode="single-row",
        column_config=columns,
    )
