"""The sidebar: what to look at. Model, text, layer and head, on every page the same."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from ..errors import UsageError
from ..estimate import readable
from ..numbers import many
from . import runs
from .address import warn_unknown
from .boxes import forget_name, text_box
from .cache import tensor_bytes
from .choices import TRACE, offered
from .controls import choose, choose_number, keep_chosen, position, suggest
from .examples import EXAMPLES, FIRST
from .jobs import LOADING, LONG, READING, SHORT
from .places import part_of
from .safe import plain
from .settings import AUTO_TOKENS, settings
from .start import start
from .uploads import brought, file_box
from .waiting import obtain, slot

if TYPE_CHECKING:
    import pandas as pd

    from ..estimate import Estimate
    from ..head import Head
    from ..trace import Trace


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


def look(about: str = "") -> Look:
    """Draw the sidebar. Stops the page while there is nothing to show yet, with progress or the reason.

    about is the kind of attention that the page is about, which is then not chosen where there is any.
    """
    with st.sidebar:
        names = [*offered(settings()), *brought()]
        model = choose("Model", names, "model", accept_new_options=settings().allow_hub)
        text, file = ("", "") if model.endswith(TRACE) else text_box("Text", FIRST, "text", height=132)
        _sources(text_shown=not model.endswith(TRACE) and not file)
        tokens, place = st.empty(), st.container()
    wanted, trace = _open(model) if model.endswith(TRACE) else _record(runs.Wanted(model, text, file), tokens)
    with place:
        return _choice(wanted, trace, about)


def _sources(text_shown: bool) -> None:
    """Other texts, and files."""
    with st.container(horizontal=True):
        if text_shown:
            st.menu_button("Examples", list(EXAMPLES), key="example", on_click=_use_example, width="stretch")
        file_box()


def _use_example() -> None:
    forget_name("text")
    st.session_state["text"] = EXAMPLES[st.session_state["example"]]


def _open(name: str) -> tuple[runs.Wanted, Trace]:
    """A saved trace, of this server or brought by the visitor."""
    upload = brought().get(name)
    if upload is None:
        wanted = runs.Wanted(name, "", version=runs.version_of(name))
        return wanted, obtain(runs.traces(), wanted, partial(runs.open_trace, name), runs.mapped_bytes, READING)
    wanted = runs.Wanted(name, "", upload.file, upload.fingerprint)
    work = partial(runs.open_file, upload.path, upload.file)
    return wanted, obtain(runs.traces(), wanted, work, tensor_bytes, READING)


def _record(wanted: runs.Wanted, tokens: Any) -> tuple[runs.Wanted, Trace]:
    model, tokenizer = obtain(runs.models(), wanted.model, partial(runs.load, wanted.model), lambda _: 1, LOADING)
    key = (wanted, "tokens")
    count = runs.traces().make(key, lambda: runs.count_tokens(tokenizer, wanted.text), lambda _: len(wanted.text))
    cost = runs.cost(model, count)
    if wanted.text.strip():
        tokens.caption(f"{many(count, 'token')}{f', {readable(cost.attnviz)} in memory' if cost else ''}")
    runs.check_length(count, cost)
    if runs.traces().take(wanted):
        st.toast("This run had made room for others; it is recorded again.")
    if count > AUTO_TOKENS and runs.traces().get(wanted) is None:
        _confirm(wanted, count, cost)
    lane = LONG if count > AUTO_TOKENS else SHORT
    work = partial(runs.record, model, tokenizer, wanted)
    return wanted, obtain(runs.traces(), wanted, work, tensor_bytes, lane)


def _confirm(wanted: runs.Wanted, count: int, cost: Estimate | None) -> None:
    """Longer texts wait for a click; it holds until another text comes."""
    if st.session_state.get("confirmed") == wanted:
        return
    with slot().container():
        st.info(plain(told(count, cost)), icon=":material/hourglass_empty:")
        if not st.button(f"Record {many(count, 'token')}", type="primary"):
            st.stop()
    slot().empty()
    st.session_state["confirmed"] = wanted


def told(count: int, cost: Estimate | None) -> str:
    """What a recording costs, in a line."""
    if cost is None:
        return f"This text is {many(count, 'token')} long."
    return (
        f"This text is {many(count, 'token')} long. Its trace takes {readable(cost.attnviz)}; all its maps, written out"
        f" as eager attention does, would take {readable(cost.eager_fp32)}."
    )


def _choice(wanted: runs.Wanted, whole: Trace, about: str) -> Look:
    kinds = [kind for kind in whole.kinds if kind != "pool"] or list(whole.kinds)
    if not kinds:
        raise UsageError("this trace holds no attention: record another model, or open another trace")
    kinds = [about] if about in kinds else kinds
    warn_unknown("Attention", kinds, "kind")
    kind = choose("Attention", kinds, "kind") if len(kinds) > 1 else kinds[0]
    sequence = position("Sequence", whole.batch_size, "sequence") if whole.batch_size > 1 else 0
    trace = part_of(whole, kind, sequence)
    best = runs.traces().make((wanted, kind, sequence, "start"), lambda: start(trace), lambda found: 200 * len(found))
    first = max(best, key=lambda layer: best[layer][1])
    with st.container(horizontal=True, wrap=False):
        keep_chosen(("layer", "head"))
        suggest((wanted, kind, sequence), ("layer",), lambda: [first])
        layer = choose_number("Layer", trace.layers, "layer", first)
        suggest((wanted, kind, sequence), ("head",), lambda: [best[layer][0]])
        head = choose_number("Head", trace.record(layer).head_numbers, "head", best[layer][0])
    return Look(wanted, trace, trace[layer, head], kind, whole)


def heads_table(look: Look) -> pd.DataFrame:
    """`Trace.heads()`, computed once."""
    key = (look.wanted, look.kind, look.trace.batch, "heads")
    work = partial(runs.measure_heads, look.trace)
    table: pd.DataFrame = obtain(runs.traces(), key, work, runs.table_bytes, READING)
    return table
