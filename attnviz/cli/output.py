"""Tables and JSON on stdout."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console


def console() -> Console:
    """Where results go. Text is data: no markup, no colours by guess, and no cutting at 80 columns in a pipe."""
    from rich.console import Console

    return Console(highlight=False, markup=False, emoji=False, width=None if sys.stdout.isatty() else 1000)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], right: Sequence[str] = ()) -> None:
    """Print rows under their columns; those named in `right` are numbers."""
    from rich.table import Table
    from rich.text import Text

    shown = Table(box=None, pad_edge=False, header_style="bold")
    for name in columns:
        shown.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        shown.add_row(*(Text(str(cell)) for cell in row))
    console().print(shown)


def frame(found: pd.DataFrame, columns: Sequence[str] | None = None) -> None:
    """Print some columns of a table, all unless named: numbers with three digits of the largest, text cut short."""
    from ..charts.labels import short

    shown = [name for name in columns or found.columns if name in found]
    digits = [_digits(found[name]) for name in shown]
    rows = [
        [
            f"{value:.{count}f}" if isinstance(value, float) else short(str(value), 64)
            for value, count in zip(row, digits, strict=True)
        ]
        for row in found[shown].itertuples(index=False)
    ]
    table(shown, rows, right=[name for name in shown if found[name].dtype.kind in "iuf"])


def _digits(column: pd.Series) -> int:
    """Places behind the point: three, more where every number is below 0.1."""
    largest = column.abs().max() if column.dtype.kind == "f" else 1
    return 2 - math.floor(math.log10(largest)) if 0 < largest < 0.1 else 3


def as_csv(table: pd.DataFrame) -> None:
    """Print a table as CSV."""
    print(table.to_csv(index=False, lineterminator="\n"), end="")


def as_json(value: Any) -> None:
    """Print one JSON document."""
    print(json.dumps(value, ensure_ascii=False, indent=2))
