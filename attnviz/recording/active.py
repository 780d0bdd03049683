"""Which recorders listen to which module: the only state that recording keeps outside a recorder.

Modules are looked up by identity, so that recorders of different models, threads and nested blocks never meet.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import Lock
from typing import TYPE_CHECKING

from torch import nn

if TYPE_CHECKING:
    from .recorder import Recorder

_lock = Lock()
_listening: dict[int, tuple[Recorder, ...]] = {}


def listening(module: nn.Module) -> tuple[Recorder, ...]:
    """The recorders that listen to a module, outermost first."""
    return _listening.get(id(module), ())


def listen(recorder: Recorder, modules: Iterable[nn.Module]) -> None:
    """Let a recorder hear the calls of modules, until `leave`."""
    with _lock:
        for module in modules:
            _listening[id(module)] = (*_listening.get(id(module), ()), recorder)


def leave(recorder: Recorder) -> None:
    """Take a recorder off every module."""
    with _lock:
        for key, recorders in list(_listening.items()):
            rest = tuple(other for other in recorders if other is not recorder)
            if rest:
                _listening[key] = rest
            else:
                del _listening[key]
