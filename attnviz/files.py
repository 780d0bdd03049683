"""Files are written beside their place and renamed: whoever interrupts, the old file or the new one is whole.

Symbolic links are followed; pipes and devices are written to, never replaced.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .errors import AttnvizError, UsageError


def check_place(path: Path) -> None:
    """UsageError unless a file can be put at `path`: its folder is there, may be written to, and it is no folder."""
    if str(path) == "-":
        raise UsageError("- is no file: name one with an ending such as figure.svg or table.csv")
    if path.is_dir():
        raise UsageError(f"{path} is a folder: name a file in it")
    if _special(path):
        if not os.access(path, os.W_OK):
            raise UsageError(f"{path} cannot be written to: choose another place")
        return
    folder = path.resolve().parent if path.is_symlink() else path.parent
    if not folder.is_dir():
        raise UsageError(f"the folder {folder} does not exist: create it first or choose another place")
    if not os.access(folder, os.W_OK):
        raise UsageError(f"the folder {folder} cannot be written to: choose another place")


def _special(path: Path) -> bool:
    """Whether a pipe, a device or a socket is there, which a file must not replace."""
    return path.exists() and not path.is_file()


@contextmanager
def written(path: Path) -> Iterator[Path]:
    """A place to write to; its content becomes that of `path` when the block ends well, and is gone when it does not.

    Raises AttnvizError where the system refuses, and leaves what was there.
    """
    check_place(path)
    try:
        with _passed_on(path) if _special(path) else _beside(Path(os.path.realpath(path))) as place:
            yield place
    except OSError as error:
        raise AttnvizError(f"{path} could not be written: {error.strerror or error}") from error


@contextmanager
def _beside(path: Path) -> Iterator[Path]:
    """A new file in the same folder, renamed at the end."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
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


@contextmanager
def _passed_on(path: Path) -> Iterator[Path]:
    """A temporary file that is copied into the pipe or device at the end."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "content"
        yield place
        with place.open("rb") as content, path.open("wb") as target:
            shutil.copyfileobj(content, target)


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
