"""Taking a result along: what an analysis found as files in every format, and the lines that make the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from ..export import FORMATS, render
from .exports import MIME, NUMBERS, STYLES
from .selection import row_of, select_head

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Result:
    """A figure, made by `chart(theme=...)`, the table behind it or what makes that, and the Python and command line
    that make both."""

    name: str
    chart: Callable[..., Any]
    table: pd.DataFrame | Callable[[], pd.DataFrame]
    python: str
    command: str = ""


def offer(result: Result) -> None:
    """A button that opens to the files and lines of a result."""
    name = result.name
    with st.popover("Export", icon=":material/download:", key=f"export_{name}"):
        style = st.segmented_control(
            "Style", STYLES, default="screen", required=True, key=f"style_{name}", label_visibility="collapsed"
        )
        with st.container(horizontal=True, gap="xsmall"):
            for kind in FORMATS:
                st.download_button(
                    kind,
                    partial(file, result, kind, style),
                    f"{name}.{kind}",
                    MIME[kind],
                    key=f"{name}_{kind}",
                    on_click="ignore",
                )
        st.code(result.python, "python", wrap_lines=True)
        if result.command:
            st.code(result.command, "bash", wrap_lines=True)


def file(result: Result, kind: str, style: str) -> bytes:
    """The figure, or for formats of numbers the table behind it, as a file."""
    if kind not in NUMBERS:
        return render(result.chart(theme=style), kind)
    return render(result.table() if callable(result.table) else result.table, kind)


def fixed(table: pd.DataFrame, digits: int = 4) -> dict[str, Any]:
    """Columns of fractions with the same number of digits in every row, for `column_config`."""
    fractions = [name for name in table if table[name].dtype.kind == "f"]
    return {str(name): st.column_config.NumberColumn(format=f"%.{digits}f") for name in fractions}


def listed(table: pd.DataFrame, key: str, pick: Callable[[Any], None] = select_head) -> None:
    """A table of heads; `pick` gets the row that is chosen, by default to look at its head."""

    def picked() -> None:
        row = row_of(key, len(table))
        if row is not None:
            pick(table.iloc[row])

    st.dataframe(
        table,
        hide_index=True,
        column_config=fixed(table),
        key=key,
        on_select=picked,
        selection_mode="single-row",
        height=min(420, 38 + 35 * len(table)),
    )
