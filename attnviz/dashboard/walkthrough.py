"""Walkthrough: why scores are divided by the square root of the head size."""

from __future__ import annotations

import streamlit as st

from .. import charts
from . import exports, figures
from .sidebar import Look

SCALING = """
#### Why divide by √dₖ?

A head compares a query with every key by their product **q·k**. The sum of dₖ products grows with √dₖ, and softmax
of large numbers is all or nothing: one weight near 1, the rest near 0, and no gradient gets through.

Dividing by √dₖ keeps the scores in the range where softmax still weighs.

- **Move the divisor** to the left and watch the weights collapse onto one token; to the right they become equal.
- **Choose a query** in the list or by a click on the row of tokens.
- The orange marks show what the model itself does.
"""


def draw(look: Look) -> None:
    """The page."""
    words, chart = st.columns([2, 5], gap="large")
    with words:
        st.markdown(SCALING)
        exports.offer(look.wanted, "scaling", look.head)
    with chart:
        figures.show(charts.scaling(look.head, theme=figures.theme(), width=660))
