"""What a visitor may open: given traces, bundled models, what lies below the model root, and hub ids if allowed."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from functools import lru_cache
from pathlib import Path
from time import monotonic

from ..errors import ModelError
from ..models import BUNDLED
from .settings import Settings

TRACE = ".attn"
FRESH = 10.0
"""Seconds for which a listing of the model root is taken as it was."""


def offered(settings: Settings) -> list[str]:
    """Names to choose from: given traces, bundled models, and what lies below the model root."""
    return list(dict.fromkeys([*_given(settings.traces), *BUNDLED, *_below(settings.model_root)]))


def locate(name: str, settings: Settings) -> str | Path:
    """What a chosen name stands for. Raises ModelError for one that is not offered; no other path is ever opened."""
    given = _given(settings.traces)
    if name in given:
        return given[name]
    if name in BUNDLED:
        return name
    if settings.model_root is not None and name in _below(settings.model_root):
        return settings.model_root / name
    if settings.allow_hub and _is_hub_id(name):
        return name
    near = get_close_matches(name, offered(settings), n=3, cutoff=0.5) or offered(settings)
    raise ModelError(f"{name} is not offered here: choose {', '.join(near)}")


def _given(traces: Sequence[Path]) -> dict[str, Path]:
    """The traces by name; those that share one are told apart by their folders."""
    names = [path.name for path in traces]
    return {path.name if names.count(path.name) == 1 else path.as_posix(): path for path in traces}


def _below(root: Path | None) -> tuple[str, ...]:
    return () if root is None else _listed(root, int(monotonic() / FRESH))


@lru_cache(maxsize=1)
def _listed(root: Path, _: int) -> tuple[str, ...]:
    """Models and traces below the root. Links that lead out of it are not followed."""
    found = (path for path in sorted(root.rglob("*")) if _is_model(path) and path.resolve().is_relative_to(root))
    return tuple(path.relative_to(root).as_posix() for path in found)


def _is_model(path: Path) -> bool:
    return path.suffix in (TRACE, ".gguf") if path.is_file() else (path / "config.json").is_file()


def _is_hub_id(name: str) -> bool:
    """Not a path of this machine, which loading would prefer."""
    return len(name.split("/")) <= 2 and all(part.strip(".~") for part in name.split("/")) and not Path(name).exists()
