"""What a chart is of: a head, a trace or a table; each refuses the others in one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arguments import refuse
from ..errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def check_head(source: Any, also: str = "") -> None:
    """UsageError unless the chart is of a head; also says what else it could have been of."""
    from ..head import Head

    if not isinstance(source, Head):
        raise refuse("the source of this chart", f"one head, such as trace[2, 4],{also}".rstrip(","), source)


def check_trace(source: Any) -> None:
    """UsageError unless the chart is of a trace."""
    from ..trace import Trace

    if not isinstance(source, Trace):
        raise refuse("the source", "a whole trace (a figure names its head by layer= and head=)", source)


def check_columns(table: pd.DataFrame, column: str) -> None:
    """UsageError unless the table has a row a head, and the column."""
    for name in ("layer", "head", column):
        if name not in table:
            raise UsageError(f"the table must have a column {name!r}: it has {', '.join(map(str, table))}")
