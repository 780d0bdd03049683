"""Words of a chart's spec, changed so that they fit: titles in lines, characters that no font has as their codes."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

JOINERS = "\u200d\ufe0e\ufe0f"
"""Characters that only change how others look."""
_LABEL = 24
"""Characters that a label has at most: 16, and a position."""
_LETTER = {"text": 0.6, "subtitle": 0.52}
"""Width of a letter of a title (bold) or subtitle, as a share of its size."""


def wrapped(spec: dict[str, Any], width: float, size: int) -> dict[str, Any]:
    """The spec with titles, its own and those of its parts, in lines of at most `width` pixels.

    size is that of a subtitle; a title has three pixels more.
    """
    title = spec.get("title")
    parts = {"vconcat": [wrapped(part, width, size) for part in spec["vconcat"]]} if "vconcat" in spec else {}
    if title is None:
        return spec | parts
    words = {"text": title} if isinstance(title, str) else title
    sizes = {"text": size + 3, "subtitle": size}
    lines = {name: _lines(words[name], width / (_LETTER[name] * sizes[name])) for name in sizes if words.get(name)}
    return spec | parts | {"title": words | lines}


def _lines(text: str, letters: float) -> list[str]:
    return textwrap.wrap(text, max(8, int(letters)), break_on_hyphens=False)


def replaced(value: Any, names: Mapping[str, str]) -> Any:
    """The same JSON with characters in its strings replaced; a label that would grow beyond its limit loses its end."""
    if not names:
        return value
    if isinstance(value, str):
        return _named(value, names)
    if isinstance(value, list):
        return [replaced(each, names) for each in value]
    if isinstance(value, dict):
        return {name: replaced(each, names) for name, each in value.items()}
    return value


def _named(text: str, names: Mapping[str, str]) -> str:
    """The text with names in place of characters; of a label as many as fit."""
    whole = [names.get(char, char) for char in text]
    ends = list(accumulate(map(len, whole)))
    if not whole or len(text) > _LABEL or ends[-1] <= _LABEL:
        return "".join(whole)
    return "".join(part for part, end in zip(whole, ends, strict=True) if end < _LABEL) + "…"
