"""The map of one head: queries down, keys across, the weight as colour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..numbers import shortest
from ..tokens import printable
from .axis import TOKENS, fit, position_axis, position_scale, token_axis
from .labels import axis_text, parameters, short
from .legend import around_zero, between
from .pixels import LARGEST, data_url
from .sources import check_head
from .theme import MAP, AltairChart, themed

if TYPE_CHECKING:
    from ..head import Head

_MARGIN = 110
"""Pixels that title, legend and padding take beside map and labels."""


def heatmap(head: Head, *, theme: str | None = "screen", width: int | None = None) -> AltairChart:
    """The head's map; colour grows with the root of the weight, cells of weight 0 (masked) have a colour of their own.
    Where weights may be negative (differential attention), colours go both ways from zero.

    Beyond 512 tokens a side the picture shows block means. width: pixels of the whole figure.
    """
    check_head(head)
    rows, cols = head.shape
    step = _step(head, width)
    down = _down(head, step)
    drawn = _cells(head, step) if max(rows, cols) <= TOKENS else _picture(head, step, down)
    chart = drawn.properties(
        title=heading(head),
        description=f"Attention map of layer {head.layer}, head {head.head} of {head.model}:"
        f" {rows} queries down, {cols} keys across.",
        width=step * cols,
        height=down * rows,
    )
    return themed(chart, theme)


def heading(head: Head) -> dict[str, str]:
    """The title of a figure of one head, with what was done to its map."""
    subtitle = " · ".join(filter(None, (printable(head.model), head.altered)))
    return {"text": f"Layer {head.layer}, head {head.head}", "subtitle": subtitle}


def _step(head: Head, width: int | None) -> float:
    """Pixels per position; without a width never so few that labels cannot be read."""
    count = max(head.shape)
    longest = max(len(short(token.label)) for token in head.rows) if head.shape[0] <= TOKENS else 4
    step = fit(head.shape[1], _MARGIN + 6 * longest, width, most=36, total=600)
    return step if width is not None or count > TOKENS else max(12, int(step))


def _down(head: Head, step: float) -> float:
    """Pixels per query: as per key, but room for labels beside a long text, and no more than a page for one."""
    rows, cols = head.shape
    if rows > TOKENS:
        return min(step, max(step * cols, 600) / rows)
    return max(step, 12) if cols > TOKENS else step


def _cells(head: Head, step: float) -> Any:
    import altair as alt
    import pandas as pd

    weights = head.weights().cpu()
    cells = weights.nonzero()
    values = shortest(weights[cells[:, 0], cells[:, 1]])
    data = pd.DataFrame({"query": cells[:, 0], "key": cells[:, 1], "weight": values})
    rows, cols = axis_text(head.rows), axis_text(head.cols)
    return (
        alt.Chart(data)
        .transform_calculate(
            from_token=f"{rows.whole.name}[datum.query]",
            to_token=f"{cols.whole.name}[datum.key]",
        )
        # a little wider than its cell, so that no seam shows between cells
        .mark_rect(aria=False, width={"band": 1.04}, height={"band": 1.04})
        .encode(
            x=alt.X("key:O", scale=_all(head.shape[1]), axis=token_axis(cols, "key", step, "top")),
            y=alt.Y("query:O", scale=_all(head.shape[0]), axis=token_axis(rows, "query", step, "left")),
            color=_colour(weights, "weight"),
            tooltip=[
                alt.Tooltip("from_token:N", title="query"),
                alt.Tooltip("to_token:N", title="key"),
                alt.Tooltip("weight:Q", format=".4f"),
            ],
        )
        .properties(view={"style": MAP})
        .add_params(*parameters(rows, cols))
    )


def _picture(head: Head, step: float, down_step: float) -> Any:
    import altair as alt
    import pandas as pd

    shape = head.shape
    pooled = max(shape) > LARGEST
    weights = head.pooled((LARGEST, LARGEST)) if pooled else head.weights()
    top = _top(weights)
    texts = [axis_text(tokens) for tokens in (head.rows, head.cols)]
    place = {"x": 0, "y": 0, "x2": shape[1], "y2": shape[0]}
    image = pd.DataFrame([{"picture": data_url(weights, top, 2 * LARGEST), **place}])
    legend = pd.DataFrame({"weight": [0.0, top], "x": [0, 0], "y": [0, 0]})
    across = position_axis(texts[1], "key", shape[1], step, "top")
    down = position_axis(texts[0], "query", shape[0], down_step, "left")
    x = alt.X("x:Q", scale=position_scale(shape[1]), axis=across)
    y = alt.Y("y:Q", scale=position_scale(shape[0], reverse=True), axis=down)
    picture = (
        alt.Chart(image)
        .mark_image(aspect=False, smooth=False, aria=False, tooltip=None)
        .encode(x=x, y=y, x2="x2:Q", y2="y2:Q", url="picture:N")
    )
    # the picture has its colours already: these marks only bring the legend
    scale = (
        alt.Chart(legend)
        .mark_point(opacity=0, aria=False, tooltip=None)
        .encode(x=x, y=y, color=_colour(weights, "mean weight" if pooled else "weight"))
    )
    short = [text for text, count in zip(texts, shape, strict=True) if count <= TOKENS]
    ground = alt.Chart(image).mark_rect(style=MAP, aria=False, tooltip=None).encode(x=x, y=y, x2="x2:Q", y2="y2:Q")
    return alt.layer(ground, picture, scale).add_params(*parameters(*short))


def _all(count: int) -> dict[str, list[int]]:
    """An ordinal scale of every position, also of those without a cell to draw."""
    return {"domain": list(range(count))}


def _top(weights: Tensor) -> float:
    """The largest size of a weight: the end of the colours."""
    return torch.nan_to_num(weights).abs().max().item() or 1.0


def _colour(weights: Tensor, title: str) -> Any:
    import altair as alt

    top = _top(weights)
    scale, legend = alt.Scale(type="sqrt", domain=[0, top], range="heatmap"), between(0.0, top, root=True)
    if (weights < 0).any():
        scale, legend = alt.Scale(domain=[-top, top], domainMid=0, range="diverging"), around_zero(top)
    return alt.Color("weight:Q", scale=scale, title=title, legend=legend)
