"""Which head and which query token are looked at; both live in the URL under "layer", "head" and "query"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st


def select_head(place: Mapping[str, Any]) -> None:
    """Look at another head, given {"layer": ..., "head": ...}."""
    st.session_state["layer"], st.session_state["head"] = int(place["layer"]), int(place["head"])


def select_query(position: int) -> None:
    """Look from another token."""
    st.session_state["query"] = position
