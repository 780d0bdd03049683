"""Where in a running model a call comes from, for calls that do not say so themselves.

A `Watch` follows one model in one thread: forward hooks keep the stack of modules that are running, so that a torch
function, `attention` or `tap` can be named after the innermost one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor, nn

from .chains import Chains
from .frames import Frame
from .options import Options
from .store import Store

_COMPILED = "_orig_mod"
"""What torch.compile calls the module that it wraps."""

_watching: ContextVar[tuple[Watch, ...]] = ContextVar("attnviz_watching", default=())


def watching() -> tuple[Watch, ...]:
    """The watches of this thread, outermost first; none while autograd runs a part again for a gradient checkpoint."""
    watches = _watching.get()
    return watches if watches and torch._C._current_graph_task_id() == -1 else ()


def listeners() -> tuple[Watch, ...]:
    """The watches whose model is running."""
    return tuple(watch for watch in watching() if watch.frames)


class Watch:
    """What one recorder hears in one thread. functions: whether torch's own functions are to be heard too."""

    def __init__(self, model: nn.Module, options: Options, store: Store, functions: bool = True) -> None:
        self.model, self.functions = model, functions
        self.options = options
        self.chains = Chains(options, store)
        self.frames: list[Frame] = []
        self.ids: dict[int, list[Tensor]] = {}
        self._visits: Counter[str] = Counter()

    @property
    def here(self) -> Frame:
        """The innermost running module, or the model where none runs."""
        return self.frames[-1] if self.frames else Frame("", self.model)

    def ran(self, name: str) -> bool:
        """Whether a module was called in the last run."""
        return self._visits[plain(name)] > 0

    def enter(self, name: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """A module begins to run."""
        if not name:
            self.frames.clear()  # what an interrupt may have left
        if not self.frames:
            self._begin((*args, *kwargs.values()))
        self.frames.append(Frame(name, module, self._visits[name], args, kwargs))
        self._visits[name] += 1

    def _begin(self, inputs: tuple[Any, ...]) -> None:
        self.chains.begin()
        self._visits.clear()
        needed = self.chains.first_step
        self.ids = {step: ids for step, ids in self.ids.items() if step >= needed}
        self.ids[self.chains.step] = [value.detach() for value in inputs if _is_ids(value)]

    def leave(self, module: nn.Module) -> None:
        """A module has run, or has raised."""
        while self.frames and self.frames.pop().module is not module:
            pass


@contextmanager
def watched(watch: Watch) -> Iterator[Watch]:
    """Follow the watch's model in this thread while the block runs; afterwards the model has its own hooks only."""
    _watching.set((*_watching.get(), watch))
    with ExitStack() as stack:
        stack.callback(lambda: _watching.set(tuple(other for other in _watching.get() if other is not watch)))
        for name, module in watch.model.named_modules():
            if name.rpartition(".")[2] != _COMPILED and (watch.functions or not name):
                before, after = _hooks(watch, plain(name))
                stack.callback(module.register_forward_pre_hook(before, prepend=True, with_kwargs=True).remove)
                stack.callback(module.register_forward_hook(after, always_call=True).remove)
        yield watch


def plain(name: str) -> str:
    """The path of a module without what torch.compile puts around it."""
    return name.replace(f"{_COMPILED}.", "")


def _hooks(watch: Watch, name: str) -> tuple[Any, Any]:
    def before(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if watch in watching():
            watch.enter(name, module, args, kwargs)

    def after(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        if watch in watching():
            watch.leave(module)

    return before, after


def _is_ids(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 2 and value.dtype in (torch.int32, torch.int64)
