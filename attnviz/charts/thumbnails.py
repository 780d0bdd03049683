"""Every head's map as a small picture, layers down and heads across."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..tokens import printable
from .axis import fit
from .grid import head_axis, head_scales
from .pixels import data_url
from .sources import check_trace
from .theme import MAP, AltairChart, themed

if TYPE_CHECKING:
    from ..trace import Trace

Maps = dict[tuple[int, int], Tensor]

BLOCKS = 64
"""Block means a side of each picture."""
_PIXELS = 128
"""Pixels a side of each picture, so that print shows sharp cells."""
_MARGIN = 70
"""Pixels that labels take beside the pictures."""


def small_maps(trace: Trace, progress: Callable[[int, int], None] | None = None) -> Maps:
    """By layer and head the map as at most 64 x 64 block means; progress(done, total) is called after each layer."""
    found: Maps = {}
    for done, layer in enumerate(trace.layers, 1):
        pooled = trace.view(layer).pool((BLOCKS, BLOCKS), slice(None), slice(None), "mean")[0]
        found |= {(layer, head): one for head, one in zip(trace.record(layer).head_numbers, pooled, strict=True)}
        if progress is not None:
            progress(done, len(trace.layers))
    return found


def thumbnails(
    trace: Trace,
    *,
    shared: bool = False,
    maps: Maps | None = None,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """A picture of each head's map; the brightest colour is its own (see tooltip), or that of all heads if `shared`.

    maps are `small_maps(trace)` where they were computed before, or some of them: the others are left empty.
    """
    import altair as alt
    import pandas as pd

    check_trace(trace)

    maps = small_maps(trace) if maps is None else maps
    tops = {place: torch.nan_to_num(blocks).abs().max().item() for place, blocks in maps.items()}
    most = max(tops.values(), default=0.0)
    rows = [
        {
            "layer": place[0],
            "head": place[1],
            "largest": tops[place],
            "picture": _picture(blocks, most if shared else tops[place]),
        }
        for place, blocks in maps.items()
    ]
    table = pd.DataFrame(rows, columns=["layer", "head", "largest", "picture"])
    layers, heads = head_scales(trace)
    step = fit(len(heads.domain), _MARGIN, width, most=64, total=860)
    base = alt.Chart(table).encode(
        x=alt.X("head:O", scale=heads, axis=head_axis("head", "top", step)),
        y=alt.Y("layer:O", scale=layers, axis=head_axis("layer", "left", step)),
        tooltip=["layer:O", "head:O", alt.Tooltip("largest:Q", format=".3f", title="brightest")],
    )
    side = 0.94 * step
    ground = base.mark_rect(style=MAP, width=side, height=side)
    pictures = base.mark_image(width=side, height=side, aspect=False, smooth=False, aria=False).encode(url="picture:N")
    chart = alt.layer(ground, pictures).properties(
        title={"text": "Every head's map", "subtitle": f"{printable(trace.model)} · {_scale(most, shared)}"},
        description=f"Small attention maps of every head of {printable(trace.model)}, layers down, heads across.",
        width={"step": step},
        height={"step": step},
        view={"stroke": None},
    )
    return themed(chart, theme)


def _scale(most: float, shared: bool) -> str:
    return f"brightest: {most:.3g}, in all maps" if shared else "brightest: the largest of each map"


def _picture(blocks: Tensor, top: float) -> str:
    return data_url(torch.nan_to_num(blocks), top, _PIXELS)
