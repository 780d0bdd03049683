"""Map: the selected head, whole, and the text shaded by what one token looks at, or by what looks at it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import streamlit as st
from torch import Tensor

from .. import charts
from ..trace import Head
from . import exports, figures
from .controls import position, switch
from .selection import select_token
from .sidebar import Look
from .strip import strip

if TYPE_CHECKING:
    import pandas as pd

    from ..tokens import Token

FROM, TO = "From this token", "To this token"


def draw(look: Look) -> None:
    """The page."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        figures.show(charts.heatmap(look.head, theme=figures.theme(), width=560))
        exports.offer(look.wanted, "heatmap", look.head)
    with right:
        _reading(look.head)


def _reading(head: Head) -> None:
    """The same without colours or a mouse."""
    side = switch("Direction", [FROM, TO], "side", label_visibility="collapsed", width="stretch")
    chosen, others = (head.rows, head.cols) if side == FROM else (head.cols, head.rows)
    token = position("Token", len(chosen), "token")
    weights = weights_of(head, token, side)
    st.text(f"{chosen[token].label} {'looks at' if side == FROM else 'is looked at by'}")
    strip(others, weights.tolist(), token, key="strip", label="Tokens shaded by weight", pick=select_token)
    bar = st.column_config.ProgressColumn("weight", format="%.4f", min_value=0.0, max_value=1.0)
    st.dataframe(strongest(others, weights), hide_index=True, column_config={"weight": bar})


def weights_of(head: Head, token: int, side: str) -> Tensor:
    """What one query gives to every key [N], or what one key gets from every query [M]."""
    here = slice(token, token + 1)
    return head.weights(rows=here)[0] if side == FROM else head.weights(cols=here)[:, 0]


def strongest(tokens: tuple[Token, ...], weights: Tensor, count: int = 10) -> pd.DataFrame:
    """The largest weights with their tokens, largest first."""
    import pandas as pd

    best = weights.topk(min(count, len(tokens)))
    places = best.indices.tolist()
    return pd.DataFrame(
        {"position": places, "token": [tokens[place].label for place in places], "weight": best.values.tolist()}
    )
