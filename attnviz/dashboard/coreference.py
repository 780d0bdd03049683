"""Coreference: which heads look from a mention to what it refers to, beside what simple rules find."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..analysis.answers import answer_of, pointing
from ..analysis.answers import asked as asked_of
from ..analysis.antecedents import CANDIDATES, Query
from ..analysis.windows import Window
from ..charts import titles
from ..charts.annotated import arc_table, coreference_arcs, mention_marks
from . import annotated, figures
from .controls import choose
from .given import given, one_of
from .lines import command, written
from .network import computed, network
from .results import Result, fixed, listed, offer
from .selection import select_head
from .sidebar import Look

EXAMPLE = "[Alice]1 met [the doctor]2 because [she]1 felt ill . [He]2 told [her]1 to rest ."
ENDINGS = (".txt", ".conll", ".conllu", ".tsv", ".jsonl")
NOTE = (
    "Brackets mark mentions, the number behind them says which belong together. The text on the left is not used here."
)
LIMIT = "A head that scores well puts its weight there; that the model uses what it finds is a question for ablation."


def draw(look: Look) -> None:
    """The page."""
    st.caption(NOTE)
    documents = given("marked", EXAMPLE, annotated.typed_brackets, ENDINGS, height=80)
    kind = choose("A head may choose", CANDIDATES, "candidates", words=lambda name: f"any {name}", width=320)
    model, tokenizer = network(look.wanted)
    found = computed((look.wanted.model, documents), partial(annotated.score, documents, model, tokenizer))
    document = one_of(documents)
    key = (look.wanted.model, document, "window")
    window = computed(key, partial(annotated.first_window, document, model, tokenizer), 1 << 22)
    asked = asked_of(window)
    if asked:
        _text(look, window, asked, kind, documents.index(document))
    left, right = st.columns([3, 2], gap="large")
    with left:
        _grid(look, found, kind)
    with right:
        _rules(found, kind)
    left, right = st.columns([3, 2], gap="large")
    if asked:
        with left:
            _mention(window, asked, kind)
    with right:
        st.subheader(f"Layer {look.head.layer}, head {look.head.head} in parts", anchor=False)
        parts = found.split(look.head.layer, look.head.head, kind)
        st.dataframe(parts, hide_index=True, column_config=fixed(parts))


def _text(look: Look, window: Window, asked: list[Query], kind: str, place: int) -> None:
    """The text with arcs; a click on a word chooses its mention."""
    layer, head = look.head.layer, look.head.head
    answers = [answer_of(window, query, kind, layer, head) for query in asked]
    drawn = coreference_arcs(window, asked, answers)
    marks, words = mention_marks(window.document), window.document.words
    title = titles.answers(layer, head, look.trace.model)

    def pick(point: dict[str, Any]) -> None:
        names = [name(window, query) for query in asked if query.word == int(point["word"])]
        if names:
            st.session_state["mention"] = names[0]

    chart = partial(charts.arcs, words, drawn, marks, title)
    figures.clickable(chart(theme=figures.theme()), "words", pick, ("word",))
    code = arcs_python(look.wanted.model, kind, place, (layer, head), title)
    flags = (
        f"--candidates={kind}",
        "--layer",
        str(layer),
        "--head",
        str(head),
        *(["--document", str(place)] if place else []),
    )
    line = command("coref", look.wanted.model, "texts.txt", *flags, "-o", "coreference-arcs.svg")
    offer(Result("coreference-arcs", chart, arc_table(drawn), code, line))


def name(window: Window, query: Query) -> str:
    """A mention by the position of its head word."""
    return f"{query.word} {window.document.words[query.word]}"


def _mention(window: Window, asked: list[Query], kind: str) -> None:
    names = [name(window, query) for query in asked]
    query = asked[names.index(choose("Mention", names, "mention"))]
    words = ", ".join(window.document.words[word] for word in query.gold)
    table = pointing(window, query, kind)
    st.text(f"{int(table['right'].sum())} of {len(table)} heads answer with an antecedent ({words})")
    listed(table.drop(columns="word"), "pointing")


def _grid(look: Look, found: Any, kind: str) -> None:
    table = found.table(kind)
    title = titles.antecedents(kind, look.wanted.model)
    chart = partial(charts.score_grid, table, "accuracy", title)
    figure = f'charts.score_grid(table, "accuracy", {title!r})'
    grid = figures.framed(chart(theme=figures.theme(), width=figures.wide_of(table)), look.head)
    figures.clickable(grid, "grid", select_head, ("layer", "head"))
    st.caption(LIMIT)
    line = command("coref", look.wanted.model, "texts.txt", f"--candidates={kind}", "-o", "coreference.svg")
    offer(Result("coreference", chart, table, python(look.wanted.model, kind, figure), line))


def _rules(found: Any, kind: str) -> None:
    st.subheader("Best heads", anchor=False)
    listed(found.table(kind).head(5), "best")
    st.subheader("Rules over the same candidates", anchor=False)
    rules = found.baselines(kind)
    st.dataframe(rules, hide_index=True, column_config=fixed(rules))


def python(model: str, kind: str, figure: str) -> str:
    """The lines that give the table, from a file of the same texts."""
    made = (
        f"model, tokenizer = attnviz.load_model({model!r})",
        f'table = coreference(read("texts.txt"), model, tokenizer).table({kind!r})',
    )
    imports = ("from attnviz.analysis.coreference import coreference", "from attnviz.analysis.readers import read")
    return written(imports, made, figure, "coreference")


def arcs_python(model: str, kind: str, place: int, head: tuple[int, int], title: titles.Title) -> str:
    """The lines that draw the text at a place of a file of the same texts."""
    made = (
        f"model, tokenizer = attnviz.load_model({model!r})",
        f'window = next(windows(read("texts.txt")[{place}], model, tokenizer, {annotated.WINDOW}))',
        "queries = asked(window)",
        f"answers = [answer_of(window, query, {kind!r}, *{head}) for query in queries]",
        "arcs = coreference_arcs(window, queries, answers)",
    )
    imports = (
        "from attnviz.analysis.answers import answer_of, asked",
        "from attnviz.analysis.readers import read",
        "from attnviz.analysis.windows import windows",
        "from attnviz.charts.annotated import coreference_arcs, mention_marks",
    )
    figure = f"charts.arcs(window.document.words, arcs, mention_marks(window.document), {title!r})"
    return written(imports, made, figure, "coreference-arcs")
