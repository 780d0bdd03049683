"""What a recording keeps while it listens, and the trace it becomes."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from functools import cached_property
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn

from attnviz_kernels import Emit, View, choose, visible_keys

from ..errors import RecordingError
from ..estimate import STATISTICS_BYTES
from ..trace import Trace
from .heard import Heard
from .labels import Labels
from .modules import Place, is_differential
from .options import Options
from .parts import Counted, Kept, Part, Weighed, own_keys
from .runs import GivenMask, Run
from .sequences import Returned
from .store import Store

STATISTICS, NOTHING = Emit(statistics=True), Emit()
Key = tuple[str, int]
"""A module's path and which of its calls in one forward pass."""


@dataclass
class Calls:
    """All calls of one module in one run; index counts the module's calls in one forward pass."""

    place: Place
    module: nn.Module | None
    index: int
    rung: str
    backend: str
    notes: tuple[str, ...]
    parts: list[Part] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)

    @cached_property
    def what(self) -> str:
        """How errors name it."""
        return f"layer {self.place.layer} ({self.place.name})"


class Recorder:
    """Collects the calls of the modules it listens to; `assembly.finish` turns them into records and axes."""

    def __init__(self, trace: Trace, options: Options, tokenizer: Any = None, labels: Labels | None = None) -> None:
        self.trace = trace
        self.options = options
        self.store = Store(options.budget, options.dtype, options.spill)
        self.tokenizer, self.labels = tokenizer, labels
        self.text: str | None = None
        self.places: dict[int, Place] = {}
        self.runs: dict[str, Run] = {}
        self.calls: dict[Key, Calls] = {}
        self.visits: dict[str, int] = {}
        self.caches: dict[int, list[Run]] = {}
        self.returned: Returned | None = None
        self.replaced: Counter[str] = Counter()
        self._waiting: list[tuple[nn.Module, Heard]] = []
        self._seen: set[tuple[type[nn.Module], tuple[str, ...]]] = set()
        self._latest: tuple[Place, View] | None = None
        self._thread: int | None = None

    def begin(self, stack: str, start: int, count: int, ids: Tensor | None, mask: GivenMask | None) -> None:
        """A stack begins a forward pass over tokens start to start + count; start 0 begins a new run."""
        self.settle()
        self._thread = get_ident()
        run = self.runs.get(stack)
        if run is None or start == 0:
            self.replaced[stack] += run is not None
            self._forget(stack)
            run = self.runs[stack] = Run()
        run.add(start, count, ids, mask)
        for place in self.places.values():
            if place.stack == stack:
                self.visits[place.name] = 0

    def emit(self, module: nn.Module, query: Tensor, key: Tensor) -> Emit:
        """What the kernel should leave behind for this recorder."""
        place = self.places[id(module)]
        if not self.wants(place):
            return NOTHING
        if self.options.keep == "weights":
            self.store.check(query.shape[:3].numel() * key.shape[2] * 4, f"layer {place.layer} ({place.name})")
            return Emit(statistics=True, weights=True)
        # a step's statistics are quicker found for all steps together, from the joined view, when somebody asks
        return NOTHING if query.shape[2] == 1 and self.options.keep in ("qk", "qkv") else STATISTICS

    def sees_first(self, kind: type[nn.Module], keywords: tuple[str, ...]) -> bool:
        """Whether this recorder meets a class of modules, called in this way, for the first time."""
        if (kind, keywords) in self._seen:
            return False
        self._seen.add((kind, keywords))
        return True

    def wants(self, place: Place) -> bool:
        """Whether a module's calls are kept."""
        return self.options.layers is None or place.shared or place.layer in self.options.layers

    def add(self, module: nn.Module, heard: Heard) -> None:
        """Keep one attention call of the interface; single tokens wait, to be kept for all layers in one go."""
        if self._thread not in (None, get_ident()):
            raise RecordingError(
                f"{type(module).__name__} was called from two threads at once while it was recorded: call it from one"
            )
        self._waiting.append((module, heard))
        if heard.view.query.shape[2] > 1:
            self.settle()

    def settle(self) -> None:
        """Keep the calls that wait."""
        for module, heard in self._waiting:
            self._add(module, heard)
        self._waiting.clear()

    def _add(self, module: nn.Module, heard: Heard) -> None:
        place = self.places[id(module)]
        index = self.visits.get(place.name, 0)
        self.visits[place.name] = index + 1
        if not self.wants(place):
            return
        if self._same_as_before(place, index, heard.view):
            return
        if self.options.heads is not None and not is_differential(module):
            heard = heard.only(self.options.heads, place.layer)
        calls = self.calls.get((place.name, index))
        if calls is None:
            calls = Calls(place, module, index, "interface", choose(heard.view), heard.notes)
            self.calls[place.name, index] = calls
        part = self._placed(place, heard)
        self._make_room(calls, part)
        before = self.store.used
        goes_on = bool(calls.parts)
        calls.parts.append(self._kept(calls, part, heard, own_keys(part, place.kind == "cross", goes_on)))
        calls.sizes.append(self.store.used - before)

    def add_weights(self, place: Place, weights: Tensor, branch: int = 0, notes: tuple[str, ...] = ()) -> None:
        """Keep weights [B, H, M, N] that the model handed over."""
        if self.options.heads is not None:
            weights = weights.index_select(1, torch.tensor(self.options.heads, device=weights.device))
        calls = self.calls.setdefault((place.name, branch), Calls(place, None, branch, "output_attentions", "", notes))
        run = self.runs[place.stack]
        rows, keys = weights.shape[2:]
        part = Part(row_start=run.starts[-1], rows=rows, key_start=0, keys=keys, step=run.step)
        self._make_room(calls, part)
        before = self.store.used
        calls.parts.append(Weighed(**vars(part), weights=self.store.keep(weights, calls.what)))
        calls.sizes.append(self.store.used - before)

    def _placed(self, place: Place, heard: Heard) -> Part:
        """Where a call stands in its run."""
        rows, keys = heard.view.query.shape[2], heard.view.key.shape[2]
        run = self.runs.get(place.stack)
        if run is None:
            run = self.runs[place.stack] = Run([0], [rows], [None], [None])
        crosses = place.kind == "cross"
        start = heard.placed.row_start
        return Part(
            row_start=run.starts[-1] if crosses or start is None else start,
            rows=rows,
            key_start=heard.placed.key_start,
            keys=keys,
            step=run.step,
            causal=heard.view.mask.causal and not crosses,
            statistics=heard.statistics,
        )

    def _same_as_before(self, place: Place, index: int, view: View) -> bool:
        """Whether a module attends again with the same queries and keys, to other values: the same weights."""
        before, self._latest = self._latest, (place, view)
        if index == 0 or before is None or before[0] is not place:
            return False
        pairs = ((before[1].query, view.query), (before[1].key, view.key))
        return all(one.data_ptr() == other.data_ptr() and one.shape == other.shape for one, other in pairs)

    def _kept(self, calls: Calls, part: Part, heard: Heard, own: tuple[int, int]) -> Part:
        """The call with what the options ask for; own are the positions of the keys that have to be kept."""
        keep, store, view, what = self.options.keep, self.store, heard.view, calls.what
        statistics = 0 if part.statistics is None else STATISTICS_BYTES
        store.count(view.logsumexp.numel() * (4 + statistics), what)
        if keep == "statistics":
            return Counted(**vars(part), seen=visible_keys(view))
        if keep == "weights":
            assert heard.weights is not None
            return Weighed(**vars(part), weights=store.keep(heard.weights, what))
        inside = slice(own[0] - part.key_start, own[1] - part.key_start)
        query, key = store.vectors(view.query, what), store.vectors(view.key[:, :, inside], what)
        value = store.vectors(heard.value[:, :, inside], what) if keep == "qkv" else None
        bias, sinks = (None if tensor is None else tensor.detach() for tensor in (view.bias, view.sinks))
        kept = View(query, key, view.logsumexp.detach(), view.scale, view.mask, view.softcap, bias, sinks)
        return Kept(**vars(part), view=kept, kept_from=own[0], value=value)

    def _make_room(self, calls: Calls, part: Part) -> None:
        """Take back what a call replaces: all that was kept from its first position on."""
        parts = calls.parts
        while parts and parts[-1].row_start >= part.row_start:
            parts.pop()
            self.store.used -= calls.sizes.pop()
        if not parts:
            return
        if parts[-1].row_stop > part.row_start:
            parts[-1] = parts[-1].until(part.row_start)
        if parts[-1].row_stop < part.row_start:
            raise RecordingError(
                f"{calls.place.name} attends from position {part.row_start}, but only {parts[-1].row_stop} positions"
                " were recorded: a recording must see every step of a generation"
            )

    def _forget(self, stack: str) -> None:
        """Drop the calls of a stack's earlier run."""
        for key, calls in list(self.calls.items()):
            if calls.place.stack == stack:
                self.store.used -= sum(calls.sizes)
                del self.calls[key]
