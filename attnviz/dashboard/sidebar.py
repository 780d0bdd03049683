"""The sidebar: what to look at. Model, text, layer and head, on every page the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from ..errors import UsageError
from . import runs
from .cache import tensor_bytes
from .choices import TRACE, offered
from .controls import choose, choose_number, position, suggest
from .examples import EXAMPLES, FIRST
from .jobs import LONG, READING, SHORT
from .places import part_of
from .settings import AUTO_TOKENS, settings
from .start import start
from .waiting import obtain

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Head, Trace

TEXT_LIMIT = 5000
"""Characters in the text box: the text lives in the URL, and servers cut URLs off. Longer texts come as files."""


@dataclass(frozen=True)
class Look:
    """What the visitor looks at: one kind of attention of one sequence, and one head of it.

    `whole` is the trace with everything that was recorded.
    """

    wanted: runs.Wanted
    trace: Trace
    head: Head
    kind: str
    whole: Trace


def look() -> Look:
    """Draw the sidebar. Stops the page while there is nothing to show yet, with progress or the reason."""
    with st.sidebar:
        model = choose("Model", offered(settings()), "model", accept_new_options=settings().allow_hub)
        text = _text() if not model.endswith(TRACE) else ""
        tokens, place = st.empty(), st.container()
    wanted = runs.Wanted(model, text)
    trace = _open(wanted) if wanted.saved else _record(wanted, tokens)
    with place:
        return _choice(wanted, trace)


def _text() -> str:
    text: str = st.text_area("Text", FIRST, key="text", max_chars=TEXT_LIMIT, height=132, bind="query-params")
    st.menu_button("Examples", list(EXAMPLES), key="example", on_click=_use_example, width="stretch")
    return text


def _use_example() -> None:
    st.session_state["text"] = EXAMPLES[st.session_state["example"]]


def _open(wanted: runs.Wanted) -> Trace:
    trace: Trace = obtain(runs.traces(), wanted, partial(runs.open_trace, wanted.model), runs.mapped_bytes, READING)
    return trace


def _record(wanted: runs.Wanted, tokens: Any) -> Trace:
    model, tokenizer = obtain(runs.models(), wanted.model, partial(runs.load, wanted.model), lambda _: 1, READING)
    count = runs.count_tokens(tokenizer, wanted.text)
    tokens.caption(f"{count:,} tokens")
    runs.check_length(count)
    if runs.traces().take(wanted):
        st.toast("This run had made room for others; it is recorded again.")
    if count > AUTO_TOKENS and runs.traces().get(wanted) is None:
        _confirm(wanted, count)
    lane = LONG if count > AUTO_TOKENS else SHORT
    trace: Trace = obtain(runs.traces(), wanted, partial(runs.record, model, tokenizer, wanted), tensor_bytes, lane)
    return trace


def _confirm(wanted: runs.Wanted, count: int) -> None:
    """Longer texts wait for a click; it holds until another text comes."""
    if st.session_state.get("confirmed") == wanted:
        return
    st.info(f"This text is {count:,} tokens long.")
    if not st.button(f"Record {count:,} tokens", type="primary"):
        st.stop()
    st.session_state["confirmed"] = wanted


def _choice(wanted: runs.Wanted, whole: Trace) -> Look:
    kinds = [kind for kind in whole.kinds if kind != "pool"] or list(whole.kinds)
    if not kinds:
        raise UsageError("this trace holds no attention: record another model, or open another trace")
    kind = choose("Attention", kinds, "kind") if len(kinds) > 1 else kinds[0]
    sequence = position("Sequence", whole.batch_size, "sequence") if whole.batch_size > 1 else 0
    trace = part_of(whole, kind, sequence)
    best = runs.traces().make((wanted, kind, sequence, "start"), lambda: start(trace), lambda found: 200 * len(found))
    first = max(best, key=lambda layer: best[layer][1])
    asked = st.query_params.get("layer", "")
    suggest(layer=first, head=best[int(asked) if asked in map(str, best) else first][0])
    with st.container(horizontal=True, wrap=False):
        layer = choose_number("Layer", trace.layers, "layer", first)
        head = choose_number("Head", trace.record(layer).head_numbers, "head", best[layer][0])
    return Look(wanted, trace, trace[layer, head], kind, whole)


def heads_table(look: Look) -> pd.DataFrame:
    """`Trace.heads()`, computed once."""
    key = (look.wanted, look.kind, look.trace.batch, "heads")
    table: pd.DataFrame = obtain(runs.traces(), key, lambda _: look.trace.heads(), runs.table_bytes, READING)
    return table
