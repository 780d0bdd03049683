"""Legends of colours that name both ends of the scale, with three significant digits."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import altair as alt

_DIGITS = ".3~g"


def between(low: float, high: float, *, root: bool = False) -> alt.Legend:
    """The ends and the middle of a scale of colours; root for a scale that grows with the root from 0."""
    middle = high / 4 if root else (low + high) / 2
    return _legend([low, middle, high] if low < high else [low], f"format(datum.value, '{_DIGITS}')")


def around_zero(top: float) -> alt.Legend:
    """The ends of a scale from -top to top, with signs, and 0, which has none; 0 alone where nothing differs."""
    sign = f"(datum.value > 0 ? '+' : '') + format(datum.value, '{_DIGITS}')"
    return _legend([-top, 0.0, top] if top else [0.0], sign)


def _legend(values: list[float], label: str) -> alt.Legend:
    import altair as alt

    known = [value for value in values if math.isfinite(value)]
    return alt.Legend(values=known, labelExpr=label) if known else alt.Legend(format=_DIGITS)
