"""Widgets whose value lives in the URL, both ways, and that say so when the URL asks for what is not there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import streamlit as st

from .safe import plain

Option = TypeVar("Option")


def choose(
    label: str,
    options: Sequence[Option],
    key: str,
    *,
    words: Callable[[Any], str] = str,
    **look: Any,
) -> Option:
    """A select box. `key` is also the name in the URL, where options stand as `words` shows them."""
    warn_unknown(label, [words(option) for option in options], key)
    chosen: Option = st.selectbox(label, options, key=key, format_func=words, bind="query-params", **look)
    return chosen


def switch(label: str, options: Sequence[str], key: str, *, words: Callable[[str], str] = str, **look: Any) -> str:
    """A row of buttons of which one is on."""
    warn_unknown(label, [words(option) for option in options], key)
    chosen: str = st.segmented_control(
        label, options, key=key, default=options[0], required=True, format_func=words, bind="query-params", **look
    )
    return chosen


def warn_unknown(label: str, options: Sequence[str], key: str) -> None:
    """One line when the URL names an option that does not exist; the widget then falls back to its first."""
    message = unknown(label, options, st.query_params.get(key))
    if message:
        st.warning(plain(message), icon=":material/info:")


def unknown(label: str, options: Sequence[str], asked: str | None) -> str | None:
    """What to say about an option that was asked for, or None if it is there."""
    if asked is None or asked in options:
        return None
    have = f"{options[0]} to {options[-1]}" if all(word.isdigit() for word in options) else ", ".join(options)
    return f"{label} {asked!r} from the address does not exist here, showing {options[0]}: there is {have}"


def position(label: str, count: int, key: str) -> int:
    """A number from 0 to count - 1."""
    if key in st.query_params:
        warn_unknown(label, [str(place) for place in range(count)], key)
    if st.session_state.get(key, 0) >= count:
        st.session_state[key] = 0
    return int(st.number_input(label, 0, count - 1, key=key, bind="query-params"))
