"""Calls that continue one another, kept together before it is known which layers their model has."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from attnviz_kernels import Statistics, View, visible_keys

from ..errors import UsageError
from ..estimate import STATISTICS_BYTES
from ..numbers import many
from .frames import Frame
from .heard import Heard
from .options import Options
from .parts import Counted, Kept, Part, Weighed, own_keys
from .store import Store

Where = tuple[str, int, str, str | None]
"""A module's path, its run in the forward pass, kind and label."""


@dataclass(frozen=True)
class Origin:
    """How a call was heard: the rung of the ladder, and what is said of it."""

    rung: str
    kind: str
    label: str | None = None
    layer: int | None = None
    backend: str = ""
    notes: tuple[str, ...] = ()


@dataclass
class Chain:
    """A call of a module and those of later steps that continue it through a cache."""

    name: str
    visit: int
    origin: Origin
    parts: list[Any]
    size: int = 0

    @property
    def kind(self) -> str:
        """One of the keys of `trace.AXES`."""
        return self.origin.kind

    @property
    def what(self) -> str:
        """The call in error messages."""
        return f"the attention of {self.name or 'the model'}"


class Chains:
    """All chains of one run. A step that does not continue the last one takes its place."""

    def __init__(self, options: Options, store: Store) -> None:
        self.options, self.store = options, store
        self.found: dict[tuple[Where, int], Chain] = {}
        self.step = -1
        self.replaced = False
        self._calls: Counter[Where] = Counter()
        self._continues = False

    @property
    def first_step(self) -> int:
        """The earliest step of which anything is kept."""
        first = next(iter(self.found.values()), None)
        return max(self.step, 0) if first is None else first.parts[0].step

    def begin(self) -> None:
        """The model, or a part that is called by itself, begins to run."""
        self.step += 1
        self._calls.clear()
        self._continues = False

    def add(self, frame: Frame, origin: Origin, heard: Heard) -> None:
        """Keep a call that the kernel computed."""
        start = 0 if origin.kind == "cross" else heard.view.mask.offset
        part = self._part(start, *heard.view.shape[2:], heard.statistics)
        chain, part = self._place(frame, origin, part)
        self._append(chain, lambda: self._kept(chain, part, heard))

    def add_weights(self, frame: Frame, origin: Origin, weights: Tensor) -> None:
        """Keep weights [B, H, M, N] that exist already."""
        rows, cols = weights.shape[2:]
        start = 0 if origin.kind == "cross" else max(0, cols - rows)
        chain, part = self._place(frame, origin, self._part(start, rows, cols))
        if self.options.heads is not None:
            self._check_heads(chain, weights.shape[1])
            weights = weights[:, list(self.options.heads)]
        self._append(chain, lambda: Weighed(**vars(part), weights=self.store.keep(weights, chain.what)))

    def _part(self, start: int, rows: int, cols: int, statistics: Statistics | None = None) -> Part:
        step = max(self.step, 0)
        return Part(row_start=start, rows=rows, key_start=0, keys=cols, step=step, statistics=statistics)

    def _place(self, frame: Frame, origin: Origin, part: Part) -> tuple[Chain, Part]:
        """The chain that a call belongs to, and the call at its position in it."""
        where = (frame.name, frame.visit, origin.kind, origin.label)
        key = (where, self._calls[where])
        self._calls[where] += 1
        chain = self.found.get(key)
        if chain is not None and self._follows(chain.parts[-1], part, chain.kind):
            return chain, replace(part, row_start=chain.parts[-1].row_stop)
        if chain is not None:
            self.replaced = True
            self.store.used -= chain.size
        chain = self.found[key] = Chain(frame.name, frame.visit, origin, [])
        return chain, part

    def _follows(self, last: Part, part: Part, kind: str) -> bool:
        """Whether a call's keys are those of the last one and its own tokens', or of the other sequence as before."""
        if kind != "cross":
            self._continues = last.step < part.step and last.keys + part.rows == part.keys
            return self._continues
        return self._continues and last.keys == part.keys

    def _append(self, chain: Chain, make: Any) -> None:
        before = self.store.used
        chain.parts.append(make())
        chain.size += self.store.used - before

    def _kept(self, chain: Chain, part: Part, heard: Heard) -> Part:
        if self.options.heads is not None:
            self._check_heads(chain, heard.view.shape[1])
            heard = heard.only(self.options.heads, 0)
            part = replace(part, statistics=heard.statistics)
        store, keep, view, what = self.store, self.options.keep, heard.view, chain.what
        store.count(view.logsumexp.numel() * (4 + STATISTICS_BYTES), what)
        if keep == "statistics":
            return Counted(**vars(part), seen=visible_keys(view))
        if keep == "weights":
            assert heard.weights is not None
            return Weighed(**vars(part), weights=store.keep(heard.weights, what))
        first, stop = own_keys(part, chain.kind == "cross", bool(chain.parts))
        values = store.vectors(heard.value[:, :, first:stop], what) if keep == "qkv" else None
        return Kept(**vars(part), view=_detached(store, view, slice(first, stop), what), kept_from=first, value=values)

    def _check_heads(self, chain: Chain, count: int) -> None:
        assert self.options.heads is not None
        last = self.options.heads[-1]
        if last >= count:
            raise UsageError(f"head {last} does not exist: {chain.what} has {many(count, 'head')} (0 to {count - 1})")


def _detached(store: Store, view: View, keys: slice, what: str) -> View:
    """The view as it is kept: its own keys only, in the dtype asked for, without a graph."""
    return replace(
        view,
        query=store.vectors(view.query, what),
        key=store.vectors(view.key[:, :, keys], what),
        logsumexp=view.logsumexp.detach(),
        bias=None if view.bias is None else view.bias.detach(),
        sinks=None if view.sinks is None else view.sinks.detach(),
    )
