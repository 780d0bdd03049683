"""Taking a view along: files in every format, and the lines of Python and of the command line that make the same."""

from __future__ import annotations

import re
import shlex
from functools import partial

import streamlit as st

from ..export import FORMATS, Figure, Look, render
from ..trace import Head, Trace
from .runs import Wanted

MIME = {
    "svg": "image/svg+xml",
    "png": "image/png",
    "pdf": "application/pdf",
    "html": "text/html",
    "json": "application/json",
    "csv": "text/csv",
    "parquet": "application/vnd.apache.parquet",
}
STYLES = ("screen", "paper", "dark")


def offer(wanted: Wanted, view: str, source: Trace | Head) -> None:
    """A button that opens to the files and lines of one view."""
    shown = Figure(view, source)
    with st.popover("Export", icon=":material/download:", key=f"export_{view}"):
        style = st.segmented_control(
            "Style", STYLES, default="screen", required=True, key=f"style_{view}", label_visibility="collapsed"
        )
        with st.container(horizontal=True, gap="xsmall"):
            for kind in FORMATS:
                st.download_button(
                    kind,
                    partial(render, shown, kind, Look(style)),
                    file_name(shown, kind),
                    MIME[kind],
                    key=f"{view}_{kind}",
                    on_click="ignore",
                )
        st.code(python_lines(wanted, shown), "python", wrap_lines=True)
        st.code(command(wanted, shown), "bash", wrap_lines=True)


def file_name(shown: Figure, kind: str) -> str:
    """What the file is called: model, place and view."""
    head = f"-layer{shown.source.layer}-head{shown.source.head}" if isinstance(shown.source, Head) else ""
    model = re.sub(r"[^\w.-]+", "-", shown.source.model)
    return f"{model}{head}-{shown.name}.{kind}"


def python_lines(wanted: Wanted, shown: Figure) -> str:
    """The lines of Python that write the same figure."""
    made = f"attnviz.load({wanted.model!r})" if wanted.saved else f"attnviz.inspect({wanted.model!r}, {wanted.text!r})"
    place = f", layer={shown.source.layer}, head={shown.source.head}" if isinstance(shown.source, Head) else ""
    return "\n".join(
        (
            "import attnviz",
            "from attnviz.export import export, figure",
            "",
            f"trace = {made}",
            f'export(figure(trace, "{shown.name}"{place}), "{shown.name}.svg")',
        )
    )


def command(wanted: Wanted, shown: Figure) -> str:
    """The command line that writes the same figure."""
    words = ["attnviz", "export", wanted.model, *([] if wanted.saved else [wanted.text]), "--view", shown.name]
    if isinstance(shown.source, Head):
        words += ["--layer", str(shown.source.layer), "--head", str(shown.source.head)]
    return shlex.join([*words, "-o", f"{shown.name}.svg"])
