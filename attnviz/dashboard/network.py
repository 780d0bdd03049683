"""The model itself, for pages that run it again, and runs that wait for a click because they take long."""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial
from typing import Any

import streamlit as st

from . import runs
from .jobs import LOADING
from .runs import Wanted
from .safe import plain
from .waiting import obtain


def network(wanted: Wanted) -> tuple[Any, Any]:
    """(model, tokenizer). A saved trace has none: the page stops here and says so."""
    if wanted.saved:
        st.info("A saved trace holds no model to run again: choose a model on the left.", icon=":material/info:")
        st.stop()
    model, tokenizer = obtain(runs.models(), wanted.model, partial(runs.load, wanted.model), lambda _: 1, LOADING)
    return model, tokenizer


def wait_for_click(label: str, key: Hashable, note: str) -> None:
    """A run that takes long starts with a click, unless its result is still there; otherwise the page stops here."""
    asked = st.session_state.get("asked")
    if runs.traces().get(key) is not None or asked == key:
        return
    place = st.empty()
    with place.container():
        st.info(plain(note), icon=":material/hourglass_empty:")
        if not st.button(label, type="primary"):
            st.stop()
    place.empty()
    st.session_state["asked"] = key


def computed(key: Hashable, work: Any, bytes_kept: int = 1 << 16) -> Any:
    """A small result kept under its key, made as a job the first time."""
    return obtain(runs.traces(), key, work, lambda _: bytes_kept)
