"""What the address asks for, and which page it names: each part of a page takes what is meant for it, and a line at the
top of the page says what was asked for in vain."""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import streamlit as st

from .safe import plain

SHOWN = 60
"""Characters of a name and its value that a line repeats."""
MOST = 4
"""Names that a line repeats."""

_notes: ContextVar[Any] = ContextVar("notes")


def come_to(page: str) -> None:
    """Remember which page is drawn, before it is."""
    st.session_state["page"] = page


def stay() -> None:
    """Remember that the page was drawn to its end."""
    st.session_state["drawn"] = st.session_state["page"]


def has_just_come() -> bool:
    """Whether the page was not yet drawn to its end since another was."""
    return st.session_state.get("drawn") != st.session_state.get("page")


def make_notes() -> None:
    """Keep a place at the top of the page for lines on the address: on phones the sidebar is out of sight."""
    _notes.set(st.container())


def tell(line: str) -> None:
    """A line on the address."""
    _notes.get().warning(plain(line), icon=":material/info:")


def remember_address() -> None:
    """Keep what the address said when it was opened; what it says later, widgets wrote."""
    st.session_state.setdefault("opened", dict(st.query_params))


def asked_of_address(key: str) -> str | None:
    """What the address asked for when it was opened, told once; None where a widget spoke since."""
    asked: str | None = st.session_state.setdefault("opened", {}).pop(key, None)
    return asked if asked == st.query_params.get(key) else None


def warn_unknown(label: str, options: Sequence[str], key: str, shown: str | None = None) -> None:
    """One line when the URL names an option that does not exist; the widget falls back to `shown`, or its first."""
    message = unknown(label, options, asked_of_address(key), options[0] if shown is None else shown)
    if message:
        tell(message)


def unknown(label: str, options: Sequence[str], asked: str | None, shown: str) -> str | None:
    """What to say about an option that was asked for while another is shown, or None if it is there."""
    if asked is None or asked in options:
        return None
    run = all(word.isdigit() for word in options) and int(options[-1]) - int(options[0]) == len(options) - 1
    return missing(label, asked, shown, f"{options[0]} to {options[-1]}" if run else ", ".join(options))


def missing(label: str, asked: str, shown: object, have: str) -> str:
    """What to say about a value that the address asks for in vain."""
    return f"{label} {asked[:SHOWN]!r} from the address does not exist here, showing {shown}: there is {have}"


def warn_beyond(label: str, asked: str | None, low: float, high: float, shown: object) -> None:
    """One line when the URL asked for a number that a slider does not have and another is shown."""
    if asked is not None and not _lies(asked, low, high):
        tell(missing(label, asked, shown, f"{low:g} to {high:g}"))


def _lies(asked: str, low: float, high: float) -> bool:
    try:
        return low <= float(asked) <= high
    except ValueError:
        return False


def say_ignored() -> None:
    """A line for what the address said when it was opened and no part of the page asked for; told once."""
    opened: dict[str, str] = st.session_state.setdefault("opened", {})
    left = [f"{name} = {value}" for name, value in opened.items() if value == st.query_params.get(name)]
    opened.clear()
    if left:
        tell(ignored(left))


def ignored(left: Sequence[str]) -> str:
    """What to say of what the address says in vain."""
    shown = [text if len(text) <= SHOWN else f"{text[:SHOWN]}…" for text in left[:MOST]]
    more = f" and {len(left) - MOST} more" if len(left) > MOST else ""
    return f"This page has no place for what the address says of {', '.join(shown)}{more}: it is left out."
