"""What is looked at: the head under "layer" and "head" in the URL, a query under "token", a key under "key"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import streamlit as st

if TYPE_CHECKING:
    import pandas as pd


def select_head(place: Mapping[str, Any] | pd.Series[Any]) -> None:
    """Look at another head, given {"layer": ..., "head": ...}."""
    st.session_state["layer"], st.session_state["head"] = int(place["layer"]), int(place["head"])


def row_of(key: str, count: int) -> int | None:
    """Which row of a table of `count` rows was clicked: the one with a tick, or the one whose tick the click took away,
    for that row was meant as well."""
    rows = st.session_state[key].selection.rows
    row: int | None = rows[0] if rows else st.session_state.get(f"{key}_row")
    st.session_state[f"{key}_row"] = row
    return row if row is not None and row < count else None


def select_token(position: int) -> None:
    """Look at another token, as a query."""
    st.session_state["token"] = position


def select_key(position: int) -> None:
    """Look at another token, as a key."""
    st.session_state["key"] = position
