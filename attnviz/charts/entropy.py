"""How broadly heads look: entropy in nats, of all heads layer by layer, or of one head token by token."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import pool_edges

from ..tokens import printable
from .axis import TOKENS, fit, position_axis, position_scale
from .heatmap import heading
from .labels import axis_text, parameters
from .theme import AltairChart, themed

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Head, Trace

BARS = 2048
"""Bars that are drawn of one head; of longer texts, each is the mean of neighbouring queries."""
_MARGIN = 72
"""Pixels that axis and padding take beside the bars."""


def entropy(
    source: Trace | Head,
    *,
    table: pd.DataFrame | None = None,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Entropy of every head of a trace by layer, or of every query of one head.

    The grey line is the most there could be: ln of the number of visible keys, reached by equal weights. table is
    `trace.heads()` where it was computed before.
    """
    from ..trace import Trace

    chart = _by_layer(source, table, width) if isinstance(source, Trace) else _by_query(source, width)
    return themed(chart, theme)


def _by_layer(trace: Trace, table: pd.DataFrame | None, width: int | None) -> Any:
    import altair as alt

    table = trace.heads() if table is None else table
    layers = table["layer"].nunique()
    most = torch.cat([torch.log(head.visible[head.visible > 0].double()) for head in trace.every_head()]).mean().item()
    x = alt.X("layer:O", title="layer", axis={"labelAngle": 0, "ticks": False})
    y = alt.Y("entropy:Q", title="mean entropy (nats)", scale={"domainMin": 0}, axis={"grid": True, "tickCount": 6})
    base = alt.Chart(table)
    tooltip = [alt.Tooltip("layer:O"), alt.Tooltip("head:O"), alt.Tooltip("entropy:Q", format=".3f")]
    heads = base.mark_circle(size=45, opacity=0.55, style="accent").encode(x=x, y=y, tooltip=tooltip)
    middle = base.mark_tick(thickness=2, style="second", width={"band": 0.7}).encode(
        x=x, y=alt.Y("median(entropy):Q"), tooltip=[alt.Tooltip("median(entropy):Q", format=".3f", title="median")]
    )
    return alt.layer(_limit(most), heads, middle).properties(
        title={"text": "Entropy of every head, layer by layer", "subtitle": printable(trace.model)},
        description=f"Mean entropy of each head of {printable(trace.model)} by layer, with the median of the layer.",
        width=fit(layers, _MARGIN, width, most=28, total=760) * layers,
        height=260,
    )


def _limit(value: float) -> Any:
    import altair as alt
    import pandas as pd

    rule = alt.Chart(pd.DataFrame({"entropy": [value], "name": ["equal weights"]}))
    return rule.mark_rule(strokeDash=[4, 4], style="muted").encode(
        y="entropy:Q", tooltip=[alt.Tooltip("name:N", title=" "), alt.Tooltip("entropy:Q", format=".3f")]
    )


def _means(values: Tensor, edges: list[int]) -> list[float]:
    """The mean of each block, without queries that see no key."""
    seen = values.masked_fill(values.isinf(), torch.nan)
    return [torch.nanmean(seen[start:stop]).item() for start, stop in pairwise(edges)]


def _by_query(head: Head, width: int | None) -> Any:
    import altair as alt
    import pandas as pd

    count = head.shape[0]
    text = axis_text(head.rows)
    step = fit(count, _MARGIN, width, most=24, total=760)
    gap = 0.08 if count <= TOKENS else 0.0
    edges = pool_edges(count, BARS)
    table = pd.DataFrame(
        {
            "query": edges[:-1],
            "start": [start + gap for start in edges[:-1]],
            "stop": [stop - gap for stop in edges[1:]],
            "entropy": _means(head.entropy, edges),
            "most": _means(torch.log(head.visible.double()), edges),
        }
    )
    base = (
        alt.Chart(table)
        .transform_calculate(token=f"{text.whole.name}[datum.query]")
        .encode(
            x=alt.X("start:Q", scale=position_scale(count), axis=position_axis(text, "query", count, step, "bottom")),
            x2="stop:Q",
            tooltip=[
                alt.Tooltip("token:N", title="query"),
                alt.Tooltip("entropy:Q", format=".3f"),
                alt.Tooltip("most:Q", format=".3f", title="ln(visible keys)"),
            ],
        )
    )
    y = alt.Y("entropy:Q", title="entropy (nats)", axis={"grid": True, "tickCount": 6})
    bars = base.mark_rect(style="accent").encode(y=y, y2=alt.datum(0))
    limit = base.mark_rule(style="muted").encode(y="most:Q")
    return (
        alt.layer(bars, limit)
        .properties(
            title={**heading(head), "text": f"Entropy of layer {head.layer}, head {head.head}"},
            description=f"Entropy of each query of layer {head.layer}, head {head.head}, and the most it could be.",
            width=step * count,
            height=220,
        )
        .add_params(*parameters(text))
    )
