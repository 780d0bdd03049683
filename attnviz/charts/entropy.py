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
from .grid import head_axis
from .heatmap import heading
from .labels import axis_text, parameters
from .sources import check_head
from .theme import AltairChart, themed

if TYPE_CHECKING:
    import pandas as pd

    from ..head import Head
    from ..trace import Trace

BARS = 256
"""Queries of one head that are drawn one by one; of longer texts as many groups of neighbours, as steps."""
_MARGIN = 72
"""Pixels that axis and padding take beside the bars."""
_LEAST = 120
"""Pixels across that few layers take."""


def entropy(
    source: Trace | Head,
    *,
    normalised: bool = False,
    table: pd.DataFrame | None = None,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Entropy of every head of a trace by layer, or of every query of one head; beyond 256 queries the mean of
    neighbouring ones as a line, in a band from their least to their most.

    The grey line is the most there could be: ln of the number of visible keys, reached by equal weights; normalised
    entropy is divided by it, so that 1 is the most. table is `trace.heads()` where it was computed before.
    """
    from ..trace import Trace

    if isinstance(source, Trace):
        return themed(_by_layer(source, table, normalised, width), theme)
    check_head(source, " or a whole trace")
    return themed(_by_query(source, normalised, width), theme)


_UNIT = {False: "entropy (nats)", True: "entropy / ln(visible keys)"}


def _by_layer(trace: Trace, table: pd.DataFrame | None, normalised: bool, width: int | None) -> Any:
    import altair as alt

    table = trace.heads() if table is None else table
    layers = table["layer"].nunique()
    column = "entropy_normalised" if normalised else "entropy"
    most = 1.0 if normalised else _mean_of_most(trace)
    step = fit(layers, _MARGIN, width, most=max(28, _LEAST / layers), total=760)
    axis = head_axis("layer", "bottom", step)
    axis.labelPadding = 7  # below the half of a dot at 0
    x = alt.X("layer:O", axis=axis)
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
        title={
            "text": "Entropy of every head, layer by layer",
            "subtitle": f"{printable(trace.model)} · orange: median of a layer; dashed: equal weights",
        },
        description=f"Mean entropy of each head of {printable(trace.model)} by layer, with the median of the layer.",
        width=step * layers,
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


def _groups(values: Tensor, edges: list[int]) -> list[Tensor]:
    """The values of each group of queries, without queries that see no key."""
    groups = [values[start:stop] for start, stop in pairwise(edges)]
    return [group[group.isfinite()] for group in groups]


def _means(values: Tensor, edges: list[int]) -> list[float]:
    return [group.mean().item() for group in _groups(values, edges)]


def _table(head: Head, normalised: bool, edges: list[int], gap: float) -> pd.DataFrame:
    """One row a query, or a group of them: where it stands, mean, least and most entropy, and the most possible."""
    import pandas as pd

    values = normalised_entropy(head) if normalised else head.entropy
    groups = _groups(values, edges)
    return pd.DataFrame(
        {
            "query": edges[:-1],
            "last": [stop - 1 for stop in edges[1:]],
            "start": [start + gap for start in edges[:-1]],
            "stop": [stop - gap for stop in edges[1:]],
            "entropy": [group.mean().item() for group in groups],
            "least": [group.min().item() if len(group) else torch.nan for group in groups],
            "highest": [group.max().item() if len(group) else torch.nan for group in groups],
            "most": [1.0] * len(groups) if normalised else _means(torch.log(head.visible.double()), edges),
        }
    )


def _by_query(head: Head, normalised: bool, width: int | None) -> Any:
    import altair as alt

    count = head.shape[0]
    text = axis_text(head.rows)
    step = fit(count, _MARGIN, width, most=24, total=760)
    edges = pool_edges(count, BARS)
    grouped = count > BARS
    axis = position_axis(text, "query", count, step, "bottom")
    base = (
        alt.Chart(_table(head, normalised, edges, 0.08 if count <= TOKENS else 0.0))
        .transform_calculate(token=f"{text.whole.name}[datum.query]")
        .encode(x=alt.X("start:Q", scale=position_scale(count), axis=axis), tooltip=_tooltip(normalised, grouped))
    )
    title = heading(head)
    title["subtitle"] += " · grey: equal weights"
    if grouped:
        size = max(stop - start for start, stop in pairwise(edges))
        title["subtitle"] += (
            f" · line: means of up to {size} neighbouring queries; band: from their least to their most"
        )
    return (
        alt.layer(*_marks(base, normalised, grouped), base.mark_rule(style="muted").encode(x2="stop:Q", y="most:Q"))
        .properties(
            title={**title, "text": f"Entropy of layer {head.layer}, head {head.head}"},
            description=f"Entropy of each query of layer {head.layer}, head {head.head}, and the most it could be.",
            width=step * count,
            height=220,
        )
        .add_params(*parameters(text))
    )


def _marks(base: Any, normalised: bool, grouped: bool) -> list[Any]:
    """A bar a query, or a band and a line."""
    import altair as alt

    look: dict[str, Any] = {"title": _UNIT[normalised], "axis": {"grid": True, "tickCount": 6}}
    if not grouped:
        y = alt.Y("entropy:Q", **look)
        return [base.mark_rect(style="accent").encode(x2="stop:Q", y=y, y2=alt.datum(0))]
    y = alt.Y("least:Q", scale={"domainMin": 0}, **look)
    band = base.mark_rect(style="accent", opacity=0.3).encode(x2="stop:Q", y=y, y2="highest:Q")
    line = base.mark_line(style="accent", strokeWidth=1.5, interpolate="step-after", tooltip=None)
    return [band, line.encode(y="entropy:Q")]


def _tooltip(normalised: bool, grouped: bool) -> list[Any]:
    import altair as alt

    place = [alt.Tooltip("query:Q", title="from query"), alt.Tooltip("last:Q", title="to query")]
    ends = [alt.Tooltip(f"{name}:Q", format=".3f") for name in ("least", "highest")]
    return [
        *(place if grouped else [alt.Tooltip("token:N", title="query")]),
        alt.Tooltip("entropy:Q", format=".3f", title=("mean " if grouped else "") + _UNIT[normalised]),
        *(ends if grouped else []),
        alt.Tooltip("most:Q", format=".3f", title="most possible"),
    ]
