"""Map: the selected head at every scale, and the text shaded by what one token looks at, or by what looks at it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import streamlit as st
from torch import Tensor

from ..head import Head
from . import exports, runs
from .controls import choose, position, suggest, switch
from .places import DIVIDED, HIDDEN, SHOWN, TOKENS, WORD_LIMIT, WORDS, Place, drawn_at, prepared, starts
from .selection import select_key, select_token
from .sidebar import Look
from .start import start_link
from .strip import strip
from .zoom import look as drawn_look
from .zoom import open_look, zoom

if TYPE_CHECKING:
    import pandas as pd

    from ..tokens import Token

FROM, TO = "From the query", "To the key"
OWN_SCALE = "Exports keep a look of their own, cividis on a root scale; the page (html) has the same choices."
SAID = {
    SHOWN: "",
    HIDDEN: "Special tokens are left out, the other weights are as they were: rows sum to less than 1.",
    DIVIDED: "Special tokens are left out and each row is divided by what is left of it: rows sum to 1.",
}


def draw(look: Look) -> None:
    """The page."""
    left, right = st.columns([3, 2], gap="large")
    with left:
        place = _place(look)
        head = prepared(place)
        map_place = st.container()
    first = starts(place)
    with right:
        selected = _reading(look, head, first)

    def pick(row: int, col: int) -> None:
        select_token(first[0][row])
        select_key(first[1][col])

    with map_place:
        open_look()
        zoom(place, head, first, selected, key="map", pick=pick)
        exports.offer(look, "map", **exports.place_of(look.head), **_options(place))
        if drawn_look():
            st.caption(OWN_SCALE)


def _has_special(head: Head) -> bool:
    return any(token.special for token in (*head.rows, *head.cols))


def _options(place: Place) -> dict[str, Any]:
    """What the export takes beside the head."""
    return ({"words": True} if place.unit == WORDS else {}) | (
        {"special": place.special} if place.special != SHOWN else {}
    )


def _place(look: Look) -> Place:
    """Which map, with the switches that say so."""
    here = Place(look.wanted, look.kind, look.trace.batch, look.head.layer, look.head.head)
    with st.container(horizontal=True):
        unit = switch("Map of", [TOKENS, WORDS], "unit")
        key = (look.wanted, look.kind, look.trace.batch, "special")
        has_special = runs.traces().make(key, lambda: _has_special(look.head), lambda _: 100)
        special = choose("Special tokens", [SHOWN, HIDDEN, DIVIDED], "special", width=260) if has_special else SHOWN
    note = SAID[special]
    if unit == WORDS and (count := max(len(look.head.row_words()), len(look.head.col_words()))) > WORD_LIMIT:
        note = f"Words are drawn up to {WORD_LIMIT:,}, this text has {count:,}: these are its tokens. {note}"
        unit = TOKENS
    place = st.empty()
    if note:
        place.caption(note)
    return Place(here.wanted, here.kind, here.sequence, here.layer, here.head, unit, special)


def _reading(look: Look, head: Head, first: tuple[Sequence[int], Sequence[int]]) -> tuple[int, int]:
    """The same without colours or a mouse; returns the row and column of `head` that are selected."""
    side = switch("Direction", [FROM, TO], "side", label_visibility="collapsed", width="stretch")
    suggest((look.wanted, look.kind, look.trace.batch), ("token", "key"), lambda: start_link(look.head))
    with st.container(horizontal=True):
        query = position("Query", len(look.head.rows), "token")
        key = position("Key", len(look.head.cols), "key")
    row, col = drawn_at(first[0], query), drawn_at(first[1], key)
    weights = weights_of(head, row if side == FROM else col, side)
    shown, numbers = (head.cols, first[1]) if side == FROM else (head.rows, first[0])
    st.text(f"{head.rows[row].label} looks at" if side == FROM else f"{head.cols[col].label} is looked at by")
    # within one text a click goes on from the token clicked at, between two it chooses the other end
    queries = (side == FROM) == (look.kind not in ("cross", "pool"))

    def pick(place: int) -> None:
        (select_token if queries else select_key)(numbers[place])

    marked = drawn_at(numbers, query if queries else key)
    strip(shown, weights.tolist(), marked, key="strip", label="Tokens shaded by weight", pick=pick)
    bar = st.column_config.ProgressColumn("weight", format="%.4f", min_value=0.0, max_value=1.0)
    st.dataframe(strongest(shown, weights, numbers), hide_index=True, column_config={"weight": bar})
    return row, col


def weights_of(head: Head, place: int, side: str) -> Tensor:
    """What one query gives to every key [N], or what one key gets from every query [M]."""
    here = slice(place, place + 1)
    return head.weights(rows=here)[0] if side == FROM else head.weights(cols=here)[:, 0]


def strongest(tokens: tuple[Token, ...], weights: Tensor, numbers: Sequence[int], count: int = 10) -> pd.DataFrame:
    """The largest weights with their tokens, largest first; without those that are 0."""
    import pandas as pd

    best = weights.topk(min(count, int((weights > 0).sum())))
    places = best.indices.tolist()
    return pd.DataFrame(
        {
            "position": [numbers[place] for place in places],
            "token": [tokens[place].label for place in places],
            "weight": best.values.tolist(),
        }
    )
