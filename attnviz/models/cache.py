"""The cache of models: one folder each, there as a whole or not at all.

A model is built in a scratch folder beside its place and renamed into it, so that a full disk, a broken download or a
killed process leaves nothing that looks like a model.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ..errors import ModelError
from ..estimate import readable

_SCRATCH = ".part-"
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EEXIST)


@dataclass(frozen=True)
class Cached:
    """A model in the cache: the name of its folder, the folder, its bytes on disk."""

    name: str
    folder: Path
    bytes: int


def home() -> Path:
    """Where attnviz keeps its files: ATTNVIZ_HOME, else the platform's cache folder of this user."""
    import platformdirs

    return Path(os.environ.get("ATTNVIZ_HOME") or platformdirs.user_cache_dir("attnviz", appauthor=False)).expanduser()


def place(name: str) -> Path:
    """The folder of a cached model, whether it exists or not."""
    return home() / "models" / name


def cached() -> list[Cached]:
    """Every model in the cache, by name."""
    folders = sorted(path for path in place("").glob("[!.]*") if path.is_dir())
    return [Cached(path.name, path, sum(file.stat().st_size for file in path.iterdir())) for path in folders]


def install(name: str, needs: int, build: Callable[[Path], Path]) -> Path:
    """The folder of model `name`, built first if it is not there.

    `build` gets an empty scratch folder and returns the finished folder inside it; `needs` is what it takes on disk,
    in bytes. One process builds at a time, the others wait and find the result.
    """
    target = place(name)
    if target.is_dir():
        return target
    with _disk_errors(name, needs), _locked(target.parent):
        if not target.is_dir():
            _sweep(target.parent)
            _check_space(target.parent, needs)
            with TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as scratch:
                build(Path(scratch)).rename(target)
    return target


def remove(name: str) -> None:
    """Delete a cached model; ModelError when there is none of that name."""
    target = place(name)
    if name not in {model.name for model in cached()}:
        raise ModelError(f'no model called "{name}" is in the cache ({target.parent}); attnviz models lists what is')
    with _disk_errors(name, 0), _locked(target.parent), TemporaryDirectory(prefix=_SCRATCH, dir=target.parent) as bin:
        target.rename(Path(bin) / "removed")


def _is_full(error: Exception) -> bool:
    """Whether an error means that the disk is full; safetensors says so in its text only."""
    return getattr(error, "errno", None) in _FULL or "No space left on device" in str(error)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    from filelock import FileLock

    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        yield


def _sweep(folder: Path) -> None:
    """Clear what a killed process left; holding the lock, nobody else is at work."""
    for left in folder.glob(f"{_SCRATCH}*"):
        shutil.rmtree(left, ignore_errors=True)


def _check_space(folder: Path, needs: int) -> None:
    free = shutil.disk_usage(folder).free
    if free < needs:
        raise OSError(errno.ENOSPC, f"{readable(free)} are free")


@contextmanager
def _disk_errors(name: str, needs: int) -> Iterator[None]:
    """Say what to do when the cache cannot be written."""
    try:
        yield
    except Exception as error:
        if _is_full(error):
            raise ModelError(
                f"the disk of {home()} is full: {name} needs {readable(needs)} there; "
                "free some space or let ATTNVIZ_HOME name a folder on another disk"
            ) from error
        if isinstance(error, OSError) and error.errno in _FORBIDDEN:
            raise ModelError(
                f"{home()} cannot be written ({error.strerror}); let ATTNVIZ_HOME name a folder that can"
            ) from error
        raise
