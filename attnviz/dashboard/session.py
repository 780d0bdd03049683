"""What belongs to one visit and ends with it."""

from __future__ import annotations

import streamlit as st

from . import runs
from .grants import grants
from .waiting import visitor


def capability() -> str:
    """The visitor's secret for reading tiles."""
    return _visit()[0]


def _leave(visit: tuple[str, str]) -> None:
    grants().close(visit[0])
    runs.queue().leave(visit[1])


@st.cache_resource(scope="session", on_release=_leave, show_spinner=False)
def _visit() -> tuple[str, str]:
    """The secret, and who it belongs to."""
    return grants().open(), visitor()
