"""Figures and tables to files.

    from attnviz.export import Look, export, figure, pixels

    export(figure(trace, "heatmap", layer=0, head=3), "map.pdf", look=Look("paper", width=pixels("85mm")))
    export(figure(trace, "heads"), "heads.csv")     # json, csv and parquet hold the numbers behind it

A file appears whole or not at all.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..arguments import path_of, refuse
from ..errors import UsageError
from ..files import check_place, write
from .figure import VIEWS, Figure, check_options, check_view, figure
from .render import FORMATS, Look, pixels, render

__all__ = [
    "FORMATS",
    "VIEWS",
    "Figure",
    "Look",
    "check_options",
    "check_target",
    "check_view",
    "export",
    "figure",
    "pixels",
    "render",
]


def __dir__() -> list[str]:
    return __all__


def export(source: Any, path: str | Path, format: str | None = None, *, look: Look | None = None) -> Path:
    """Write a `figure`, an altair chart or a DataFrame to a file, by its ending or by `format` (see `FORMATS`).

    The file appears whole or not at all. Raises UsageError for a format that is unknown or does not fit the source, and
    for a place that cannot be written to; warns of characters that no font can draw.
    """
    place = path_of(path)
    if not isinstance(look, Look | None):
        raise refuse("look", 'a Look, such as Look("dark")', look)
    kind = check_target(place, format)
    write(place, render(source, kind, look))
    return place


def check_target(path: str | Path, format: str | None) -> str:
    """The format a file will have, or UsageError for one that is unknown or a place that cannot be written to."""
    if str(path) == "-":
        check_place(Path(path))
    kind = Path(path).suffix[1:].lower() if format is None else str(format).lower()
    if kind not in FORMATS:
        got = f"got {format!r}" if format is not None else f"the file is called {Path(path).name!r}"
        raise UsageError(f"format must be one of {', '.join(FORMATS)}, {got}: choose an ending or give the format")
    check_place(Path(path))
    return kind
