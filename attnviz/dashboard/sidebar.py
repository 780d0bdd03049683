"""The sidebar: what to look at. Model, text, layer and head, on every page the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from . import runs
from .choices import TRACE, offered
from .controls import choose
from .examples import EXAMPLES, FIRST
from .settings import AUTO_TOKENS, settings
from .waiting import obtain

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Head, Trace

TEXT_LIMIT = 5000
"""Characters in the text box: the text lives in the URL, and servers cut URLs off. Longer texts come as files."""


@dataclass(frozen=True)
class Look:
    """What the visitor looks at: a trace, and one head of it."""

    wanted: runs.Wanted
    trace: Trace
    head: Head


def look() -> Look:
    """Draw the sidebar. Stops the page while there is nothing to show yet, with progress or the reason."""
    with st.sidebar:
        model = choose("Model", offered(settings()), "model", accept_new_options=settings().allow_hub)
        text = _text() if not model.endswith(TRACE) else ""
        tokens, place = st.empty(), st.container()
    wanted = runs.Wanted(model, text)
    trace = _open(wanted) if wanted.saved else _record(wanted, tokens)
    with place:
        return _head(wanted, trace)


def _text() -> str:
    text: str = st.text_area("Text", FIRST, key="text", max_chars=TEXT_LIMIT, height=132, bind="query-params")
    st.menu_button("Examples", list(EXAMPLES), key="example", on_click=_use_example, width="stretch")
    return text


def _use_example() -> None:
    st.session_state["text"] = EXAMPLES[st.session_state["example"]]


def _open(wanted: runs.Wanted) -> Trace:
    trace: Trace = obtain(runs.traces(), wanted, partial(runs.open_trace, wanted.model))
    return trace


def _record(wanted: runs.Wanted, tokens: Any) -> Trace:
    model, tokenizer = obtain(runs.models(), wanted.model, partial(runs.load, wanted.model), lambda _: 1)
    count = runs.count_tokens(tokenizer, wanted.text)
    tokens.caption(f"{count:,} tokens")
    runs.check_length(count)
    if runs.traces().take(wanted):
        st.toast("This run had made room for others; it is recorded again.")
    if count > AUTO_TOKENS and runs.traces().get(wanted) is None:
        _confirm(wanted, count)
    trace: Trace = obtain(runs.traces(), wanted, partial(runs.record, model, tokenizer, wanted))
    return trace


def _confirm(wanted: runs.Wanted, count: int) -> None:
    """Longer texts wait for a click; it holds until another text comes."""
    if st.session_state.get("confirmed") == wanted:
        return
    st.info(f"This text is {count:,} tokens long.")
    if not st.button(f"Record {count:,} tokens", type="primary"):
        st.stop()
    st.session_state["confirmed"] = wanted


def _head(wanted: runs.Wanted, trace: Trace) -> Look:
    with st.container(horizontal=True, wrap=False):
        layer = choose("Layer", trace.layers, "layer")
        head = choose("Head", range(trace.head_count(layer)), "head")
    return Look(wanted, trace, trace[layer, head])


def heads_table(look: Look) -> pd.DataFrame:
    """`Trace.heads()`, computed once."""
    key = (look.wanted, "heads")
    table: pd.DataFrame = obtain(runs.traces(), key, lambda _: look.trace.heads(), runs.table_bytes)
    return table
