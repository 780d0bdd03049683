"""Every head's map as a small picture, layers down and heads across."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from ..tokens import printable
from .axis import fit
from .pixels import data_url
from .theme import MAP, AltairChart, themed

if TYPE_CHECKING:
    from ..trace import Head, Trace

BLOCKS = 64
"""Block means a side of each picture."""
_PIXELS = 128
"""Pixels a side of each picture, so that print shows sharp cells."""
_MARGIN = 70
"""Pixels that labels take beside the pictures."""


def thumbnails(trace: Trace, *, theme: str | None = "screen", width: int | None = None) -> AltairChart:
    """A picture of each head's map, at most 64 x 64 block means; the brightest colour is its own (see tooltip)."""
    import altair as alt
    import pandas as pd

    heads = trace.every_head()
    table = pd.DataFrame([_thumbnail(head) for head in heads])
    across = int(table["head"].max()) + 1
    step = fit(across, _MARGIN, width, most=64, total=860)
    base = alt.Chart(table).encode(
        x=alt.X("head:O", axis={"orient": "top", "labelAngle": 0, "ticks": False}),
        y=alt.Y("layer:O", axis={"labelAngle": 0, "ticks": False}),
        tooltip=["layer:O", "head:O", alt.Tooltip("largest:Q", format=".3f", title="brightest")],
    )
    side = 0.94 * step
    ground = base.mark_rect(style=MAP, width=side, height=side)
    pictures = base.mark_image(width=side, height=side, aspect=False, smooth=False, aria=False).encode(url="picture:N")
    chart = alt.layer(ground, pictures).properties(
        title={"text": "Every head's map", "subtitle": printable(trace.model)},
        description=f"Small attention maps of every head of {printable(trace.model)}, layers down, heads across.",
        width={"step": step},
        height={"step": step},
        view={"stroke": None},
    )
    return themed(chart, theme)


def _thumbnail(head: Head) -> dict[str, object]:
    blocks = torch.nan_to_num(head.pooled((BLOCKS, BLOCKS)))
    top = blocks.abs().max().item()
    return {"layer": head.layer, "head": head.head, "largest": top, "picture": data_url(blocks, top, _PIXELS)}
