"""Walkthrough: what attention computes, step by step, on a toy example or on the selected head."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..charts import lessons as figures_of
from ..export.lessons import cells, costs, gradients, masked, one_or_many, toy
from . import exports, figures, lessons, lines
from .causes import last_word
from .controls import position, switch
from .network import computed, network
from .results import Result, offer
from .runs import Wanted
from .sidebar import Look
from .words import COST, GRADIENTS, HEADS, MASK, ORDER, SCALING

TOY, REAL = "Toy example", "This head"
IMPORTS = ("from attnviz.dashboard import lessons", "from attnviz.dashboard.jobs import Job")
"""What the lines need that shuffle."""


def draw(look: Look) -> None:
    """The page."""
    with st.container(horizontal=True):
        topic = switch("Topic", list(TOPICS), "topic", label_visibility="collapsed")
        source = switch("On", [REAL, TOY], "on", label_visibility="collapsed")
    TOPICS[topic](at_toy(look) if source == TOY else look)


def at_toy(look: Look) -> Look:
    """The toy in place of the model, with one of its two heads."""
    return Look(Wanted("toy", ""), toy(), toy()[0, look.head.head % 2], "self", toy())


def _scaling(look: Look) -> None:
    words, place = st.columns([2, 5], gap="large")
    with words:
        st.markdown(SCALING)
        exports.offer(look, "scaling", **exports.place_of(look.head))
    with place:
        figures.show(charts.scaling(look.head, theme=figures.theme(), width=660))


def _gradients(look: Look) -> None:
    head = look.head
    words, chart = st.columns([2, 3], gap="large")
    with words:
        st.markdown(GRADIENTS)
        with st.container(width=200):
            query = position("Token", len(head.rows), "token", last_word(head.rows))
        table, divisor = gradients(head, query)
        st.text(f"query {query} {head.rows[query].label}")
        _steps(table, divisor)
    with chart:
        figures.show(figures_of.gradients(table, divisor, theme=figures.theme(), width=560))
        exports.offer(look, "gradients", **exports.place_of(head), query=query)


def _steps(table: Any, divisor: float) -> None:
    """The same numbers not divided and divided."""
    rows = table[table["divisor"].isin([1.0, divisor])].rename(columns={"jacobian": "size of the Jacobian"})
    st.dataframe(rows.round(4), hide_index=True)


def _mask(look: Look) -> None:
    found = masked(look.head)
    st.markdown(MASK)
    st.text(f"largest change of the ratio of two visible weights: {found.change:.1e}")
    left, right = st.columns(2, gap="large")
    for column, title, head in ((left, "Without a mask", found.without), (right, "Causal mask", found.with_mask)):
        with column:
            st.subheader(title, anchor=False)
            figures.show(charts.heatmap(head, theme=figures.theme(), width=440))
    exports.offer(look, "mask", **exports.place_of(look.head))


def _order(look: Look) -> None:
    st.markdown(ORDER)
    both = [_shuffled(look, positions) for positions in (True, False)]
    top = max(0.01, *(found.change for found in both))
    for column, positions, found in zip(st.columns(2, gap="large"), (True, False), both, strict=True):
        with column:
            st.subheader(f"{'With' if positions else 'Without'} position information", anchor=False)
            st.metric("Largest change of a weight", f"{found.change:.4f}", width="content")
            chart = partial(charts.difference, found.before, found.after, "Shuffled less before", top)
            name = f"order-{'with' if positions else 'without'}-positions"
            drawn = f'charts.difference(found.before, found.after, "Shuffled less before", {top!r})'
            figures.show(chart(theme=figures.theme(), width=460))
            made = lines.written(IMPORTS, _shuffling(look, positions), drawn, name)
            offer(Result(name, chart, cells(found.before, found.after), made))


def _shuffling(look: Look, positions: bool) -> tuple[str, ...]:
    """The lines that shuffle."""
    if look.trace is toy():
        return (f"found = lessons.shuffled_toy({look.head.head}, {positions})",)
    place = (look.head.layer, look.head.head)
    return (
        f"model, tokenizer = attnviz.load_model({look.wanted.model!r})",
        f"wanted = lessons.Wanted({look.wanted.model!r}, {look.wanted.text!r})",
        f'found = lessons.shuffled_model(model, tokenizer, wanted, {place}, {positions}, Job("order"))',
    )


def _shuffled(look: Look, positions: bool) -> lessons.Shuffled:
    if look.trace is toy():
        return lessons.shuffled_toy(look.head.head, positions)
    model, tokenizer = network(look.wanted)
    place = (look.head.layer, look.head.head)
    work = partial(lessons.shuffled_model, model, tokenizer, look.wanted, place, positions)
    found: lessons.Shuffled = computed((look.wanted, place, positions, "shuffled"), work)
    return found


def _heads(look: Look) -> None:
    words, chart = st.columns([2, 3], gap="large")
    table = one_or_many(look.head)
    with words:
        st.markdown(HEADS)
        st.dataframe(table.round(3), hide_index=True, height=260)
    with chart:
        figures.show(figures_of.heads_and_one(table, theme=figures.theme(), width=560))
        exports.offer(look, "one-or-many", **exports.place_of(look.head))


def _cost(look: Look) -> None:
    table = costs(look.head)
    words, chart = st.columns([2, 3], gap="large")
    with words:
        st.markdown(COST)
    with chart:
        figures.show(figures_of.cost(table, theme=figures.theme(), width=560))
        exports.offer(look, "cost", **exports.place_of(look.head))
    st.dataframe(table, hide_index=True, column_config={name: _compact() for name in table.columns if name != "tokens"})


def _compact() -> Any:
    return st.column_config.NumberColumn(format="compact")


TOPICS = {
    "Scaling": _scaling,
    "Gradients": _gradients,
    "Mask": _mask,
    "Order": _order,
    "Heads": _heads,
    "Cost": _cost,
}
