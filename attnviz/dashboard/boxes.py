"""Boxes for text, which live in the URL. Servers cut long URLs off: a longer text is kept beside its box until the
visit ends, as one from a file is, and the URL holds its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from ..errors import UsageError
from .address import asked_of_address, tell
from .safe import plain
from .settings import settings

LIMIT = 5000
"""Characters of a text in the URL."""
PASTED = "The pasted text"
CHARACTERS = 20
"""Characters a token may have on average in a text that is read at all."""


def text_box(label: str, first: str, key: str, box: Callable[..., str] = st.text_area, **look: Any) -> tuple[str, str]:
    """The text, and what it is called where it is kept beside its box; `first` stands in the box at first.

    Raises UsageError for a text longer than any the server records.
    """
    found = kept(key)
    if found is None or _asks_for_box(key):
        _say_gone(key)
        text = _box(label, first, key, box, look)
        if len(text) <= LIMIT:
            return text, ""
        keep(key, PASTED, text)
        st.rerun()
    if len(st.session_state.get(key) or "") > LIMIT:
        _leave_address(label, first, key, box, look)
    name, text = found
    st.query_params[_named(key)] = name
    st.caption(plain(label))
    st.text(f"{name}, {len(text):,} characters")
    st.button("Back to the text box", key=f"{key}_back", on_click=drop, args=(key,), width="stretch")
    return checked(name, text), name


def kept(key: str) -> tuple[str, str] | None:
    """(name, text) of a text kept beside its box, or None."""
    found: tuple[str, str] | None = _kept().get(key)
    return found


def keep(key: str, name: str, text: str) -> None:
    """Keep a text beside its box."""
    _kept()[key] = name, text
    st.query_params[_named(key)] = name


def drop(key: str) -> None:
    """Back to the box."""
    _kept().pop(key, None)
    forget_name(key)


def forget_name(key: str) -> None:
    """The address names no text that is kept beside the box."""
    st.query_params.pop(_named(key), None)


def checked(name: str, text: str) -> str:
    """The text. Raises UsageError for one that is empty, or longer than any the server records."""
    if not text.strip():
        raise UsageError(f"{name} is empty: choose a text")
    if len(text) > CHARACTERS * settings().max_tokens:
        raise UsageError(
            f"{name} has {len(text):,} characters, this server takes {settings().max_tokens:,} tokens: shorten it"
        )
    return text


def _kept() -> dict[str, tuple[str, str]]:
    found: dict[str, tuple[str, str]] = st.session_state.setdefault("kept", {})
    return found


def _named(key: str) -> str:
    """Under which name the address says what the kept text is called."""
    return "file" if key == "text" else f"{key}_file"


def _box(label: str, first: str, key: str, box: Callable[..., str], look: dict[str, Any]) -> str:
    asked_of_address(key)
    return box(label, first, key=key, on_change=forget_name, args=(key,), bind="query-params", **look) or ""


def _asks_for_box(key: str) -> bool:
    """Whether the visitor went back to where the address held the text of the box."""
    return _named(key) not in st.query_params and 0 < len(st.query_params.get(key, "")) <= LIMIT


def _leave_address(label: str, first: str, key: str, box: Callable[..., str], look: dict[str, Any]) -> None:
    """Take what was pasted out of the address: only the box that wrote it can, by being there with another text."""
    st.session_state[key] = first
    place = st.empty()
    with place:
        _box(label, first, key, box, look)
    place.empty()


def _say_gone(key: str) -> None:
    """A line where the address names a text that went with the visit that brought it."""
    asked_of_address(_named(key))
    name = st.query_params.get(_named(key))
    # a pasted text may still stand in the address
    if name and not (name == PASTED and len(st.query_params.get(key, "")) > LIMIT):
        tell(f"{name[:80]} was kept only as long as the visit that brought it: give it again. This is another text.")
