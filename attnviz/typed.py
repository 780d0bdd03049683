"""Whether a value is what a dataclass declares: for values that come from files."""

from __future__ import annotations

from dataclasses import fields
from functools import lru_cache
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints


def well_typed(value: Any) -> bool:
    """Whether every field of a dataclass instance fits its annotation; those of fields within are not looked at."""
    kind: Any = type(value)
    hints = _hints(kind)
    return all(fits(getattr(value, field.name), hints[field.name]) for field in fields(value))


def fits(value: Any, hint: Any) -> bool:
    """Whether a value is of a type: classes, unions, tuples, None, and protocols by the names of their methods.

    >>> fits((1, None), tuple[int | None, ...]), fits((1, 2), tuple[int]), fits(True, int)
    (True, False, False)
    """
    origin, parts = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(fits(value, part) for part in parts)
    if origin is tuple:
        return isinstance(value, tuple) and _tuple_fits(value, parts)
    if hint in (None, NoneType):
        return value is None
    if hint in (int, float):
        return isinstance(value, int if hint is int else (int, float)) and not isinstance(value, bool)
    if getattr(hint, "_is_protocol", False):
        return all(hasattr(value, name) for name in vars(hint) if not name.startswith("_"))
    return isinstance(value, hint)


def _tuple_fits(value: tuple[Any, ...], parts: tuple[Any, ...]) -> bool:
    if parts[-1:] == (...,):
        return all(fits(item, parts[0]) for item in value)
    return len(value) == len(parts) and all(map(fits, value, parts))


@lru_cache
def _hints(kind: type) -> dict[str, Any]:
    return get_type_hints(kind)
