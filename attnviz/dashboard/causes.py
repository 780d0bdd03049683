"""Causes: what the output rests on, from possible paths to what happens when a head falls silent."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from .. import charts
from ..analysis.ablation import HOW, Effect
from ..analysis.cases import Case, case, next_tokens, predicts
from ..analysis.flow import rollout
from ..analysis.heads import is_punctuation
from ..charts import titles
from . import causing, exports, figures, lines
from .address import asked_of_address
from .boxes import text_box
from .causing import HEAD, HEADS, LIMITS, RELEVANCE, ROLLOUT, SLOW, Scores
from .controls import position, switch
from .lines import Asked
from .network import computed, network, wait_for_click
from .results import Result, listed, offer
from .safe import plain
from .selection import select_head, select_token
from .sidebar import Look
from .strip import strip

if TYPE_CHECKING:
    from ..tokens import Token

SECOND = "She put her money into the bank."
"""The text encoders compare with when none was chosen."""


def draw(look: Look) -> None:
    """The page."""
    method = switch("Method", list(LIMITS), "method", label_visibility="collapsed")
    st.caption(LIMITS[method])
    if method == ROLLOUT:
        token = _token(look)
        found = rollout(look.trace, token)
        _tokens(
            look,
            Scores(found.tokens, found.scores.tolist()),
            titles.flow("rollout", token, titles.source(look.trace.model, look.trace.text)),
            Asked(method, token),
        )
        return
    model, tokenizer = network(look.wanted)
    question = _question(look, model, tokenizer)
    _measured(look, method, question, case(model, tokenizer, look.wanted.text, **question))


def _question(look: Look, model: Any, tokenizer: Any) -> dict[str, str]:
    """What is asked about the output, as keyword arguments of `case`, with the box that chooses it."""
    if predicts(model):
        inputs = tokenizer(look.wanted.text, return_tensors="pt")
        return {"target": _target(tokenizer, computed((look.wanted, "next"), lambda _: next_tokens(model, inputs)))}
    second, _ = text_box("Second text, to be similar to", SECOND, "second", st.text_input)
    return {"second": second.strip() or SECOND}


def _target(tokenizer: Any, offered: list[tuple[int, float]]) -> str:
    """A next token: one of the likeliest, or one that is typed in."""
    words = {lines.visible(tokenizer.decode([index])): share for index, share in offered}
    asked_of_address("target")
    likely = ", ".join(f"{word} {share:.0%}" for word, share in list(words.items())[:5])
    with st.container(horizontal=True, vertical_alignment="bottom"):
        chosen: str = st.selectbox(
            "Next token to explain", list(words), key="target", accept_new_options=True, bind="query-params", width=260
        )
        st.text(f"likeliest: {likely}")
    return lines.hidden(chosen)


def _measured(look: Look, method: str, question: dict[str, str], found: Case) -> None:
    """Everything that runs the model again."""
    how, token = "zero", 0
    if method in (HEAD, HEADS):
        how = switch("The head writes", HOW[:2], "how", words={"zero": "nothing", "mean": "its mean"}.__getitem__)
    if method == RELEVANCE:
        token = _token(look)
    place = (look.head.layer, look.head.head)
    key = (look.wanted, method, tuple(question.items()), how, token, look.kind, method == HEAD and place)
    if method in SLOW:
        wait_for_click(f"Compute {method.lower()}", key, f"Explains the {found.about}; runs the model many times.")
    asked = Asked(method, token, how, question, look.kind)
    if method == HEAD:
        _effect(look, found, computed(key, partial(causing.one_head, found, *place, how, look.kind)), asked)
    elif method == HEADS:
        _heads(look, found, computed(key, partial(causing.each_head, found, how, look.kind)), asked)
    else:
        relevance = partial(causing.relevance, found, token, look.kind)
        work = relevance if method == RELEVANCE else partial(causing.attribution, found, method)
        _tokens(
            look,
            computed(key, work),
            titles.explained(causing.NAMES[method], found.about, asked.source(look.wanted)),
            asked,
        )


def _token(look: Look) -> int:
    """The token whose top state is explained, at first the last word."""
    if "token" not in st.session_state and "token" not in st.query_params:
        select_token(last_word(look.trace.tokens))
    with st.container(width=200):
        return position("Token", len(look.trace.tokens), "token")


def last_word(tokens: Sequence[Token]) -> int:
    """The position of the last token that is neither special nor punctuation, 0 where there is none."""
    words = [place for place, token in enumerate(tokens) if not token.special and not is_punctuation(token)]
    return max(words, default=0)


def _tokens(look: Look, found: Scores, title: dict[str, str], asked: Asked) -> None:
    left, right = st.columns([3, 2], gap="large")
    chart = partial(charts.token_bars, found.tokens, found.scores, title)
    table = found.table()
    with left:
        if not found.converged:
            st.warning(plain(found.remark), icon=":material/warning:")
        elif found.remark:
            st.text(found.remark)
        figures.show(chart(theme=figures.theme(), width=figures.fit(600, 100)))
        figure = f"charts.token_bars(found.tokens, found.scores.tolist(), {title!r})"
        offer(Result(asked.name, chart, table, *_lines(look, asked, figure)))
    with right:
        if asked.method in (ROLLOUT, RELEVANCE):
            label = "Tokens shaded by score"
            strip(found.tokens, found.scores, asked.token, key="tokens", label=label, pick=select_token)
        st.dataframe(table, hide_index=True, column_config={"score": st.column_config.NumberColumn(format="%.4f")})


def _effect(look: Look, found: Case, effect: Effect, asked: Asked) -> None:
    st.text(f"Layer {look.head.layer}, head {look.head.head}: {found.about}")
    with st.container(horizontal=True):
        st.metric("With the head", f"{effect.before:.4f}", width="content")
        st.metric("Without it", f"{effect.after:.4f}", width="content")
        st.metric("Change", f"{effect.change:+.4f}", width="content")
    chart = partial(charts.heatmap, look.head)
    figures.show(chart(theme=figures.theme(), width=figures.fit(420, figures.LEGEND)))
    table = causing.effect_table(look.head, asked.how, effect)
    figure = f"charts.heatmap(trace[{look.head.layer}, {look.head.head}])"
    offer(Result(asked.name, chart, table, *lines.causes(look.wanted, look.head, asked, figure)))


def _heads(look: Look, found: Case, table: Any, asked: Asked) -> None:
    left, right = st.columns([3, 2], gap="large")
    title = titles.silenced(asked.how, found.about, asked.source(look.wanted))
    chart = partial(charts.change_grid, table, "change", title)
    with left:
        st.text(f"{found.about}: {table['before'].iloc[0]:.4f} with all heads")
        grid = figures.framed(chart(theme=figures.theme(), width=figures.wide_of(table)), look.head)
        figures.clickable(grid, "grid", select_head, ("layer", "head"))
        figure = f'charts.change_grid(table, "change", {title!r})'
        offer(Result(asked.name, chart, table, *lines.causes(look.wanted, look.head, asked, figure)))
    with right:
        listed(table, "changes")


def _lines(look: Look, asked: Asked, figure: str) -> tuple[str, str]:
    """Python and command line of scores of tokens; rollout needs no model."""
    if asked.method != ROLLOUT:
        return lines.causes(look.wanted, look.head, asked, figure)
    made = (*exports.trace_lines(look), f"found = rollout(trace, {asked.token})")
    python = lines.written(("from attnviz.analysis.flow import rollout",), made, figure, asked.name)
    words = (*exports.source_words(look), f"--token={asked.token}", "-o", f"{asked.name}.svg")
    return python, "" if look.trace.batch else lines.command("rollout", *words, texts=exports.texts_of(look))
