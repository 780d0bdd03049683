"""Tokens as axis labels and tooltips: short or whole, kept in their own direction, always data.

Labels reach a chart as the value of a parameter, an array, and expressions only index it. So no token text is ever part
of an expression or of a field name, and equal tokens at different positions stay apart.
"""

from __future__ import annotations

import hashlib
import json
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..tokens import Token, printable

if TYPE_CHECKING:
    import altair as alt

LIMIT = 16
"""Characters of a token that an axis shows."""
_WHOLE = 500
"""Characters of a token that a tooltip shows."""
_RIGHT_TO_LEFT = {"R", "AL", "AN"}
_JOINERS = "\u200d\ufe0e\ufe0f"


def short(text: str, limit: int = LIMIT) -> str:
    """The text cut to `limit` characters, the last being an ellipsis, and isolated where it runs right to left."""
    return isolate(text if len(text) <= limit else text[: limit - 1].rstrip(_JOINERS) + "…")


def isolate(text: str) -> str:
    """Text that runs right to left between isolating marks, so that it cannot reorder what stands beside it."""
    mixed = any(unicodedata.bidirectional(char) in _RIGHT_TO_LEFT for char in text)
    return f"\u2068{text}\u2069" if mixed else text


def tooltips(tokens: Sequence[Token]) -> list[str]:
    """What a tooltip says of each position: number, text and, where it differs, the tokenizer's own piece."""
    return [_tooltip(position, token) for position, token in enumerate(tokens)]


def numbered(position: int, token: Token) -> str:
    """Position and label, for lists where tokens stand without their neighbours."""
    return f"{position} {short(token.label)}"


@dataclass(frozen=True)
class AxisText:
    """The tokens of one axis as two chart parameters: `labels` cut short, `whole` for tooltips."""

    labels: alt.Parameter
    whole: alt.Parameter


def axis_text(tokens: Sequence[Token]) -> AxisText:
    """The parameters for an axis of these tokens."""
    return AxisText(_array("labels", [short(token.label) for token in tokens]), _array("tokens", tooltips(tokens)))


def axis_text_at(tokens: Sequence[Token], positions: Sequence[int]) -> AxisText:
    """The parameters for an axis of the tokens at some positions, with their numbers."""
    labels = [numbered(position, tokens[position]) for position in positions]
    return AxisText(
        _array("labels", labels), _array("tokens", [_tooltip(position, tokens[position]) for position in positions])
    )


def parameters(*texts: AxisText) -> list[alt.Parameter]:
    """All parameters of these axes, each once."""
    return list({array.name: array for text in texts for array in (text.labels, text.whole)}.values())


def _array(role: str, values: Sequence[str]) -> alt.Parameter:
    """A chart parameter holding strings; equal strings get equal names, so charts can be put side by side."""
    import altair as alt

    digest = hashlib.sha256(json.dumps(list(values)).encode()).hexdigest()[:8]
    return alt.param(name=f"{role}_{digest}", value=list(values))


def _tooltip(position: int, token: Token) -> str:
    text, raw = printable(token.text), printable(token.raw)
    known = raw in (token.label, text)
    return f"{position} {short(token.label, _WHOLE)}" + ("" if known else f" (token {short(raw, _WHOLE)})")
