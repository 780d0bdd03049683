"""Widgets whose value lives in the URL, both ways, and that say so when the URL asks for what is not there."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import streamlit as st

from .address import asked_of_address, has_just_come, missing, tell, warn_unknown

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
    if look.get("accept_new_options"):
        asked_of_address(key)
    else:
        warn_unknown(label, [words(option) for option in options], key)
    chosen: Option = st.selectbox(label, options, key=key, format_func=words, bind="query-params", **look)
    return chosen


def suggest(about: Hashable, keys: Sequence[str], first: Callable[[], Sequence[int]]) -> None:
    """What numbers a page opens on, for as long as the visitor chooses no others: made by `first`, one a key, when URL
    and visitor said nothing of them yet, or when what they are `about` is another than before."""
    last: dict[str, tuple[Hashable, int]] = st.session_state.setdefault("suggested", {})
    unsaid = [key for key in keys if key not in st.query_params and key not in st.session_state]
    old = [key for key in keys if key not in unsaid and _is_old(last.get(key), about, key)]
    if not unsaid and not old:
        return
    numbers = dict(zip(keys, first(), strict=True))
    last |= {key: (about, numbers[key]) for key in (*unsaid, *old)}
    st.session_state.update({key: numbers[key] for key in old})
    _open_with({key: numbers[key] for key in unsaid})


def _is_old(suggestion: tuple[Hashable, int] | None, about: Hashable, key: str) -> bool:
    """Whether the number is one that was suggested for something else."""
    return suggestion is not None and suggestion[0] != about and st.session_state.get(key) == suggestion[1]


def _open_with(first: Mapping[str, int]) -> None:
    # a widget takes its first value from the session, and leaves a URL alone that already says the same
    if first:
        st.query_params.update({key: str(value) for key, value in first.items()})
        st.session_state.update(first)


def keep_chosen(keys: Sequence[str]) -> None:
    """Where the visitor chose one of these numbers that belong together, none of them follows suggestions any more."""
    last: dict[str, tuple[Hashable, int]] = st.session_state.get("suggested", {})
    if any(key in last and st.session_state.get(key, last[key][1]) != last[key][1] for key in keys):
        for key in keys:
            last.pop(key, None)


def choose_number(label: str, options: Sequence[int], key: str, first: int) -> int:
    """A select box of numbers that opens on `first`; what is chosen always stands in the URL."""
    names = [str(option) for option in options]
    warn_unknown(label, names, key, str(first))
    _keep_within(key, options, first)
    look: Any = {"index": None, "required": True, "bind": "query-params"}
    chosen: int | None = st.selectbox(label, options, key=key, **look)
    return first if chosen is None else chosen


def position(label: str, count: int, key: str, first: int = 0) -> int:
    """A number from 0 to count - 1 that opens on `first`; what is chosen always stands in the URL."""
    asked = asked_of_address(key)
    if asked is not None and not (asked.isdigit() and int(asked) < count):
        tell(missing(label, asked, first, f"0 to {count - 1}"))
    _keep_within(key, range(count), first)
    chosen = st.number_input(label, 0, count - 1, None, key=key, bind="query-params")
    return first if chosen is None else int(chosen)


def keep_range(key: str, low: float, high: float) -> None:
    """Bring a range that was chosen within other bounds into these: an end that lay on its bound stays on it."""
    last = st.session_state.get(f"{key}_bounds", (low, high))
    st.session_state[f"{key}_bounds"] = low, high
    if key not in st.session_state:
        return
    chosen = st.session_state[key]
    first = low if chosen[0] <= last[0] else max(low, chosen[0])
    final = high if chosen[1] >= last[1] else min(high, chosen[1])
    kept = (first, final) if first < final else (low, high)
    if kept != chosen:
        st.session_state[key] = kept


def _keep_within(key: str, options: Sequence[int], first: int) -> None:
    """Fall back to `first` where URL or visitor ask for what is not there."""
    if key in st.session_state:
        chosen = st.session_state[key]
        if chosen not in options or key not in st.query_params or has_just_come():
            # between pages that both have a widget of this key, browser and URL lose its value unless it is set
            st.session_state[key] = chosen if chosen in options else first
    elif st.query_params.get(key) not in [str(option) for option in options]:
        _open_with({key: first})


def switch(label: str, options: Sequence[str], key: str, *, words: Callable[[str], str] = str, **look: Any) -> str:
    """A row of buttons of which one is on."""
    warn_unknown(label, [words(option) for option in options], key)
    chosen: str = st.segmented_control(
        label, options, key=key, default=options[0], required=True, format_func=words, bind="query-params", **look
    )
    return chosen
