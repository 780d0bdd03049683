"""What whoever starts the server decides: read once, from the environment, by either way of starting it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from ..errors import UsageError

AUTO_TOKENS = 1024
"""Texts up to this many tokens are recorded at once; longer ones after a look at what they cost."""


@dataclass(frozen=True)
class Settings:
    """model_root holds the folders and traces visitors may open, traces are further ones; budget is in bytes of kept
    traces."""

    model_root: Path | None = None
    allow_hub: bool = False
    max_tokens: int = 32768
    budget: int = 2 << 30
    hosts: tuple[str, ...] = ("127.0.0.1", "localhost")
    traces: tuple[Path, ...] = ()


def from_environment(environment: dict[str, str]) -> Settings:
    """Settings from ATTNVIZ_MODEL_ROOT, _ALLOW_HUB, _MAX_TOKENS, _TRACE_BUDGET (bytes), _HOSTS (comma-separated) and
    _TRACES (files, separated as in PATH).

    Raises UsageError for a number that is none, a root that is no folder, or a trace that is no file.
    """
    root = environment.get("ATTNVIZ_MODEL_ROOT")
    if root and not Path(root).is_dir():
        raise UsageError(f"the model root {root} is not a folder: give one that holds model folders or .attn files")
    traces = [Path(name) for name in environment.get("ATTNVIZ_TRACES", "").split(os.pathsep) if name]
    for path in traces:
        if not path.is_file() or path.suffix != ".attn":
            raise UsageError(f"{path} is not there or no trace: give .attn files written by attnviz record")
    extra = [name.strip() for name in environment.get("ATTNVIZ_HOSTS", "").split(",") if name.strip()]
    return Settings(
        Path(root).resolve() if root else None,
        environment.get("ATTNVIZ_ALLOW_HUB", "") == "1",
        _count(environment, "ATTNVIZ_MAX_TOKENS", Settings.max_tokens),
        _count(environment, "ATTNVIZ_TRACE_BUDGET", Settings.budget),
        (*Settings.hosts, *extra),
        tuple(path.resolve() for path in traces),
    )


@cache
def settings() -> Settings:
    """The settings of this process."""
    return from_environment(dict(os.environ))


def _count(environment: dict[str, str], name: str, default: int) -> int:
    given = environment.get(name, "")
    if not given:
        return default
    if not given.isdigit() or int(given) == 0:
        raise UsageError(f"{name} must be a positive whole number, got {given!r}")
    return int(given)
