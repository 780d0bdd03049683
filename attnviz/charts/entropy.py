"""How broadly heads look: entropy in nats, of all heads layer by layer, or of one head token by token."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import pool_edges

from ..analysis.heads import normalised_entropy
from ..tokens import printable
from .axis import TOKENS, fit, position_axis, position_scale
from .heatmap import heading
from .labels import axis_text, parameters
from .sources import check_head
from .theme import AltairChart, themed

if TYPE_CHECKING:
    import pandas as pd

    from ..head import Head
    from ..trace import Trace

BARS = 2048
"""Bars that are drawn of one head; of longer texts, each is the mean of neighbouring queries."""
_MARGIN = 72
"""Pixels that axis and padding take beside the bars."""


def entropy(
    source: Trace | Head,
    *,
    normalised: bool = False,
    table: pd.DataFrame | None = None,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Entropy of every head of a trace by layer, or of every query of one head.

    The grey line is the most there could be: ln of the number of visible keys, reached by equal weights; normalised
    entropy is divided by it, so that 1 is the most. table is `trace.heads()` where it was computed before.
    """
    from ..trace import Trace

    if isinstance(source, Trace):
        return themed(_by_layer(source, table, normalised, width), theme)
    check_head(source)
    return themed(_by_query(source, normalised, width), theme)


_UNIT = {False: "entropy (nats)", True: "entropy / ln(visible keys)"}


def _by_layer(trace: Trace, table: pd.DataFrame | None, normalised: bool, width: int | None) -> Any:
    import altair as alt

    table = trace.heads() if table is None else table
    layers = table["layer"].nunique()
    column = "entropy_normalised" if normalised else "entropy"
    most = 1.0 if normalised else _mean_of_most(trace)
    x = alt.X("layer:O", title="layer", axis={"labelAngle": 0, "ticks": False})
    title = f"mean {_UNIT[normalised]}"
    y = alt.Y(f"{column}:Q", title=title, scale={"domainMin": 0}, axis={"grid": True, "tickCount": 6})
    base = alt.Chart(table)
    value = alt.Tooltip(f"{column}:Q", title=_UNIT[normalised], format=".3f")
    tooltip = [alt.Tooltip("layer:O"), alt.Tooltip("head:O"), value]
    heads = base.mark_circle(size=45, opacity=0.55, style="accent").encode(x=x, y=y, tooltip=tooltip)
    middle = base.mark_tick(thickness=2, style="second", width={"band": 0.7}).encode(
        x=x, y=alt.Y(f"median({column}):Q"), tooltip=[alt.Tooltip(f"median({column}):Q", format=".3f", title="median")]
    )
    return alt.layer(_limit(most, column), heads, middle).properties(
        title={"text": "Entropy of every head, layer by layer", "subtitle": printable(trace.model)},
        description=f"Mean entropy of each head of {printable(trace.model)} by layer, with the median of the layer.",
        width=fit(layers, _MARGIN, width, most=28, total=760) * layers,
        height=260,
    )


def _mean_of_most(trace: Trace) -> float:
    """The mean over all rows that see a key of what their entropy could be at most."""
    most = [torch.log(head.visible[head.visible > 0].double()) for head in trace.every_head()]
    return torch.cat(most).mean().item()


def _limit(value: float, column: str) -> Any:
    import altair as alt
    import pandas as pd

    rule = alt.Chart(pd.DataFrame({column: [value], "name": ["equal weights"]}))
    return rule.mark_rule(strokeDash=[4, 4], style="muted").encode(
        y=f"{column}:Q", tooltip=[alt.Tooltip("name:N", title=" "), alt.Tooltip(f"{column}:Q", format=".3f")]
    )


def _means(values: Tensor, edges: list[int]) -> list[float]:
    """The mean of each block, without queries that see no key."""
    seen = values.masked_fill(values.isinf(), torch.nan)
    return [torch.nanmean(seen[start:stop]).item() for start, stop in pairwise(edges)]


def _by_query(head: Head, normalised: bool, width: int | None) -> Any:
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
            "entropy": _means(normalised_entropy(head) if normalised else head.entropy, edges),
            "most": [1.0] * (len(edges) - 1) if normalised else _means(torch.log(head.visible.double()), edges),
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
                alt.Tooltip("entropy:Q", format=".3f", title=_UNIT[normalised]),
                alt.Tooltip("most:Q", format=".3f", title="most possible"),
            ],
        )
    )
    y = alt.Y("entropy:Q", title=_UNIT[normalised], axis={"grid": True, "tickCount": 6})
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
