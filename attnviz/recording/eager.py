"""Compiled code runs as it was written while something is recorded: inside a compiled graph nothing can be heard."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch

_lock = Lock()
_users = 0
_stance: Any = None


@contextmanager
def uncompiled() -> Iterator[None]:
    """Let everything that torch.compile made run eagerly while the block runs, in all threads.

    The compiler's stance is one for the whole process: the first block sets it, the last one puts it back.
    """
    _count(1)
    try:
        yield
    finally:
        _count(-1)


def _count(change: int) -> None:
    global _users, _stance
    with _lock:
        _users += change
        if _users == 1 and change == 1:
            _stance = torch.compiler.set_stance("force_eager")
        elif _users == 0:
            _stance.__exit__(None, None, None)
            _stance = None
