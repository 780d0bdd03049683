"""What a visitor may open: bundled models, folders, GGUF files and traces below the model root, hub ids if allowed."""

from __future__ import annotations

from difflib import get_close_matches
from pathlib import Path

from ..errors import ModelError
from ..models import BUNDLED
from .settings import Settings

TRACE = ".attn"


def offered(settings: Settings) -> list[str]:
    """Names to choose from, bundled models first. Links that lead out of the model root are not followed."""
    return [*BUNDLED, *_below(settings.model_root)]


def locate(name: str, settings: Settings) -> str | Path:
    """What a chosen name stands for. Raises ModelError for one that is not offered; no other path is ever opened."""
    if name in BUNDLED:
        return name
    if settings.model_root is not None and name in _below(settings.model_root):
        return settings.model_root / name
    if settings.allow_hub and _is_hub_id(name):
        return name
    near = get_close_matches(name, offered(settings), n=3, cutoff=0.5) or offered(settings)
    raise ModelError(f"{name} is not offered here: choose {', '.join(near)}")


def _below(root: Path | None) -> list[str]:
    if root is None:
        return []
    found = (path for path in sorted(root.rglob("*")) if _is_model(path) and path.resolve().is_relative_to(root))
    return [path.relative_to(root).as_posix() for path in found]


def _is_model(path: Path) -> bool:
    return path.suffix in (TRACE, ".gguf") if path.is_file() else (path / "config.json").is_file()


def _is_hub_id(name: str) -> bool:
    """Not a path of this machine, which loading would prefer."""
    return len(name.split("/")) <= 2 and all(part.strip(".~") for part in name.split("/")) and not Path(name).exists()
