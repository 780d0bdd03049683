"""What a recording keeps while it listens, and the trace it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from attnviz_kernels import Attended, View
from torch import Tensor, nn

from ..errors import RecordingError
from ..trace import AXES, Record, Trace
from .labels import Given, axes
from .masks import Placed
from .modules import Place
from .parts import Part, compact, join, join_statistics

KEEP = ("qk", "qkv", "statistics", "weights")


@dataclass(frozen=True)
class Options:
    """What is kept of each call; see `record`."""

    keep: str = "qk"
    layers: frozenset[int] | None = None
    dtype: torch.dtype | None = None


class Recorder:
    """Collects the calls of the modules it listens to; `finish` turns them into the trace's records and axes."""

    def __init__(self, trace: Trace, options: Options, tokenizer: Any, labels: Sequence[str] | None) -> None:
        self.trace = trace
        self.options = options
        self.tokenizer, self.labels = tokenizer, labels
        self.text: str | None = None
        self.places: dict[int, Place] = {}
        self.parts: dict[str, list[Part]] = {}
        self.given: dict[str, Given] = {}

    def wants_statistics(self, module: nn.Module) -> bool:
        """Whether this module's rows are to be described."""
        return self.wants(module)

    def wants(self, module: nn.Module) -> bool:
        """Whether this module's layer is kept."""
        chosen = self.options.layers
        return chosen is None or self.places[id(module)].layer in chosen

    def add(self, module: nn.Module, view: View, placed: Placed, attended: Attended, value: Tensor) -> None:
        """Keep one attention call."""
        if not self.wants(module):
            return
        place = self.places[id(module)]
        kept = View(
            compact(view.query), compact(view.key), view.logsumexp.detach(), view.scale, view.mask, view.softcap,
            view.bias, view.sinks,
        )
        part = Part(kept, placed.row_start, placed.key_start, 0, 0, attended.statistics)
        calls = self.parts.setdefault(place.name, [])
        if calls:
            raise RecordingError("a second call of the same module cannot be recorded yet")
        calls.append(part)

    def hear(self, stack: str, given: Given) -> None:
        """Keep what a stack was given, for labels."""
        self.given[stack] = given

    def finish(self) -> None:
        """Fill the trace from the calls kept so far."""
        stacks: dict[str, str] = {}
        for place in self.places.values():
            parts = self.parts.get(place.name)
            if not parts:
                continue
            view = join(parts)
            self.trace.records.append(
                Record(place.name, place.layer, place.kind, "interface", "", view, statistics=join_statistics(parts))
            )
            stacks[AXES[place.kind][0]] = place.stack
        for side, stack in stacks.items():
            self._label(side, stack)

    def _label(self, side: str, stack: str) -> None:
        record = next(r for r in self.trace.records if r.view is not None and AXES[r.kind][0] == side)
        assert record.view is not None
        batch, _, rows, _ = record.view.shape
        given = self.given.get(stack, Given())
        self.trace.axes[side] = axes(given, batch, rows, self.tokenizer, self.labels, self.text)
