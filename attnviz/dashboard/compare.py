"""Compare: two heads, two texts or two models side by side, and their difference."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import streamlit as st

from .. import charts
from ..analysis.compare import Comparison, Pair, compare_heads, same_places, with_every
from ..charts import titles
from ..head import Head
from ..numbers import many
from ..trace import Trace
from . import comparing, exports, figures, lines, runs
from .boxes import text_box
from .choices import offered
from .controls import choose, choose_number, switch
from .network import computed, network, wait_for_click
from .places import Place
from .results import Result, listed, offer
from .runs import Wanted
from .safe import plain
from .selection import select_head
from .settings import AUTO_TOKENS, settings
from .sidebar import Look, told
from .waiting import obtain
from .zoom import linked, open_look

HEADS, TEXTS, MODELS = "Two heads", "Two texts", "Two models"
OTHER = "The bank of the city was robbed, so she walked to the bank to deposit her money."
LIMIT = (
    "Distance: square root of the Jensen-Shannon divergence, 0 for the same row and 1 for rows without a common key."
    " Close maps do not mean that heads do the same: what they read and write may differ."
)


def draw(look: Look) -> None:
    """The page."""
    mode = switch("Compare", [HEADS, TEXTS, MODELS], "mode", label_visibility="collapsed")
    wanted, trace, other = {HEADS: _head, TEXTS: _text, MODELS: _model}[mode](look)
    problem = comparing.mismatch(look.head.rows, other.rows) or comparing.mismatch(look.head.cols, other.cols)
    places = (
        Place(look.wanted, look.kind, look.trace.batch, look.head.layer, look.head.head),
        Place(wanted, trace.kinds[0], trace.batch, other.layer, other.head),
    )
    open_look()
    columns = st.columns(2, gap="large")
    for column, place, head, title in zip(columns, places, (look.head, other), ("First", "Second"), strict=True):
        with column:
            st.subheader(f"{title}: layer {head.layer}, head {head.head}", anchor=False)
            st.caption(plain(head.model))
            linked(place, head, key=title, group=title if problem else "compared")
    if problem:
        st.info(problem, icon=":material/info:")
        return
    _difference(look, wanted, other, places)
    pairs = with_every(look.head, trace) if mode == HEADS else same_places(look.trace, trace)
    _every(look, wanted, other, pairs, mode)


def _head(look: Look) -> tuple[Wanted, Trace, Head]:
    with st.container(horizontal=True, width=320):
        layer = choose_number("Second layer", look.trace.layers, "layer2", look.head.layer)
        numbers = look.trace.record(layer).head_numbers
        head = choose_number("Second head", numbers, "head2", beside(numbers, look.head.head))
    return look.wanted, look.trace, look.trace[layer, head]


def beside(numbers: Sequence[int], head: int) -> int:
    """The head that comes after, or before the last."""
    return next((number for number in numbers if number > head), numbers[max(len(numbers) - 2, 0)])


def _text(look: Look) -> tuple[Wanted, Trace, Head]:
    model, tokenizer = network(look.wanted)
    text, name = text_box("Second text", OTHER, "text2", height=80)
    return _run(look, Wanted(look.wanted.model, text or OTHER, name), model, tokenizer)


def _model(look: Look) -> tuple[Wanted, Trace, Head]:
    names = [name for name in offered(settings()) if name != look.wanted.model]
    wanted = Wanted(choose("Second model", names, "model2", width=320), look.wanted.text)
    if wanted.saved:
        wanted = Wanted(wanted.model, "", version=runs.version_of(wanted.model))
        return _place(look, wanted, obtain(runs.traces(), wanted, partial(runs.open_trace, wanted.model)))
    model, tokenizer = network(wanted)
    return _run(look, wanted, model, tokenizer)


def _run(look: Look, wanted: Wanted, model: Any, tokenizer: Any) -> tuple[Wanted, Trace, Head]:
    count = runs.count_tokens(tokenizer, wanted.text)
    cost = runs.cost(model, count)
    runs.check_length(count, cost)
    if count > AUTO_TOKENS:
        wait_for_click(f"Record {many(count, 'token')}", wanted, told(count, cost))
    return _place(look, wanted, obtain(runs.traces(), wanted, partial(runs.record, model, tokenizer, wanted)))


def _place(look: Look, wanted: Wanted, whole: Trace) -> tuple[Wanted, Trace, Head]:
    """The head at the same place in another run, or the nearest there is."""
    trace = whole.only(look.kind) if look.kind in whole.kinds else whole.only(whole.kinds[0])
    layer = min(trace.layers, key=lambda number: abs(number - look.head.layer))
    head = min(trace.record(layer).head_numbers, key=lambda number: abs(number - look.head.head))
    return wanted, trace, trace[layer, head]


def _difference(look: Look, wanted: Wanted, other: Head, places: tuple[Place, Place]) -> None:
    left, right = st.columns([3, 2], gap="large")
    with left:
        st.subheader("Second less first", anchor=False)
        st.caption("Blue where the first looks more, orange where the second does. The three maps move together.")
        linked(places[0], look.head, key="difference", group="compared", other=places[1])
    with right:
        found = _distances(look.head, other, places)
        table = found.table()
        st.metric("Mean distance of rows", f"{found.mean:.3f}", width="content")
        st.caption(LIMIT)
        st.dataframe(table.round(4), hide_index=True, height=320)
    with left:
        chart = partial(charts.difference, look.head, other)
        code = python(look, wanted, other)
        offer(
            Result(
                "difference",
                chart,
                partial(charts.difference_table, look.head, other),
                code,
                command(look, wanted, other),
            )
        )


def _distances(head: Head, other: Head, places: tuple[Place, Place]) -> Comparison:
    """Row by row, as a job that waits for a click where it takes long."""
    key, count = (places, "rows"), comparing.cells([(head, other)])
    if count > comparing.CELLS:
        wait_for_click("Measure the distance", key, f"{count:,} weights are compared.")
    rows = computed(key, lambda _: compare_heads(head, other).distance, 4 * len(other.rows))
    return Comparison(head, other, rows)


def _every(look: Look, wanted: Wanted, other: Head, pairs: Sequence[Pair], mode: str) -> None:
    if not pairs:
        return
    place = (look.head.layer, look.head.head) if mode == HEADS else None
    key = (look.wanted, look.kind, look.trace.batch, wanted, mode, place, "distances")
    if comparing.cells(pairs) > comparing.CELLS:
        wait_for_click("Compare all heads", key, f"{comparing.cells(pairs):,} weights are compared.")
    table = computed(key, partial(comparing.measured, pairs))
    title = titles.distances(place, pairs)
    chart = partial(charts.score_grid, table, "distance", title)
    pick = _select_second if mode == HEADS else select_head
    left, right = st.columns([3, 2], gap="large")
    with left:
        drawn = chart(theme=figures.theme(), width=figures.wide_of(table))
        figures.clickable(figures.framed(drawn, other if mode == HEADS else look.head), "grid", pick, ("layer", "head"))
        code = every_python(look, wanted, other, place, title)
        offer(Result("distances", chart, table, code, every_command(look, wanted, other, place)))
    with right:
        listed(table, "distances", pick)


def _select_second(place: Any) -> None:
    st.session_state["layer2"], st.session_state["head2"] = int(place["layer"]), int(place["head"])


def python(look: Look, wanted: Wanted, other: Head) -> str:
    """The lines that compare the two heads."""
    places = f"trace[{look.head.layer}, {look.head.head}], second[{other.layer}, {other.head}]"
    made = (*_traces(look, wanted, other), f"one, other = {places}", "table = charts.difference_table(one, other)")
    return lines.written((), made, "charts.difference(one, other)", "difference")


def every_python(look: Look, wanted: Wanted, other: Head, place: tuple[int, int] | None, title: titles.Title) -> str:
    """The lines that give the table of heads."""
    if place is None:
        pairs, runs_read = "same_places(trace, second)", _traces(look, wanted, other)
    else:
        pairs, runs_read = f"with_every(trace[{place[0]}, {place[1]}], trace)", tuple(exports.trace_lines(look))
    figure = f'charts.score_grid(table, "distance", {title!r})'
    imports = (f"from attnviz.analysis.compare import distances, {pairs.partition('(')[0]}",)
    return lines.written(imports, (*runs_read, f"table = distances({pairs})"), figure, "distances")


def _traces(look: Look, wanted: Wanted, other: Head) -> tuple[str, ...]:
    if wanted == look.wanted:
        return (*exports.trace_lines(look), "second = trace")
    part = f".only({_kind(other)!r})" if _kind(other) != "self" else ""
    return (*exports.trace_lines(look), f"second = {lines.recorded(wanted).removeprefix('trace = ')}{part}")


def _kind(head: Head) -> str:
    return head.record.kind


def every_command(look: Look, wanted: Wanted, other: Head, place: tuple[int, int] | None) -> str:
    """The command line of the table of heads."""
    return _command(look, wanted, other, "distances.svg", _place_words(look.head) if place else ())


def command(look: Look, wanted: Wanted, other: Head) -> str:
    """The command line of the two heads."""
    second = f"{other.layer}.{other.head}"
    return _command(look, wanted, other, "difference.svg", (*_place_words(look.head), "--second", second))


def _command(look: Look, wanted: Wanted, other: Head, name: str, options: Sequence[str]) -> str:
    """ "" for later sequences of a batch and for two kinds of attention, which the command has no words for."""
    if look.trace.batch or _kind(other) != look.kind:
        return ""
    texts = exports.texts_of(look)
    if wanted.model != look.wanted.model:
        options = ("--with", wanted.model, *options)
    elif wanted != look.wanted:
        texts = [*texts, wanted.text]
    return lines.command("compare", *exports.source_words(look), *options, "-o", name, texts=texts)


def _place_words(head: Head) -> tuple[str, ...]:
    return ("--layer", str(head.layer), "--head", str(head.head))
