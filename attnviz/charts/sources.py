"""What a chart is of: a head or a trace; each refuses the other in one line."""

from __future__ import annotations

from typing import Any

from ..arguments import refuse


def check_head(source: Any) -> None:
    """UsageError unless the chart is of a head."""
    from ..head import Head

    if not isinstance(source, Head):
        raise refuse("the source of this chart", "one head, such as trace[2, 4]", source)


def check_trace(source: Any) -> None:
    """UsageError unless the chart is of a trace."""
    from ..trace import Trace

    if not isinstance(source, Trace):
        raise refuse("the source", "a whole trace (a figure names its head by layer= and head=)", source)
