"""What every analysis command does with what it found: print it, or write the figure."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import output

if TYPE_CHECKING:
    import pandas as pd

TABLES = ("csv", "json", "parquet")
"""Formats that hold a table."""
Json = Annotated[bool, typer.Option("--json", help="The whole table as JSON, for machines.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        help="Write the figure (svg, png, pdf, html) or table (csv, json, parquet).",
        show_default=False,
    ),
]
TableOutput = Annotated[
    Path | None,
    typer.Option("--output", "-o", help="Write the table (csv, json, parquet).", show_default=False),
]
Top = Annotated[int, typer.Option(min=1, help="Rows to print.")]


def tell(
    table: pd.DataFrame,
    *,
    as_json: bool,
    top: int | None = None,
    about: str = "",
    path: Path | None = None,
    chart: Callable[[], Any] | None = None,
) -> None:
    """Print a table (its first `top` rows) under a line about it, or all of it as JSON; write the figure if asked.

    A csv, json or parquet file holds the table, other formats the chart.
    """
    if path is not None:
        write(table, path, chart)
    if as_json:
        from ..export.data import records

        output.as_json(records(table))
        return
    if about:
        output.console().print(about)
    output.frame(table if top is None else table.head(top))
    if top is not None and len(table) > top:
        output.console().print(f"... {len(table) - top} more; --top or --json shows them")


def write(table: pd.DataFrame, path: Path, chart: Callable[[], Any] | None) -> None:
    """Write the table as csv, json or parquet, or its chart in any other format."""
    from ..export import check_target, export

    kind = check_target(path, None)
    if chart is None and kind not in TABLES:
        raise UsageError(
            f"this result is a table without a figure, so {kind} cannot hold it: choose csv, json or parquet"
        )
    export(table if chart is None or kind in TABLES else chart(), path)


@contextmanager
def counted(what: str) -> Iterator[Callable[[int, int], None]]:
    """A progress bar on a terminal, moved by calling what it gives with (done, total)."""
    from ..models.progress import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(what, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
