"""What belongs to one visit and ends with it."""

from __future__ import annotations

import atexit
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path

import streamlit as st

from . import runs
from .grants import grants
from .waiting import visitor


@dataclass
class Visit:
    """Who visits, the secret for reading tiles, and a folder for what the visitor brings."""

    visitor: str
    capability: str
    folders: list[Path] = field(default_factory=list)


def capability() -> str:
    """The visitor's secret for reading tiles."""
    return _visit().capability


def folder() -> Path:
    """Where the visitor's files are kept until the visit ends."""
    visit = _visit()
    if not visit.folders:
        made = Path(tempfile.mkdtemp(prefix="attnviz-"))
        atexit.register(shutil.rmtree, made, ignore_errors=True)
        visit.folders.append(made)
    return visit.folders[0]


def _leave(visit: Visit) -> None:
    grants().close(visit.capability)
    runs.queue().leave(visit.visitor)
    for made in visit.folders:
        shutil.rmtree(made, ignore_errors=True)


@st.cache_resource(scope="session", on_release=_leave, show_spinner=False)
def _visit() -> Visit:
    return Visit(visitor(), grants().open())
