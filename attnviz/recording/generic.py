"""Recording of whatever does not use transformers' interface: torch's functions, `attention` and `tap`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from torch import nn

from ..errors import RecordingError, UsageError
from ..head import Record
from ..trace import Trace
from .eager import uncompiled
from .labels import Labels
from .numbering import records, with_stacks
from .padding import zeros_in_padding
from .sides import label_sides
from .torch_functions import RUNG, hearing
from .watch import Watch, plain

LOOKED_FOR = (
    "transformers' attention interface, torch's scaled_dot_product_attention, nn.MultiheadAttention and flex_attention,"
    " attnviz.attention and attnviz.tap"
)


@contextmanager
def generic(watch: Watch) -> Iterator[None]:
    """Hear the calls of the watch's model while the block runs.

    Raises RecordingError for a model that runs where it cannot be heard.
    """
    refuse(watch.model)
    with uncompiled(), zeros_in_padding(watch.model), hearing(watch):
        yield


def refuse(model: nn.Module) -> None:
    """RecordingError for models whose calls happen outside of Python or of this thread."""
    from torch.jit import ScriptModule

    if isinstance(model, ScriptModule):
        raise RecordingError(
            f"{type(model).__name__} is TorchScript, whose calls cannot be heard: record the model it was made from"
        )
    if isinstance(model, nn.DataParallel) and len(model.device_ids) > 1:
        raise RecordingError(
            f"nn.DataParallel runs its {len(model.device_ids)} copies in other threads: record model.module instead"
        )


def fill(trace: Trace, watch: Watch, tokenizer: Any = None, labels: Labels | None = None) -> None:
    """Add what a watch has heard to a trace: records, and the labels of axes that have none yet."""
    chains = [chain for chain in watch.chains.found.values() if not _known(trace, chain.name, chain.origin.rung)]
    chains = with_stacks(chains)
    found = _chosen(_behind(trace, records(chains, watch.options.heads)), watch, trace.layers)
    trace.records += found
    if found:
        trace.axes = label_sides(chains, watch.ids, tokenizer, labels) | trace.axes
    if watch.chains.replaced:
        trace.notes.append("the model ran several times inside the block: the trace holds its last run")
    heard = {chain.name for chain in chains}
    trace.unrecorded[:] = [name for name in trace.unrecorded if not any(_related(plain(name), one) for one in heard)]


def nothing_heard(watch: Watch) -> RecordingError:
    """The error of a block that recorded no attention at all."""
    name = type(watch.model).__name__
    if watch.chains.step < 0:
        return RecordingError(
            f"nothing was recorded: {name} did not run inside the block in this thread: call it before the block ends"
        )
    return RecordingError(
        f"no attention was recorded in {name}: it made no call of {LOOKED_FOR}; add"
        " attnviz.tap(weights, name=...) where it computes its weights"
    )


def _known(trace: Trace, name: str, rung: str) -> bool:
    """Whether a call of torch's lies in a module that an earlier rung of the ladder recorded."""
    return rung == RUNG and any(_related(name, record.name) for record in trace.records)


def _behind(trace: Trace, found: list[Record]) -> list[Record]:
    """The records with numbers above those of the layers that an earlier rung recorded, where they would clash."""
    if not {record.layer for record in found} & set(trace.layers):
        return found
    return [replace(record, layer=record.layer + max(trace.layers) + 1) for record in found]


def _chosen(found: list[Record], watch: Watch, known: Sequence[int]) -> list[Record]:
    """The records of the layers asked for."""
    layers = watch.options.layers
    if layers is None or not found:
        return found
    have = sorted({record.layer for record in found} | set(known))
    missing = sorted(layers - set(have))
    if missing:
        raise UsageError(
            f"layer {missing[0]} does not attend: the layers of {type(watch.model).__name__} that do are"
            f" {', '.join(map(str, have))}"
        )
    return [record for record in found if record.layer in layers]


def _related(name: str, other: str) -> bool:
    """Whether one module is the other or lies in it."""
    return f"{name}.".startswith(f"{other}.") or f"{other}.".startswith(f"{name}.")
