"""Alignment: which cross-attention heads look from a word of the translation to its source, beside gold links."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from .. import charts
from ..analysis.alignment import (
    MOMENTS,
    Gold,
    alignment,
    by_rate,
    cells,
    check_links,
    parse_links,
    read_pair,
    word_map,
    words_of,
)
from ..charts import titles
from ..tokens import Word
from ..trace import Trace
from . import exports, figures, runs
from .boxes import text_box
from .cache import tensor_bytes
from .controls import switch
from .jobs import Job, watched
from .lines import command, written
from .network import computed, network
from .results import Result, fixed, listed, offer
from .selection import select_head
from .sidebar import Look
from .waiting import obtain

if TYPE_CHECKING:
    import pandas as pd

NEEDS = (
    "This page reads cross-attention: choose an encoder-decoder model from a folder below --model-root, or open a trace"
    ' of one, saved with trace.save("run.attn"), by: attnviz dashboard run.attn'
)
GOLD = "Gold links between words, source first: 0-0 1-2, or 3p4 for a possible one; leave it empty if you have none"
LONGEST = 64
"""Words of either text that are drawn."""
ROWS = {"producing": "Row before the word", "produced": "Row of the word"}
LARGEST, MUTUAL = "Each word's largest", "Mutual only"
IMPORTS = (
    "from attnviz.analysis.alignment import alignment, by_rate, cells, parse_links, read_pair, word_map, words_of",
)
MOMENT = (
    "The decoder reads a word one row after it chose it: the row before a word produced it, in its own row it was just"
    " produced."
)
LIMIT = (
    "Error rate: 0 where a head's links are the gold ones. A decoder needs more than the aligned word, so a high rate"
    " is no proof of a bad model."
)


@dataclass(frozen=True)
class Pair:
    """Cross-attention, and the words on its rows and columns. translation is what was typed, if anything."""

    trace: Trace
    targets: list[Word]
    sources: list[Word]
    translation: str = ""


def draw(look: Look) -> None:
    """The page."""
    if look.kind != "cross":
        st.info(NEEDS, icon=":material/info:")
        return
    pair = _pair(look)
    links = text_box(GOLD, "", "gold", st.text_input)[0].strip()
    if unfit := told(pair):
        st.info(unfit, icon=":material/info:")
        return
    gold = parse_links(links) if links else None
    if gold is not None:
        check_links(gold, pair.targets, pair.sources)
    st.caption(MOMENT)
    with st.container(horizontal=True):
        moment = switch("Row", MOMENTS, "moment", words=ROWS.__getitem__, label_visibility="collapsed")
        which = switch("Links", [LARGEST, MUTUAL], "which", label_visibility="collapsed")
    _head(look, pair, links, gold, moment, which)
    if gold is not None:
        _every(look, pair, links, gold, moment, which)


def told(pair: Pair) -> str:
    """What to say of texts that have no words, or too many; "" of others."""
    if not pair.targets or not pair.sources:
        return "There are no words to align: the model wrote none, so type a translation above."
    if max(len(pair.targets), len(pair.sources)) <= LONGEST:
        return ""
    return (
        f"Texts of up to {LONGEST} words are aligned here, these have {len(pair.sources)} and {len(pair.targets)}: use"
        " the map, which shows cross-attention at any length."
    )


def _pair(look: Look) -> Pair:
    """What the trace on the left has, or a translation that is typed, read by the same model."""
    if not look.wanted.saved:
        typed = text_box("Translation; empty for what the model writes itself", "", "translation", height=80)[0].strip()
        if typed:
            model, tokenizer = network(look.wanted)
            work = partial(read, model, tokenizer, look.wanted.text, typed)
            pair: Pair = obtain(runs.traces(), (look.wanted, typed, "pair"), work, tensor_bytes)
            return pair
    return Pair(look.trace, *words_of(look.trace))


def read(model: Any, tokenizer: Any, source: str, target: str, job: Job) -> Pair:
    """The cross-attention of a model that reads a translation."""
    own = runs.twin(model)
    with watched(own, job, "Reading both texts"):
        return Pair(*read_pair(own, tokenizer, source, target), target)


def _head(look: Look, pair: Pair, links: str, gold: Gold | None, moment: str, which: str) -> None:
    """One head: matrix and links."""
    layer, head = look.head.layer, look.head.head
    maps = word_map(pair.trace, layer, pair.targets, pair.sources, moment)
    at = pair.trace.record(layer).head_numbers.index(head)
    table = cells(maps[at], gold, which == MUTUAL)
    title = titles.head(layer, head, titles.source(look.trace.model))
    matrix = partial(charts.alignment_matrix, table, pair.targets, pair.sources, title)
    lines = partial(charts.alignment_links, table, pair.targets, pair.sources, title)
    left, right = st.columns([3, 2], gap="large")
    made = [*python(look, pair), f"weights = word_map(trace, {layer}, targets, sources, {moment!r})[{at}]"]
    made.append(f"table = cells(weights, {gold_line(gold)}, symmetric={which == MUTUAL})")
    drawn = f"(table, targets, sources, {title!r})"
    flags = (*_flags(links, moment, which), "--layer", str(layer), "--head", str(head))
    with left:
        st.caption(f"Dots: links of the head.{'' if gold is None else ' Frames: gold links, dashed: possible ones.'}")
        figures.show(matrix(theme=figures.theme(), width=figures.wide(len(pair.sources))))
        code = written(IMPORTS, made, f"charts.alignment_matrix{drawn}", "alignment-matrix")
        offer(Result("alignment-matrix", matrix, table, code, _command(look, pair, flags, "alignment-matrix")))
    with right:
        st.caption("Lines: links of the head." + ("" if gold is None else " Bands: gold links, pale: possible ones."))
        figures.show(lines(theme=figures.theme(), width=figures.fit(330)))
        code = written(IMPORTS, made, f"charts.alignment_links{drawn}", "alignment-links")
        line = _command(look, pair, (*flags, "--view=links"), "alignment-links")
        offer(Result("alignment-links", lines, table, code, line))


def _every(look: Look, pair: Pair, links: str, gold: Gold, moment: str, which: str) -> None:
    """The error rate of every head."""
    key = (look.wanted, look.trace.batch, pair.translation, links, moment, "alignment")
    table: pd.DataFrame = computed(
        key, lambda job: alignment(pair.trace, gold, pair.targets, pair.sources, moment=moment)
    )
    heads, column = by_rate(table, which == MUTUAL)
    means = table[table["head"] < 0].drop(columns="head").reset_index(drop=True)
    title = titles.alignment(moment, titles.source(look.trace.model))
    chart = partial(charts.score_grid, heads, column, title, low_is_best=True)
    left, right = st.columns([3, 2], gap="large")
    with left:
        grid = figures.framed(chart(theme=figures.theme(), width=figures.wide_of(heads)), look.head)
        figures.clickable(grid, "grid", select_head, ("layer", "head"))
        st.caption(LIMIT)
        made = [
            *python(look, pair),
            f"table = alignment(trace, {gold_line(gold)}, targets, sources, moment={moment!r})",
            f"heads, column = by_rate(table, mutual={which == MUTUAL})",
        ]
        figure = f"charts.score_grid(heads, column, {title!r}, low_is_best=True)"
        line = _command(look, pair, _flags(links, moment, which), "alignment")
        offer(Result("alignment", chart, heads, written(IMPORTS, made, figure, "alignment"), line))
    with right:
        st.subheader("Best heads", anchor=False)
        listed(heads.head(5), "best")
        st.subheader("Mean of a layer's heads", anchor=False)
        st.dataframe(means, hide_index=True, column_config=fixed(means))


def gold_line(gold: Gold | None) -> str:
    """The gold links in Python."""
    if gold is None:
        return "None"
    marks = [(link, "-") for link in sorted(gold.sure)] + [(link, "p") for link in sorted(gold.possible - gold.sure)]
    return f"parse_links({' '.join(f'{source}{mark}{target}' for (target, source), mark in marks)!r})"


def python(look: Look, pair: Pair) -> list[str]:
    """The lines that make trace, targets and sources."""
    if pair.translation:
        texts = f"{look.wanted.text!r}, {pair.translation!r}"
        return [
            f"model, tokenizer = attnviz.load_model({look.wanted.model!r})",
            f"trace, targets, sources = read_pair(model, tokenizer, {texts})",
        ]
    return [*exports.trace_lines(look), "targets, sources = words_of(trace)"]


def _flags(links: str, moment: str, which: str) -> tuple[str, ...]:
    """What a command is asked."""
    gold = (f"--gold={links}",) if links else ()
    return (*gold, f"--moment={moment}", *(("--mutual",) if which == MUTUAL else ()))


def _command(look: Look, pair: Pair, flags: Sequence[str], name: str) -> str:
    """The command line of a figure; "" for later sequences of a batch, which it has no word for."""
    if look.trace.batch:
        return ""
    texts = [*exports.texts_of(look), *([pair.translation] if pair.translation else [])]
    return command("align", exports.source_words(look)[0], *flags, "-o", f"{name}.svg", texts=texts)
