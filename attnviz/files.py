"""Files are written beside their place and renamed: whoever interrupts, the old file or the new one is whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import AttnvizError, UsageError


def check_place(path: Path) -> None:
    """UsageError unless a file can be put at `path`: its folder is there, may be written to, and it is no folder."""
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it")
    if not path.parent.is_dir():
        raise UsageError(f"the folder {path.parent} does not exist: create it first or choose another place")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"the folder {path.parent} cannot be written to: choose another place")


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A place beside `path` to write to; becomes `path` when the block ends well, and is gone when it does not.

    Raises AttnvizError where the system refuses, and leaves what was there.
    """
    check_place(path)
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.close(handle)
        beside = Path(name)
        try:
            yield beside
            beside.chmod(mode)
            beside.replace(path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise AttnvizError(f"{path} could not be written: {error.strerror or error}") from error


def write(path: Path, content: bytes) -> None:
    """Put the content at `path` as a whole, or raise AttnvizError and leave what was there."""
    with written(path) as beside, beside.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def _umask() -> int:
    """The process's file mode mask, which can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
