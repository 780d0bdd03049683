"""Which head and which token are looked at; both live in the URL under "layer", "head" and "token"."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import streamlit as st


def select_head(place: Mapping[str, Any]) -> None:
    """Look at another head, given {"layer": ..., "head": ...}."""
    st.session_state["layer"], st.session_state["head"] = int(place["layer"]), int(place["head"])


def select_token(position: int) -> None:
    """Look at another token."""
    st.session_state["token"] = position
