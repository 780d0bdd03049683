"""Dependencies: which heads look from a word to its syntactic head, relation by relation."""

from __future__ import annotations

from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..analysis.answers import sentences
from ..analysis.dependencies import DIRECTIONS, Dependencies
from ..analysis.documents import Document
from ..charts import titles
from ..charts.annotated import arc_table, dependency_arcs
from ..errors import DataError
from . import annotated, figures
from .controls import choose, switch
from .given import given
from .lines import command, written
from .network import computed, network
from .results import Result, listed, offer
from .selection import select_head
from .sidebar import Look

EXAMPLE = """\
1  The    the    DET    _  _  2  det    _  _
2  cat    cat    NOUN   _  _  3  nsubj  _  _
3  chased chase  VERB   _  _  0  root   _  _
4  a      a      DET    _  _  5  det    _  _
5  mouse  mouse  NOUN   _  _  3  obj    _  _

1  She    she    PRON   _  _  2  nsubj  _  _
2  saw    see    VERB   _  _  0  root   _  _
3  the    the    DET    _  _  5  det    _  _
4  old    old    ADJ    _  _  5  amod   _  _
5  house  house  NOUN   _  _  2  obj    _  _
"""
NOTE = (
    "CoNLL-U: one word a line in ten columns; the seventh is the word's head, the eighth the relation. In this box"
    " spaces may stand for tabs. The text on the left is not used here."
)
LIMIT = "A high score means that positions agree; the best fixed offset beside it shows how much of that is word order."
FEW = 20
"""Relations with fewer arcs are left out of the table of larger files."""


def draw(look: Look) -> None:
    """The page."""
    st.caption(NOTE)
    documents = given(
        "conllu", EXAMPLE, annotated.typed_conllu, (".conllu", ".txt"), annotated.uploaded_conllu, height=150
    )
    model, tokenizer = network(look.wanted)
    found = computed((look.wanted.model, documents), partial(annotated.score_arcs, documents, model, tokenizer))
    direction = switch("Direction", DIRECTIONS, "direction", label_visibility="collapsed")
    _sentence(look, documents, model, tokenizer, direction)
    left, right = st.columns([3, 2], gap="large")
    with left:
        _grid(look, found, direction)
    with right:
        _relations(found)


def _sentence(look: Look, documents: tuple[Document, ...], model: Any, tokenizer: Any, direction: str) -> None:
    parts = sentences(documents)
    names = [f"{place} {' '.join(part.words[:8])}" for place, part in enumerate(parts, 1)]
    place = names.index(choose("Sentence", names, "sentence", width=480))
    part = parts[place]
    if part.heads is None:
        raise DataError(f"{part.name} has no syntactic heads and relations: give CoNLL-U with HEAD and DEPREL")
    key = (look.wanted.model, part, "window")
    window = computed(key, partial(annotated.first_window, part, model, tokenizer), 1 << 22)
    layer, head = look.head.layer, look.head.head
    drawn = dependency_arcs(window, layer, head, direction)
    title = titles.answers(layer, head, look.trace.model, direction)
    chart = partial(charts.arcs, window.document.words, drawn, title=title)
    figures.show(chart(theme=figures.theme()))
    code = arcs_python(look.wanted.model, place, (layer, head), direction, title)
    flags = ("--sentence", str(place), "--layer", str(layer), "--head", str(head), f"--direction={direction}")
    line = command("deps", look.wanted.model, "sentences.conllu", *flags, "-o", "dependency-arcs.svg")
    offer(Result("dependency-arcs", chart, arc_table(drawn), code, line))


def _grid(look: Look, found: Dependencies, direction: str) -> None:
    relation = choose("Relation", found.relations(1), "relation", width=320)
    table = found.heads_on(relation, direction)
    title = titles.arcs(relation, direction, look.wanted.model)
    chart = partial(charts.score_grid, table, "accuracy", title)
    figure = f'charts.score_grid(table, "accuracy", {title!r})'
    grid = figures.framed(chart(theme=figures.theme(), width=figures.wide_of(table)), look.head)
    figures.clickable(grid, "grid", select_head, ("layer", "head"))
    st.caption(LIMIT)
    code = python(look.wanted.model, relation, direction, figure)
    flags = (f"--relation={relation}", f"--direction={direction}")
    line = command("deps", look.wanted.model, "sentences.conllu", *flags, "-o", "dependencies.svg")
    offer(Result("dependencies", chart, table, code, line))
    listed(table.head(8), "best")


def _relations(found: Dependencies) -> None:
    st.subheader("Best head of each relation", anchor=False)
    if found.arcs["sentence"].nunique() < 2:
        st.text("A head is chosen on one half of the sentences and scored on the other: this needs two sentences.")
        return
    st.caption("Chosen on one half of the sentences, scored on the other, both ways.")
    listed(found.table(FEW if len(found.arcs) > 10 * FEW else 1), "relations")


def python(model: str, relation: str, direction: str, figure: str) -> str:
    """The lines that give the table, from a file of the same sentences."""
    made = (
        f"model, tokenizer = attnviz.load_model({model!r})",
        'found = dependencies(read("sentences.conllu"), model, tokenizer)',
        f"table = found.heads_on({relation!r}, {direction!r})",
    )
    imports = (
        "from attnviz.analysis.dependencies import dependencies",
        "from attnviz.analysis.readers import read",
    )
    return written(imports, made, figure, "dependencies")


def arcs_python(model: str, place: int, head: tuple[int, int], direction: str, title: titles.Title) -> str:
    """The lines that draw the sentence at a place of a file of the same sentences."""
    made = (
        f"model, tokenizer = attnviz.load_model({model!r})",
        f'sentence = sentences(read("sentences.conllu"))[{place}]',
        f"window = next(windows(sentence, model, tokenizer, {annotated.WINDOW}))",
        f"arcs = dependency_arcs(window, *{head}, {direction!r})",
    )
    imports = (
        "from attnviz.analysis.answers import sentences",
        "from attnviz.analysis.readers import read",
        "from attnviz.analysis.windows import windows",
        "from attnviz.charts.annotated import dependency_arcs",
    )
    figure = f"charts.arcs(window.document.words, arcs, title={title!r})"
    return written(imports, made, figure, "dependency-arcs")
