"""Walkthrough: what attention computes, step by step, on a toy example or on the selected head."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..analysis.sparsity import cost_table
from ..charts import lessons as figures_of
from ..export.data import scaling_table
from ..head import Head
from ..trace import Trace
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
    words, place = st.columns([2, 5], gap="large")
    with words:
        st.markdown(SCALING)
        if toy:
            chart = partial(charts.scaling, head, width=660)
            offer(
                Result(
                    "scaling",
                    chart,
                    scaling_table(head),
                    code(look, toy, (), "charts.scaling(head, width=660)", "scaling"),
                )
            )
        else:
            exports.offer(look, "scaling", **exports.place_of(head))
    with place:
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
        made = (f"table, divisor = lessons.gradients(head, {query})",)
        lines_of = code(look, toy, made, "charts.lessons.gradients(table, divisor, width=560)", "gradients")
        _figure(Result("gradients", partial(figures_of.gradients, table, divisor, width=560), table, lines_of))


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
    drawn = "charts.difference(found.without, found.with_mask, width=500)"
    lines_of = code(look, toy, ("found = lessons.masked(head)",), drawn, "mask")
    offer(Result("mask", chart, _cells(found.without, found.with_mask), lines_of))


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
            drawn = f'charts.difference(found.before, found.after, "Shuffled less before", {top!r}, width=460)'
            lines_of = code(look, toy, _shuffling(look, toy, positions), drawn, name)
            _figure(Result(name, chart, _cells(found.before, found.after), lines_of))


def _shuffling(look: Look, toy: bool, positions: bool) -> tuple[str, ...]:
    """The lines that shuffle."""
    if toy:
        return (f"found = lessons.shuffled_toy(head.head, {positions})",)
    place = (look.head.layer, look.head.head)
    return (
        f"model, tokenizer = attnviz.load_model({look.wanted.model!r})",
        f"wanted = lessons.Wanted({look.wanted.model!r}, {look.wanted.text!r})",
        f'found = lessons.shuffled_model(model, tokenizer, wanted, {place}, {positions}, Job("order"))',
    )


def _shuffled(look: Look, toy: bool, positions: bool) -> lessons.Shuffled:
    if toy:
        return lessons.shuffled_toy(look.head.head % 2, positions)
    model, tokenizer = network(look.wanted)
    place = (look.head.layer, look.head.head)
    work = partial(lessons.shuffled_model, model, tokenizer, look.wanted, place, positions)
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
        made = ("table = lessons.one_or_many(trace, head.layer)",)
        lines_of = code(look, toy, made, "charts.lessons.heads_and_one(table, width=560)", "one-or-many")
        _figure(Result("one-or-many", partial(figures_of.heads_and_one, table, width=560), table, lines_of))


def _cost(look: Look, toy: bool) -> None:
    view = _head(look, toy).view
    size = view.view.query.shape[-1] if isinstance(view, QueryKey) else 64
    table = cost_table(LENGTHS, head_size=size)
    words, chart = st.columns([2, 3], gap="large")
    with words:
        st.markdown(COST)
    with chart:
        made = (f"table = cost_table({LENGTHS}, head_size={size})",)
        imports = ("import attnviz.charts.lessons", "from attnviz.analysis.sparsity import cost_table")
        lines_of = lines.written(imports, made, "charts.lessons.cost(table, width=560)", "cost")
        _figure(Result("cost", partial(figures_of.cost, table, width=560), table, lines_of))
    st.dataframe(table, hide_index=True, column_config={name: _compact() for name in table.columns if name != "tokens"})


def _compact() -> Any:
    return st.column_config.NumberColumn(format="compact")


def _figure(result: Result) -> None:
    """A chart with its files."""
    figures.show(result.chart(theme=figures.theme()))
    offer(result)


def code(look: Look, toy: bool, made: Sequence[str], figure: str, name: str) -> str:
    """The lines of Python that make a figure from trace and head."""
    imports = (
        "import attnviz.charts.lessons",
        "from attnviz.dashboard import lessons",
        "from attnviz.dashboard.jobs import Job",
    )
    trace = ["trace = lessons.toy()"] if toy else exports.trace_lines(look)
    place = (0, look.head.head % 2) if toy else (look.head.layer, look.head.head)
    return lines.written(imports, (*trace, f"head = trace[{place[0]}, {place[1]}]", *made), figure, name)


def _cells(one: Head, other: Head) -> Any:
    """One row a cell: both weights."""
    import torch

    query, key = torch.meshgrid(torch.arange(one.shape[0]), torch.arange(one.shape[1]), indexing="ij")
    import pandas as pd

    columns = {"query": query, "key": key, "one": one.weights(), "other": other.weights()}
    return pd.DataFrame({name: value.flatten().tolist() for name, value in columns.items()})


TOPICS = {
    "Scaling": _scaling,
    "Gradients": _gradients,
    "Mask": _mask,
    "Order": _order,
    "Heads": _heads,
    "Cost": _cost,
}
