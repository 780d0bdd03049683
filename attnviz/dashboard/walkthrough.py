"""Walkthrough: what attention computes, step by step, on a toy example or on the selected head."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..analysis.sparsity import cost_table
from ..charts import lessons as figures_of
from ..trace import Head, Trace
from ..views import QueryKey
from . import exports, figures, lessons, lines
from .causes import last_word
from .controls import position, switch
from .network import computed, network
from .results import Result, offer
from .sidebar import Look
from .words import COST, GRADIENTS, HEADS, MASK, ORDER, SCALING

TOY, REAL = "Toy example", "This head"
LENGTHS = (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072)


def draw(look: Look) -> None:
    """The page."""
    with st.container(horizontal=True):
        topic = switch("Topic", list(TOPICS), "topic", label_visibility="collapsed")
        source = switch("On", [REAL, TOY], "on", label_visibility="collapsed")
    TOPICS[topic](look, source == TOY)


def _head(look: Look, toy: bool) -> Head:
    return lessons.toy()[0, look.head.head % 2] if toy else look.head


def _scaling(look: Look, toy: bool) -> None:
    head = _head(look, toy)
    words, chart = st.columns([2, 5], gap="large")
    with words:
        st.markdown(SCALING)
        if not toy:
            exports.offer(look, "scaling", **exports.place_of(head))
    with chart:
        figures.show(charts.scaling(head, theme=figures.theme(), width=660))


def _gradients(look: Look, toy: bool) -> None:
    head = _head(look, toy)
    words, chart = st.columns([2, 3], gap="large")
    with words:
        st.markdown(GRADIENTS)
        with st.container(width=200):
            query = position("Token", len(head.rows), "token", last_word(head.rows))
        table, divisor = lessons.gradients(head, query)
        st.text(f"query {query} {head.rows[query].label}")
        _steps(table, divisor)
    with chart:
        _figure("gradients", partial(figures_of.gradients, table, divisor, width=560), table, look, CODE["gradients"])


def _steps(table: Any, divisor: float) -> None:
    """The same numbers not divided and divided."""
    rows = table[table["divisor"].isin([1.0, divisor])].rename(columns={"jacobian": "size of the Jacobian"})
    st.dataframe(rows.round(4), hide_index=True)


def _mask(look: Look, toy: bool) -> None:
    found = lessons.masked(_head(look, toy))
    st.markdown(MASK)
    st.text(f"largest change of the ratio of two visible weights: {found.change:.1e}")
    left, right = st.columns(2, gap="large")
    for column, title, head in ((left, "Without a mask", found.without), (right, "Causal mask", found.with_mask)):
        with column:
            st.subheader(title, anchor=False)
            figures.show(charts.heatmap(head, theme=figures.theme(), width=440))
    chart = partial(charts.difference, found.without, found.with_mask, width=500)
    offer(Result("mask", chart, _cells(found.without, found.with_mask), CODE["mask"]))


def _order(look: Look, toy: bool) -> None:
    st.markdown(ORDER)
    both = [_shuffled(look, toy, positions) for positions in (True, False)]
    top = max(0.01, *(found.change for found in both))
    for column, positions, found in zip(st.columns(2, gap="large"), (True, False), both, strict=True):
        with column:
            st.subheader(f"{'With' if positions else 'Without'} position information", anchor=False)
            st.metric("Largest change of a weight", f"{found.change:.4f}", width="content")
            chart = partial(charts.difference, found.before, found.after, "Shuffled less before", top, width=460)
            name = f"order-{'with' if positions else 'without'}-positions"
            _figure(name, chart, _cells(found.before, found.after), look, CODE["order"])


def _shuffled(look: Look, toy: bool, positions: bool) -> lessons.Shuffled:
    if toy:
        return lessons.shuffled_toy(look.head.head % 2, positions)
    model, tokenizer = network(look.wanted)
    place = (look.head.layer, look.head.head)
    work = partial(lessons.shuffled_model, model, tokenizer, look.wanted.text, place, positions)
    found: lessons.Shuffled = computed((look.wanted, place, positions, "shuffled"), work)
    return found


def _heads(look: Look, toy: bool) -> None:
    trace: Trace = lessons.toy() if toy else look.trace
    layer = 0 if toy else look.head.layer
    words, chart = st.columns([2, 3], gap="large")
    table = lessons.one_or_many(trace, layer)
    with words:
        st.markdown(HEADS)
        st.dataframe(table.round(3), hide_index=True, height=260)
    with chart:
        _figure("heads", partial(figures_of.heads_and_one, table, width=560), table, look, CODE["heads"])


def _cost(look: Look, toy: bool) -> None:
    view = _head(look, toy).view
    size = view.view.query.shape[-1] if isinstance(view, QueryKey) else 64
    table = cost_table(LENGTHS, head_size=size)
    words, chart = st.columns([2, 3], gap="large")
    with words:
        st.markdown(COST)
    with chart:
        code = f"from attnviz.analysis.sparsity import cost_table\n\ncost_table({LENGTHS}, head_size={size})"
        _figure("cost", partial(figures_of.cost, table, width=560), table, None, code)
    st.dataframe(table, hide_index=True, column_config={name: _compact() for name in table.columns if name != "tokens"})


def _compact() -> Any:
    return st.column_config.NumberColumn(format="compact")


def _figure(name: str, chart: Any, table: Any, look: Look | None, code: str) -> None:
    """A chart with its files."""
    figures.show(chart(theme=figures.theme()))
    start = "" if look is None else f"import attnviz\n{code_head(look)}\n"
    offer(Result(name, chart, table, start + code))


def code_head(look: Look) -> str:
    """The lines that make trace and head."""
    return f"\n{lines.recorded(look.wanted)}\nhead = trace[{look.head.layer}, {look.head.head}]"


def _cells(one: Head, other: Head) -> Any:
    """One row a cell: both weights."""
    import torch

    query, key = torch.meshgrid(torch.arange(one.shape[0]), torch.arange(one.shape[1]), indexing="ij")
    import pandas as pd

    columns = {"query": query, "key": key, "one": one.weights(), "other": other.weights()}
    return pd.DataFrame({name: value.flatten().tolist() for name, value in columns.items()})


CODE = {
    "gradients": """\
from attnviz.analysis.theory import scaling

view = head.view.view
scores = view.query[0, 0, -1] @ view.key[0, 0].T
scaling(scores, [1, 1 / view.scale])""",
    "mask": """\
from attnviz.analysis.theory import masked

view = head.view.view
scores = view.query[0, 0] @ view.key[0, 0].T * view.scale
masked(scores, scores.isfinite().tril())""",
    "order": """\
from attnviz.analysis.theory import shuffled

view = head.view.view
query, key = view.query[0, 0], view.key[0, 0]
shuffled(query, key, list(range(len(query)))[::-1])""",
    "heads": """\
from attnviz.analysis.theory import one_head_or_many

view = trace.view(head.layer).view
query, key = (part[0].transpose(0, 1).flatten(1) for part in (view.query, view.key))
one_head_or_many(query, key, view.query.shape[1])""",
}
"""The lines behind each figure, once trace and head are there."""

TOPICS = {
    "Scaling": _scaling,
    "Gradients": _gradients,
    "Mask": _mask,
    "Order": _order,
    "Heads": _heads,
    "Cost": _cost,
}
