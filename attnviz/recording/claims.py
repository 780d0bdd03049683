"""One thread at a time records a model: two would hear each other's calls and put the model back too early."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

from torch import nn

from ..errors import RecordingError

_lock = Lock()
_held: dict[int, list[int]] = {}
"""For each module and configuration under recording, the thread of each of its recorders."""


@contextmanager
def claimed(model: nn.Module) -> Iterator[None]:
    """Hold a model's modules and configurations for this thread; recorders of one thread may nest.

    Raises RecordingError when another thread records any of them.
    """
    parts = [*model.modules()]
    configs = [module.config for module in parts if hasattr(module, "config")]
    keys, thread = {id(part) for part in (*parts, *configs)}, get_ident()
    with _lock:
        if any(other != thread for key in keys for other in _held.get(key, ())):
            raise RecordingError(
                f"{type(model).__name__} is being recorded in another thread, or shares modules or its configuration"
                " with a model that is: record one after the other, or give each thread a copy"
            )
        for key in keys:
            _held.setdefault(key, []).append(thread)
    try:
        yield
    finally:
        with _lock:
            for key in keys:
                _held[key].pop()
                if not _held[key]:
                    del _held[key]
