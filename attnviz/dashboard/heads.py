"""Heads: all of them at once, and the selected one beside them."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from .. import charts
from ..analysis.roles import prefix_matching
from . import exports, figures, runs
from .address import asked_of_address, warn_beyond, warn_unknown
from .controls import choose, keep_range, switch
from .jobs import READING, Job
from .lines import written
from .network import computed, network
from .results import Result, offer
from .selection import row_of, select_head
from .sidebar import Look, heads_table
from .statistics import PROBED, STATISTICS, title
from .waiting import obtain

if TYPE_CHECKING:
    import pandas as pd

PLACE = ("layer", "head")
GRID, MAPS, TABLE = "Grid", "Maps", "Table"
LABELS = {GRID: "Colour by", MAPS: "Choose by", TABLE: "Sort by"}
"""What the statistic is for."""


def draw(look: Look) -> None:
    """The page."""
    table = heads_table(look)
    left, right = st.columns([3, 2], gap="large")
    with left:
        with st.container(horizontal=True, vertical_alignment="bottom"):
            view = switch("View", [GRID, MAPS, TABLE], "view", label_visibility="collapsed")
            column = choose(LABELS[view], offered(look, table), "by", words=title, width=210)
            filter_place = st.container(width="content")
        table = _probed(look, table) if column in PROBED else table
        with filter_place:
            kept = _kept(table, column)
        said = STATISTICS[column][1] if view != MAPS else ""
        st.caption(f"{said} {told(len(kept), len(table))}")
        {GRID: _grid, MAPS: _maps, TABLE: _table}[view](look, kept, column)
    with right:
        figures.show(charts.heatmap(look.head, theme=figures.theme(), width=figures.fit(376, figures.LEGEND)))
        _numbers(look, table)
        exports.offer(look, "heatmap", **exports.place_of(look.head))


def offered(look: Look, table: pd.DataFrame) -> list[str]:
    """The statistics that there are, and those that running the model again would give."""
    runs_again = not look.wanted.saved and look.kind == "self"
    known = {name for name in table if table[name].notna().any()}
    return [name for name in STATISTICS if name in known or (runs_again and name in PROBED)]


def told(kept: int, count: int) -> str:
    """How many heads are shown, where that is not all."""
    return "" if kept == count else f"{kept:,} of {count:,} heads are in the range."


def _probed(look: Look, table: pd.DataFrame) -> pd.DataFrame:
    """The table with what repeated random tokens show."""
    model, tokenizer = network(look.wanted)
    found = computed((look.wanted.model, "repeated"), partial(_repeated, model, tokenizer))
    return table.merge(found, on=list(PLACE), how="left")


def _repeated(model: Any, tokenizer: Any, job: Job) -> pd.DataFrame:
    stage = "Running random tokens that repeat"
    job.step(stage)
    return prefix_matching(runs.twin(model), tokenizer, progress=lambda done, total: job.step(stage, done / total))


def _kept(table: pd.DataFrame, column: str) -> pd.DataFrame:
    """The heads whose statistic lies in the range that was chosen; all of them at first."""
    values = table[column].dropna()
    low, high = math.floor(values.min() * 1000) / 1000, math.ceil(values.max() * 1000) / 1000
    if not low < high:
        return table
    key, label = f"{column}_range", f"{title(column)} from and to"
    keep_range(key, low, high)
    with st.popover("Range", icon=":material/filter_alt:"):
        whole: Any = None if key in st.session_state else (low, high)  # what the session says goes before a default
        asked = asked_of_address(key)
        first, last = st.slider(label, low, high, whole, 0.001, "%.3f", key=key, bind="query-params")
    warn_beyond(label, asked, low, high, f"{first:.3f} to {last:.3f}")
    return table if (first, last) == (low, high) else table[table[column].between(first, last)]


def _grid(look: Look, table: pd.DataFrame, column: str) -> None:
    wide, theme = figures.wide_of(table), figures.theme()
    grid = charts.head_grid(look.trace, column, table=table, theme=theme, width=wide)
    figures.clickable(figures.framed(grid, look.head), "grid", select_head, PLACE)
    if column in PROBED:
        whole = _probed(look, heads_table(look))
        chart = partial(charts.head_grid, look.trace, column, table=whole)
        line = exports.command(look, "heads", {"column": column})
        offer(Result("heads", chart, whole, probed_python(look, column), line))
    else:
        exports.offer(look, "heads", column=column)


def probed_python(look: Look, column: str) -> str:
    """The lines that run random tokens that repeat."""
    made = (
        f"model, tokenizer = attnviz.load_model({look.wanted.model!r})",
        *exports.trace_lines(look),
        'table = trace.heads().merge(prefix_matching(model, tokenizer), on=["layer", "head"], how="left")',
    )
    imports = ("from attnviz.analysis.roles import prefix_matching",)
    return written(imports, made, f"charts.head_grid(trace, {column!r}, table=table)", "heads")


def _maps(look: Look, table: pd.DataFrame, _: str) -> None:
    label = "One scale of colours for all heads"
    warn_unknown(label, ["false", "true"], "shared")
    shared = st.toggle(label, key="shared", bind="query-params")
    key = (look.wanted, look.kind, look.trace.batch, "maps")
    maps = obtain(runs.traces(), key, partial(_small_maps, look.trace), runs.maps_bytes, READING)
    kept = {place: maps[place] for place in zip(table["layer"], table["head"], strict=True)}
    chart = charts.thumbnails(
        look.trace, shared=shared, maps=kept, theme=figures.theme(), width=figures.small_maps(table)
    )
    figures.clickable(figures.framed(chart, look.head), "maps", select_head, PLACE)
    exports.offer(look, "thumbnails", **({"shared": True} if shared else {}))


def _small_maps(trace: Any, job: Job) -> Any:
    stage = "Drawing every head's map"
    return charts.small_maps(trace, lambda done, total: job.step(stage, done / total))


def _table(_: Look, table: pd.DataFrame, column: str) -> None:
    ordered = table.sort_values(column, ascending=False)[[*PLACE, column, *table.columns.drop([*PLACE, column])]]

    def picked() -> None:
        row = row_of("table", len(ordered))
        if row is not None:
            select_head(ordered.iloc[row])

    numbers = {name: st.column_config.NumberColumn(title(name), format="%.3f") for name in ordered.columns[2:]}
    st.dataframe(
        ordered,
        hide_index=True,
        key="table",
        on_select=picked,
        selection_mode="single-row",
        column_config=numbers,
        height=520,
    )


def _numbers(look: Look, table: pd.DataFrame) -> None:
    row: Any = table[(table["layer"] == look.head.layer) & (table["head"] == look.head.head)].iloc[0]
    with st.container(horizontal=True):
        st.metric("Entropy", f"{row['entropy']:.2f} nats", width="content")
        st.metric("Largest weight", f"{row['largest']:.3f}", width="content")
        st.metric("First token", f"{row['first']:.3f}", width="content")
