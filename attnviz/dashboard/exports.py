"""Taking a view along: files in every format, and the lines of Python and of the command line that make the same."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from ..export import FORMATS, Figure, Look, figure, render
from ..export.data import CELLS
from ..export.lessons import toy
from ..head import Head
from . import lines

if TYPE_CHECKING:
    from . import sidebar

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
NUMBERS = ("json", "csv", "parquet")


def offer(look: sidebar.Look, view: str, **options: Any) -> None:
    """A button that opens to the files and lines of one view; options are those of `figure`."""
    key = f"{view}_of_head" if "layer" in options else view
    with st.popover("Export", icon=":material/download:", key=f"export_{key}"):
        style = st.segmented_control(
            "Style", STYLES, default="screen", required=True, key=f"style_{key}", label_visibility="collapsed"
        )
        too_many = too_many_numbers(look, view)
        with st.container(horizontal=True, gap="xsmall"):
            for kind in FORMATS:
                st.download_button(
                    kind,
                    partial(_file, look, view, options, kind, style),
                    file_name(look, view, options, kind),
                    MIME[kind],
                    key=f"{key}_{kind}",
                    on_click="ignore",
                    disabled=kind in NUMBERS and bool(too_many),
                )
        if too_many:
            st.caption(too_many)
        st.code(python_lines(look, view, options), "python", wrap_lines=True)
        if line := command(look, view, options):
            st.code(line, "bash", wrap_lines=True)


def _file(look: sidebar.Look, view: str, options: dict[str, Any], kind: str, style: str) -> bytes:
    return render(shown(look, view, options), kind, Look(style))


def shown(look: sidebar.Look, view: str, options: dict[str, Any]) -> Figure:
    """The figure of a view."""
    return figure(look.trace, view, **options)


def too_many_numbers(look: sidebar.Look, view: str) -> str:
    """What to say where a map has too many weights for a table, else ""."""
    rows, cols = look.head.shape
    if view not in ("heatmap", "map") or rows * cols <= CELLS:
        return ""
    return f"Tables hold up to {CELLS:,} weights, this map has {rows * cols:,}."


def file_name(look: sidebar.Look, view: str, options: dict[str, Any], kind: str) -> str:
    """What the file is called: model, place, view and its options."""
    parts = [re.sub(r"[^\w.-]+", "-", look.trace.model)]
    parts += [f"{name}{options[name]}" for name in ("layer", "head") if name in options]
    parts += [view, *(str(options[name]) for name in ("column",) if name in options)]
    return f"{'-'.join(parts)}.{kind}"


def python_lines(look: sidebar.Look, view: str, options: dict[str, Any]) -> str:
    """The lines of Python that write the same figure."""
    arguments = "".join(f", {name}={value!r}" for name, value in options.items())
    return "\n".join(
        (
            "import attnviz",
            "from attnviz.export import export, figure",
            "",
            *trace_lines(look),
            f'export(figure(trace, "{view}"{arguments}), "{view}.{_ending(view)}")',
        )
    )


def trace_lines(look: sidebar.Look) -> list[str]:
    """The lines of Python that make the trace."""
    wanted = look.wanted
    if look.trace is toy():
        return ["from attnviz.export.lessons import toy", "trace = toy()"]
    part = f".only({look.kind!r})" if len(look.whole.kinds) > 1 else ""
    part += f".sequence({look.trace.batch})" if look.trace.batch else ""
    if wanted.saved:
        return [f"trace = attnviz.load({(wanted.file or wanted.model)!r}){part}"]
    if wanted.file:
        read = f'text = pathlib.Path({wanted.file!r}).read_text(encoding="utf-8-sig")'
        return ["import pathlib", read, f"trace = attnviz.inspect({wanted.model!r}, text){part}"]
    return [f"trace = attnviz.inspect({wanted.model!r}, {wanted.text!r}){part}"]


def command(look: sidebar.Look, view: str, options: dict[str, Any]) -> str:
    """The command line that writes the same figure; "" for later sequences of a batch, which it has no word for."""
    if look.trace.batch:
        return ""
    words = [*source_words(look), "--view", view]
    for name, value in options.items():
        words += [f"--{name}"] if value is True else [f"--{name}", str(value)]
    words += ["-o", f"{view}.{_ending(view)}"]
    wanted = look.wanted
    if wanted.saved or not wanted.file:
        return lines.command("export", *words, texts=texts_of(look))
    return lines.command("export", *words, "--file", wanted.file)


def source_words(look: sidebar.Look) -> list[str]:
    """What a command reads: model or trace, and the kind of attention where there are several."""
    wanted = look.wanted
    source = wanted.file if wanted.saved and wanted.file else wanted.model
    return [source, *(["--kind", look.kind] if len(look.whole.kinds) > 1 else [])]


def texts_of(look: sidebar.Look) -> list[str]:
    """The text a command reads; a saved trace and the toy bring their own."""
    return [look.wanted.text] if look.wanted.text else []


def _ending(view: str) -> str:
    return "html" if view == "map" else "svg"


def place_of(head: Head) -> dict[str, int]:
    """The options that name a head."""
    return {"layer": head.layer, "head": head.head}
