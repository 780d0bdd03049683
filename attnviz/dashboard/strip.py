"""The text as a row of tokens, shaded by weights; a click, or Enter on a token, picks it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from math import isfinite, sqrt
from pathlib import Path
from typing import Any

import streamlit as st

from ..tokens import Token, printable

WINDOW = 600
"""Tokens shown at once; of longer texts, those around the selected one."""


def strip(
    tokens: Sequence[Token],
    weights: Sequence[float],
    selected: int,
    *,
    key: str,
    label: str,
    pick: Callable[[int], None],
    floor: float = 0.0,
) -> None:
    """Draw the row; `pick` is called with a position before the page runs again. Weights at or below `floor` have no
    shade."""

    def picked() -> None:
        position = st.session_state[key].pick
        if position is not None:
            pick(int(position))

    data = {"tokens": shaded(tokens, weights, selected, floor), "selected": selected, "label": label}
    _component()(data=data, key=key, on_pick_change=picked)


def shaded(
    tokens: Sequence[Token], weights: Sequence[float], selected: int, floor: float = 0.0
) -> list[dict[str, Any]]:
    """What is drawn of each token: text, title, and a shade from 0 to 1 that grows with the root of its weight."""
    most = max((weight for weight in weights if isfinite(weight)), default=floor) - floor or 1.0
    start = max(0, min(selected - WINDOW // 2, len(tokens) - WINDOW))
    return [
        {
            "position": position,
            "text": tokens[position].label,
            "title": f"{position} {printable(tokens[position].text)}: {weights[position]:.4f}",
            "shade": _shade(weights[position], floor, most),
            "special": tokens[position].special,
        }
        for position in range(start, min(start + WINDOW, len(tokens)))
    ]


def _shade(weight: float, floor: float, most: float) -> float:
    return round(sqrt(max(weight - floor, 0.0) / most), 4) if isfinite(weight) else 0.0


def _component() -> Any:
    html = '<div class="strip" role="listbox" dir="auto"></div>\n'
    return st.components.v2.component("attnviz_strip", html=html, css=_source("css"), js=_source("js"))


@cache
def _source(kind: str) -> str:
    return (Path(__file__).parent / f"strip.{kind}").read_text()
