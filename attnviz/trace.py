"""What a recording leaves behind: a `Trace` of attention records.

A trace holds one `Record` per attention module and, for each kind of attention, the labels of its axes. Every weight
is recomputed on demand from the record's view, so a trace grows with the length of the text, not with its square.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from operator import index
from typing import TYPE_CHECKING, Any

from .errors import UsageError
from .head import BUDGET, Head, Record
from .numbers import many
from .tokens import Token, TokenAxis, positions, printable
from .views import WeightView

if TYPE_CHECKING:
    from pathlib import Path

    import pandas as pd

AXES = {
    "self": ("self", "self"),
    "encoder": ("encoder", "encoder"),
    "decoder": ("decoder", "decoder"),
    "cross": ("decoder", "encoder"),
    "vision": ("vision", "vision"),
    "audio": ("audio", "audio"),
    "pool": ("probe", "pooled"),
}
"""For each kind of attention, whose labels stand on its rows and on its columns.

"vision" and "audio" are the towers of a model that also reads text, "pool" is a head that sums a sequence up after the
last layer: `trace[layer, head]` leaves them out, `trace.only("vision")` shows them.
"""


@dataclass
class Trace:
    """The attention of one run. `trace[layer, head]` is a `Head`; everything counts from zero.

    A recorder fills `records` and `axes` while its block runs. batch is the sequence looked at; see `sequence`.
    revision says which weights the model had: the hub's commit, or a hash of parameters.
    """

    model: str = "model"
    records: list[Record] = field(default_factory=list)
    axes: dict[str, tuple[TokenAxis, ...]] = field(default_factory=dict)
    batch: int = 0
    unrecorded: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    revision: str = ""

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of attention in this trace, in the order of `AXES`."""
        present = {record.kind for record in self.records}
        return tuple(kind for kind in AXES if kind in present)

    @property
    def encoder(self) -> Trace:
        """Only the encoder's attention to itself."""
        return self.only("encoder")

    @property
    def decoder(self) -> Trace:
        """Only the decoder's attention to itself."""
        return self.only("decoder")

    @property
    def cross(self) -> Trace:
        """Only the decoder's attention to the encoder."""
        return self.only("cross")

    def only(self, kind: str) -> Trace:
        """The part of the trace of one kind of attention."""
        if kind not in self.kinds:
            raise UsageError(f"this trace has no {kind} attention: it has {', '.join(self.kinds) or 'none'}")
        return replace(self, records=[record for record in self.records if record.kind == kind])

    def sequence(self, batch: int) -> Trace:
        """The same trace, looking at another sequence of the batch."""
        if not 0 <= batch < self.batch_size:
            raise UsageError(
                f"sequence {batch} does not exist: this trace has {self.batch_size} (0 to {self.batch_size - 1})"
            )
        return replace(self, batch=batch)

    @property
    def batch_size(self) -> int:
        """How many sequences were recorded together."""
        return max((record.view.shape[0] for record in self.records if record.view is not None), default=0)

    @property
    def layers(self) -> tuple[int, ...]:
        """The model's own numbers of the layers that attend, in order."""
        return tuple(dict.fromkeys(record.layer for record in self._layered))

    def branches(self, layer: int) -> tuple[str, ...]:
        """The names of a layer's attentions where it has several, else ()."""
        return tuple(record.branch for record in self._layered if record.layer == layer and record.branch)

    def head_count(self, layer: int) -> int:
        """The number of heads of a layer."""
        return self.record(layer).heads

    def record(self, layer: int, branch: str | None = None) -> Record:
        """The record of a layer; of a layer with branches the last, its effective attention, unless one is named."""
        self._one_kind()
        found = [record for record in self._layered if record.layer == layer]
        if not found:
            raise UsageError(self._no_layer(layer))
        if branch is None:
            return found[-1]
        named = [record for record in found if record.branch == branch]
        if not named:
            names = ", ".join(self.branches(layer)) or "none"
            raise UsageError(f"layer {layer} has no branch {branch!r}: it has {names}")
        return named[0]

    def __getitem__(self, place: tuple[int, int] | tuple[int, int, str]) -> Head:
        """One head: trace[layer, head], or trace[layer, head, branch] where a layer attends more than once."""
        if not isinstance(place, tuple) or len(place) not in (2, 3):
            raise UsageError(f"a head is trace[layer, head], got trace[{place!r}]")
        if not all(hasattr(number, "__index__") for number in place[:2]):
            raise UsageError(f"layer and head are whole numbers, got trace[{', '.join(map(repr, place))}]")
        layer, head = map(index, place[:2])
        record = self.record(layer, place[2] if len(place) == 3 else None)
        if head not in record.head_numbers:
            raise UsageError(self._no_head(record, head))
        rows, cols = self.axis(record, 0), self.axis(record, 1)
        return Head(layer, head, record, self.batch, rows, cols, self.model)

    def view(self, layer: int, branch: str | None = None) -> WeightView:
        """Every head of a layer, without padding; axis B is 1."""
        record = self.record(layer, branch)
        assert record.view is not None
        rows, cols = self.axis(record, 0), self.axis(record, 1)
        return record.view.sequence(self.batch).crop(rows.valid, cols.valid)

    def axis(self, record: Record, side: int) -> TokenAxis:
        """The labels of a record's rows (side 0) or columns (side 1), for the sequence looked at."""
        assert record.view is not None
        length = record.view.shape[2 + side]
        known = self.axes.get(AXES[record.kind][side], ())
        axis = known[self.batch] if self.batch < len(known) else None
        if axis is not None and side == 0 and record.row_start:
            axis = axis.after(record.row_start)
        if axis is None or len(axis.tokens) != length:
            return TokenAxis(positions(length), slice(0, length))
        return axis

    @property
    def tokens(self) -> tuple[Token, ...]:
        """The tokens of the sequence looked at, without padding (of the rows, for cross attention)."""
        self._one_kind()
        return self.axis(self._layered[0], 0).real if self._attending else ()

    @property
    def text(self) -> str | None:
        """The text the tokens were cut from, where it is known."""
        return self.axis(self._layered[0], 0).text if self._attending else None

    @property
    def grid(self) -> tuple[int, int] | None:
        """Rows and columns of image patches for a vision model, else None."""
        return self.axis(self._layered[0], 0).grid if self._attending else None

    def heads(self) -> pd.DataFrame:
        """One row per layer and head with its means over all rows that see a key; see `analysis.heads`."""
        from .analysis.heads import heads_table

        return heads_table(self)

    def statistics(self) -> pd.DataFrame:
        """One row per layer, head and query with its statistics; see `analysis.tables`."""
        from .analysis.tables import statistics_table

        return statistics_table(self)

    def to_bertviz(self, layers: Sequence[int] | None = None, *, budget: int = BUDGET) -> dict[str, Any]:
        """What bertviz draws: `bertviz.head_view(**trace.to_bertviz())`; see `analysis.bertviz`."""
        from .analysis.bertviz import bertviz_arguments

        return bertviz_arguments(self, layers, budget=budget)

    def coverage(self) -> pd.DataFrame:
        """One row per attention module: how it was recorded, and those that look like attention but were not."""
        import pandas as pd

        rows: list[dict[str, Any]] = [
            {
                "module": record.name,
                "layer": record.layer,
                "kind": record.kind,
                "branch": record.branch or "",
                "recorded by": record.rung,
                "backend": record.backend,
                "notes": "; ".join(record.notes),
            }
            for record in self.records
        ]
        rows += [{"module": name, "layer": -1, "recorded by": "not recorded"} for name in self.unrecorded]
        return pd.DataFrame(rows).fillna("")

    def save(self, path: str | Path, **options: Any) -> None:
        """Write the trace to one file; see `storage.save` for the options."""
        from .storage import save

        save(self, path, **options)

    def __repr__(self) -> str:
        """One line of facts: the model, how much of it was recorded, and what was not."""
        facts = [_facts(self.only(kind), kind) for kind in self.kinds]
        said = "; ".join(fact for fact in facts if fact) or "no attention recorded"
        if self.batch_size > 1:
            said += f"; sequence {self.batch} of {self.batch_size}"
        if self.unrecorded:
            said += f"; {many(len(self.unrecorded), 'module')} not recorded"
        return f"<Trace of {printable(self.model)}: {said}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the facts, and the entropy of every head."""
        from .export.notebook import trace_html

        return trace_html(self)

    def every_head(self) -> list[Head]:
        """All heads of all attending layers, in order, the effective attention where a layer has branches."""
        return [self[layer, head] for layer in self.layers for head in self.record(layer).head_numbers]

    @property
    def _attending(self) -> list[Record]:
        return [record for record in self.records if record.view is not None]

    @property
    def _layered(self) -> list[Record]:
        """The records that `trace[layer, head]` looks into: no towers, no pooling heads, unless that is all."""
        kinds = self._main_kinds
        return [record for record in self._attending if record.kind in kinds]

    @property
    def _main_kinds(self) -> tuple[str, ...]:
        for beside in (("vision", "audio", "pool"), ("pool",), ()):
            kinds = tuple(kind for kind in self.kinds if kind not in beside)
            if kinds:
                return kinds
        return ()

    def _one_kind(self) -> None:
        kinds = self._main_kinds
        if len(kinds) > 1:
            named = ("encoder", "decoder", "cross")
            names = ", ".join(f"trace.{kind}" if kind in named else f'trace.only("{kind}")' for kind in kinds)
            raise UsageError(f"this trace has several kinds of attention: choose one of {names}")

    def _no_head(self, record: Record, head: int) -> str:
        if record.numbers is not None:
            kept = ", ".join(map(str, record.numbers))
            return f"head {head} was not kept: layer {record.layer} of this trace has the heads {kept}"
        have = f"layer {record.layer} of this trace has {many(record.heads, 'head')} (0 to {record.heads - 1})"
        return f"head {head} does not exist: {have}"

    def _no_layer(self, layer: int) -> str:
        have = self.layers
        if not have:
            return f"layer {layer} does not exist: this trace holds no attention, or its recording has not ended"
        if have == tuple(range(len(have))):
            return f"layer {layer} does not exist: this trace has {many(len(have), 'layer')} (0 to {len(have) - 1})"
        kept = ", ".join(map(str, have))
        return f"layer {layer} is not in this trace: the layers that attend and were kept are {kept}"


def _facts(part: Trace, kind: str) -> str:
    """How many layers, heads and tokens of one kind of attention; nothing where it has no weights."""
    if not part.layers:
        return ""
    rows, cols = (len(part.axis(part.record(part.layers[0]), side).real) for side in (0, 1))
    tokens = many(rows, "token") if rows == cols else f"{rows} x {cols} tokens"
    heads = sum(map(part.head_count, part.layers))
    return f"{'' if kind == 'self' else f'{kind} '}{many(len(part.layers), 'layer')}, {many(heads, 'head')}, {tokens}"
