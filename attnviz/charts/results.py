"""What an analysis found, as a figure: a score for every head, or for every token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..errors import UsageError
from ..tokens import Token
from .axis import fit, inside
from .grid import head_axis
from .labels import numbered
from .legend import between
from .sources import check_columns
from .theme import MAP, AltairChart, themed
from .titles import Title

if TYPE_CHECKING:
    import pandas as pd

BARS = 40
"""Tokens that `token_bars` shows at most."""


def score_grid(
    table: pd.DataFrame,
    column: str,
    title: Title,
    *,
    low_is_best: bool = False,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """Layers down, heads across, any column of a table with layer and head as colour. The best end is bright."""
    import altair as alt

    check_columns(table, column)
    step = fit(int(table["head"].max()) + 1, 160, width, most=28, total=700)
    low, high = float(table[column].min()), float(table[column].max())
    ends = {} if low < high else {"domain": [low, low + 1]}
    chart = (
        alt.Chart(table[["layer", "head", column]])
        .mark_rect(width={"band": 0.94}, height={"band": 0.94}, cornerRadius=2)
        .encode(
            x=alt.X("head:O", axis=head_axis("head", "top", step)),
            y=alt.Y("layer:O", axis=head_axis("layer", "left", step)),
            color=alt.Color(
                f"{column}:Q",
                title=column,
                scale={"range": "heatmap", "reverse": low_is_best, **ends},
                legend=between(low, high),
            ),
            tooltip=["layer:O", "head:O", alt.Tooltip(f"{column}:Q", format=".3f")],
        )
        .properties(
            title=title,
            description=f"Layers by heads, coloured by {column}.",
            width={"step": step},
            height={"step": step},
            view={"style": MAP},
        )
    )
    return themed(chart, theme)


def token_bars(
    tokens: Sequence[Token],
    scores: Sequence[float],
    title: Title,
    *,
    theme: str | None = "screen",
    width: int | None = None,
) -> AltairChart:
    """One bar a token, in the order of the text; of a long text the tokens with the largest scores."""
    import altair as alt
    import pandas as pd

    if len(scores) != len(tokens):
        raise UsageError(f"every token has one score: there are {len(tokens)} tokens and {len(scores)} scores")
    largest = sorted(range(len(scores)), key=lambda place: -abs(scores[place]))[:BARS]
    rows = [{"token": numbered(place, tokens[place]), "score": scores[place]} for place in sorted(largest)]
    chart = (
        alt.Chart(pd.DataFrame(rows))
        .mark_bar(style="accent", height={"band": 0.7})
        .encode(
            y=alt.Y("token:N", sort=None, axis=alt.Axis(title=None, ticks=False, labelLimit=200)),
            x=alt.X("score:Q", axis=alt.Axis(grid=True)),
            tooltip=["token:N", alt.Tooltip("score:Q", format=".4f")],
        )
        .properties(
            title=title,
            description="One bar a token, in the order of the text.",
            width=inside(600 if width is None else width, 160, 120),
            height={"step": 16},
        )
    )
    return themed(chart, theme)
