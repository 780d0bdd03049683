"""What traces, heads and charts show in a notebook: pictures that need no network, no extension and no script.

A picture is an SVG inside an <img>: its ids are its own, so several on a page do not clash, and nothing in it runs.
"""

from __future__ import annotations

import base64
import re
from html import escape
from typing import Any

from .. import charts
from ..composed import Unkept
from ..head import Head
from ..trace import Trace
from .render import render

_SPOKEN = re.compile(r' (?:aria-\w+|role)="[^"]*"')
"""What screen readers would read of each mark; inside an <img> they cannot, and it is most of the bytes."""


def picture(chart: Any) -> str:
    """HTML of an altair chart as a still picture, with the chart's description as its text."""
    about = chart.description if isinstance(chart.description, str) else ""
    svg = re.sub(r"<[^>]*>", lambda tag: _SPOKEN.sub("", tag[0]), render(chart, "svg").decode())
    data = base64.b64encode(svg.encode()).decode("ascii")
    return f'<img alt="{escape(about)}" src="data:image/svg+xml;base64,{data}">'


def trace_html(trace: Trace) -> str:
    """A line of facts, and for each kind of attention the entropy of every head."""
    parts = [trace.only(kind) for kind in trace.kinds]
    grids = "".join(f"<div>{picture(charts.head_grid(part))}</div>" for part in parts if part.layers)
    return f"<div>{escape(repr(trace))}</div>{grids}"


def head_html(head: Head) -> str:
    """The map; the entropy of each query where only statistics were kept."""
    kept = not isinstance(head.record.view, Unkept)
    return picture(charts.heatmap(head) if kept else charts.entropy(head))
