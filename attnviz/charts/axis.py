"""Axes of positions: labels of tokens up to 64 of them, as many as there is room for, and numbers above."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..arguments import check_pixels
from .labels import AxisText

if TYPE_CHECKING:
    import altair as alt

TOKENS = 64
"""Up to this many tokens positions get labels."""
SMALLEST = 8
"""Pixels of the smallest letters, 6 points: where they have no room, every other label is left out."""


def fit(count: int, margin: float, width: int | None, *, most: float, total: float) -> float:
    """Pixels per position so that all and the margin fill `width`; if None at most `most`, within `total`."""
    if width is not None:
        return inside(width, margin, 40) / count
    return min(most, (total - margin) / count)


def inside(width: int, margin: float, least: int) -> float:
    """What margins leave of a figure's width, never less than `least`; UsageError for what is no width."""
    check_pixels(width)
    return max(width - margin, least)


def token_axis(text: AxisText, title: str | None, step: float, orient: str) -> alt.Axis:
    """The axis of an ordinal scale whose values are positions; step is pixels per position."""
    import altair as alt

    return alt.Axis(
        title=title,
        labelExpr=f"{text.labels.name}[floor(datum.value)]",
        labelFontSize=min(11, max(step - 1, SMALLEST)),
        labelAngle=-90 if orient in ("top", "bottom") else 0,
        labelLimit=200,
        labelOverlap=step < SMALLEST,
        orient=orient,  # type: ignore[arg-type]
        ticks=False,
    )


def position_axis(text: AxisText, title: str, count: int, step: float, orient: str) -> alt.Axis:
    """The axis of a `position_scale`: position k covers k to k + 1."""
    import altair as alt

    if count > TOKENS:
        return alt.Axis(title=f"{title} position", orient=orient, tickMinStep=1, tickCount=6, format="d")  # type: ignore[arg-type]
    axis = token_axis(text, title, step, orient)
    axis.values = [position + 0.5 for position in range(count)]
    return axis


def position_scale(count: int, reverse: bool = False) -> dict[str, Any]:
    """A linear scale over `count` positions."""
    return {"domain": [0, count], "nice": False, "zero": False, "reverse": reverse}
