"""Walkthrough: why scores are divided by the square root of the head size."""

from __future__ import annotations

from .. import charts
from . import figures
from .sidebar import Look


def draw(look: Look) -> None:
    """The page."""
    figures.show(charts.scaling(look.head, theme=figures.theme(), width=760))
