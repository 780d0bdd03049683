"""What is looked at: the head under "layer" and "head" in the URL, a query under "token", a key under "key"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st


def select_head(place: Mapping[str, Any]) -> None:
    """Look at another head, given {"layer": ..., "head": ...}."""
    st.session_state["layer"], st.session_state["head"] = int(place["layer"]), int(place["head"])


def select_token(position: int) -> None:
    """Look at another token, as a query."""
    st.session_state["token"] = position


def select_key(position: int) -> None:
    """Look at another token, as a key."""
    st.session_state["key"] = position
