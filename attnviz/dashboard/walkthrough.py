"""Walkthrough: what attention computes, step by step, on a toy example or on the selected head."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..charts import lessons as figures_of
from ..charts.scaling import KEYS
from ..export.lessons import costs, gradients, masked, one_or_many, toy
from ..export.shuffling import HOW, Both, order_chart, order_table, order_title, shuffled, shuffled_toy
from . import exports, figures, lines
from .causes import last_word
from .controls import position, switch
from .jobs import Job, watched
from .network import computed, network
from .results import Result, offer
from .runs import Wanted, twin
from .sidebar import Look
from .words import COST, GRADIENTS, HEADS, MASK, ORDER, SCALING

TOY, REAL = "Toy example", "This head"


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
    head, chosen = look.head, {}
    with words:
        st.markdown(SCALING)
        if max(head.shape) > KEYS:
            with st.container(width=200):
                chosen = {"query": position("Query", len(head.rows), "token", last_word(head.rows))}
        exports.offer(look, "scaling", **exports.place_of(head), **chosen)
    with place:
        figures.show(charts.scaling(head, **chosen, theme=figures.theme(), width=figures.fit(655)))


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
        figures.show(figures_of.gradients(table, divisor, theme=figures.theme(), width=figures.fit(560)))
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
            figures.show(charts.heatmap(head, theme=figures.theme(), width=figures.fit(440, figures.LEGEND)))
    exports.offer(look, "mask", **exports.place_of(look.head))


def _order(look: Look) -> None:
    st.markdown(ORDER)
    both = _shuffled(look)
    top = max(0.01, *(found.change for found in both))
    for column, how, found in zip(st.columns(2, gap="large"), HOW, both, strict=True):
        with column:
            st.subheader(f"{how.capitalize()} position information", anchor=False)
            st.metric("Largest change of a weight", f"{found.change:.4f}", width="content")
            title, theme = order_title(how), figures.theme()
            figures.show(
                charts.difference(
                    found.before, found.after, title, top, theme=theme, width=figures.fit(460, figures.LEGEND)
                )
            )
    chart, options = partial(order_chart, look.head, both), exports.place_of(look.head)
    offer(Result("order", chart, order_table(look.head, both), python(look), exports.command(look, "order", options)))


def python(look: Look) -> str:
    """The lines that shuffle."""
    layer, head = look.head.layer, look.head.head
    made = [*exports.trace_lines(look)]
    if look.trace is toy():
        made.append(f"both = shuffled_toy({head})")
    else:
        made.append(f"model, tokenizer = attnviz.load_model({look.wanted.model!r})")
        made.append(f"both = shuffled(model, tokenizer, trace.text, ({layer}, {head}), {look.wanted.model!r})")
    imports = ("from attnviz.export import figure", "from attnviz.export.shuffling import shuffled, shuffled_toy")
    return lines.written(imports, made, f'figure(trace, "order", {layer}, {head}, shuffled=both)', "order")


def _shuffled(look: Look) -> Both:
    if look.trace is toy():
        return shuffled_toy(look.head.head)
    model, tokenizer = network(look.wanted)
    place = (look.head.layer, look.head.head)
    found: Both = computed((look.wanted, place, "shuffled"), partial(_run, model, tokenizer, look.wanted, place))
    return found


def _run(model: Any, tokenizer: Any, wanted: Wanted, place: tuple[int, int], job: Job) -> Both:
    """The work of a job."""
    own = twin(model)
    with watched(own, job, "Reading the tokens"):
        return shuffled(own, tokenizer, wanted.text, place, wanted.model)


def _heads(look: Look) -> None:
    words, chart = st.columns([2, 3], gap="large")
    table = one_or_many(look.head)
    with words:
        st.markdown(HEADS)
        st.dataframe(table.round(3), hide_index=True, height=260)
    with chart:
        figures.show(figures_of.heads_and_one(table, theme=figures.theme(), width=figures.fit(560)))
        exports.offer(look, "one-or-many", **exports.place_of(look.head))


def _cost(look: Look) -> None:
    table = costs(look.head)
    words, chart = st.columns([2, 3], gap="large")
    with words:
        st.markdown(COST)
    with chart:
        figures.show(figures_of.cost(table, theme=figures.theme(), width=figures.fit(555)))
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
