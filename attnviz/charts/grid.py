"""All heads at a glance: one square per layer and head."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import UsageError
from ..tokens import printable
from .axis import fit
from .legend import between
from .sources import check_trace
from .theme import MAP, AltairChart, themed

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from ..trace import Trace

COLUMNS = {
    "entropy": "entropy (nats)",
    "entropy_normalised": "entropy / ln(visible keys)",
    "largest": "largest weight",
    "distance": "distance (tokens)",
    "own": "weight on itself",
    "previous": "weight on the previous token",
    "next": "weight on the next token",
    "first": "weight on the first token",
    "special": "weight on special tokens",
    "punctuation": "weight on punctuation",
    "sink": "weight on the sink",
}
"""What the columns of `trace.heads()` are called in figures."""
PROBED = {"prefix_matching": "prefix matching", "duplicate": "weight on earlier copies"}
"""What the columns of `prefix_matching`, which runs the model, are called."""
_MARGIN = 160
"""Pixels that labels and legend take beside the grid."""


def head_grid(
    trace: Trace,
    column: str = "entropy",
    *,
    table: pd.DataFrame | None = None,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Layers down, heads across, one column of `trace.heads()` as colour, the others in the tooltip.

    table stands in for `trace.heads()`, with further columns or fewer heads. Heads that it does not have, and layers
    that do not attend, are empty. The chart has no layers of its own, so a selection over the fields layer and head can
    be added to it.
    """
    import altair as alt

    check_trace(trace)

    table = trace.heads() if table is None else table
    titles = {name: title for name, title in (COLUMNS | PROBED).items() if name in table}
    if column not in titles:
        raise UsageError(f"column must be one of {', '.join(titles)}, got {column!r}")
    scales = head_scales(trace)
    across = len(scales[1].domain)
    step = fit(across, _MARGIN, width, most=28, total=700)
    numbers = [alt.Tooltip(f"{name}:Q", title=title, format=".3f") for name, title in titles.items()]
    ends = between(float(table[column].min()), float(table[column].max()))
    chart = (
        alt.Chart(table)
        .mark_rect(cursor="pointer", width={"band": 0.94}, height={"band": 0.94}, cornerRadius=2)
        .encode(
            x=alt.X("head:O", scale=scales[1], axis=head_axis("head", "top", step)),
            y=alt.Y("layer:O", scale=scales[0], axis=head_axis("layer", "left", step)),
            color=alt.Color(f"{column}:Q", title=titles[column], scale={"range": "heatmap"}, legend=ends),
            tooltip=[alt.Tooltip("layer:O"), alt.Tooltip("head:O"), *numbers],
        )
        .properties(
            title={"text": f"Every head's {titles[column]}", "subtitle": printable(trace.model)},
            description=f"Layers by heads of {printable(trace.model)}, coloured by {titles[column]}.",
            width={"step": step},
            height={"step": step},
            view={"style": MAP},
        )
    )
    return themed(chart, theme)


def head_scales(trace: Trace) -> tuple[alt.Scale, alt.Scale]:
    """The scales of layers, those that do not attend included, and of heads."""
    import altair as alt

    heads = max((number + 1 for layer in trace.layers for number in trace.record(layer).head_numbers), default=0)
    layers = sorted({record.layer for record in trace.records if record.kind != "pool"} | set(trace.layers))
    return alt.Scale(domain=layers), alt.Scale(domain=list(range(heads)))


def head_axis(title: str, orient: str, step: float) -> alt.Axis:
    """The axis of layers or of heads; step is pixels per square."""
    import altair as alt

    return alt.Axis(title=title, orient=orient, ticks=False, labelAngle=0, labelOverlap=step < 14)  # type: ignore[arg-type]
