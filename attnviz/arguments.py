"""Arguments of another kind than a function takes, refused in one line before anything is computed."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .errors import UsageError


def refuse(name: str, rule: str, value: Any) -> UsageError:
    """The error for a value that does not follow the rule."""
    said = repr(value) if isinstance(value, str | int | float | None) else f"a {type(value).__name__}"
    return UsageError(f"{name} must be {rule}, got {said}")


def check_text(value: Any) -> None:
    """UsageError unless the text is a string with a word in it."""
    if not isinstance(value, str):
        raise refuse("the text", "one string (of several texts, inspect each)", value)
    if not value.strip():
        raise UsageError("the text is empty: give at least one word")


def path_of(value: Any) -> Path:
    """The path, or UsageError for what is none."""
    if not isinstance(value, str | os.PathLike):
        raise refuse("the path", 'a string or a pathlib.Path, such as "run.attn"', value)
    return Path(value)


def check_whole(name: str, value: Any, least: int = 1) -> None:
    """UsageError unless the value is a whole number of at least so much."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise refuse(name, f"a whole number from {least} on", value)


def check_pixels(value: Any) -> None:
    """UsageError unless the value is None or a width in pixels."""
    if value is not None and (not isinstance(value, int | float) or isinstance(value, bool) or not value > 0):
        raise refuse("width", 'a number of pixels (attnviz.export.pixels("85mm") gives one)', value)


def check_numbers(name: str, value: Any) -> None:
    """UsageError unless the value is None or whole numbers, of layers, heads or rows, in a list."""
    if value is None:
        return
    if isinstance(value, str) or not isinstance(value, Iterable):
        raise refuse(name, "a list of whole numbers, such as [0, 3]", value)
    for item in value:
        if not hasattr(item, "__index__"):
            raise refuse(name, "a list of whole numbers, such as [0, 3]", item)
