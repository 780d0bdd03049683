"""From what a recorder kept to a trace: sequences, layers, branches, labels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import groupby

from torch import nn

from ..errors import RecordingError
from ..head import Record
from .branches import blocks, differential
from .joining import join, joined_statistics, joined_value
from .labelling import axes, complete, sides
from .modules import Survey, is_differential, takes_packed
from .recorder import Calls, Recorder
from .sequences import Chosen


def finish(recorder: Recorder, survey: Survey) -> None:
    """Fill the trace from the calls kept so far."""
    trace = recorder.trace
    calls = list(recorder.calls.values())
    used = {one.place.stack for one in calls}
    for name in used:
        complete(recorder, name)
    chosen = {name: Chosen(recorder.runs[name], recorder.returned) for name in used}
    count = max((choice.count for choice in chosen.values() if choice.count is not None), default=None)
    layers = numbers(calls, survey.stacks)
    kept = [one for one in calls if recorder.options.layers is None or layers[id(one)] in recorder.options.layers]
    order = {name: index for index, name in enumerate(survey.order)}
    kept.sort(key=lambda one: (order[one.place.name], one.index))
    groups = [list(group) for _, group in groupby(kept, key=lambda one: one.place)]
    trace.records[:] = [
        record for group in groups for record in records(recorder, group, layers, chosen[group[0].place.stack], count)
    ]
    trace.records += [Record(place.name, place.layer, "linear", "", "", None) for place in survey.linear]
    trace.unrecorded[:] = survey.unknown
    trace.notes[:] = _notes(recorder, chosen.values())
    for side, stack in sides(kept).items():
        trace.axes[side] = axes(recorder, side, stack, chosen[stack])


def numbers(calls: Sequence[Calls], stacks: dict[str, nn.Module]) -> dict[int, int]:
    """The layer of each module's calls, by identity.

    Where modules take turns, so that all calls together are as many as the layers, a layer is a call.
    """
    found = {id(one): one.place.layer for one in calls}
    for stack, kind in {(one.place.stack, one.place.kind) for one in calls if one.place.shared}:
        turns = [one for one in calls if (one.place.stack, one.place.kind) == (stack, kind)]
        layers = getattr(getattr(stacks.get(stack), "config", None), "num_hidden_layers", None)
        if len(turns) == layers and any(one.index for one in turns):
            found |= {id(one): number for number, one in enumerate(turns)}
    return found


def records(
    recorder: Recorder, group: Sequence[Calls], layers: dict[int, int], chosen: Chosen, count: int | None
) -> list[Record]:
    """The records of all calls of one module: a layer each, branches of a layer, or blocks of one map."""
    module = group[0].module
    numbers = None if is_differential(module) else recorder.options.heads
    found = [_record(calls, layers[id(calls)], numbers, chosen, count) for calls in group]
    if is_differential(module):
        return differential(found[0], module, recorder.options.heads)
    if len(found) > 1 and takes_packed(module):
        return [blocks(found)]
    if len(found) > 1 and len({record.layer for record in found}) == 1:
        return [replace(record, branch=str(calls.index)) for record, calls in zip(found, group, strict=True)]
    return found


def _record(calls: Calls, layer: int, numbers: tuple[int, ...] | None, chosen: Chosen, count: int | None) -> Record:
    parts = [chosen.pick(part, count) for part in calls.parts]
    if len({part.batch for part in parts}) > 1:
        raise RecordingError(f"the number of sequences given to {calls.place.name} changed during the run")
    return Record(
        calls.place.name,
        layer,
        calls.place.kind,
        calls.rung,
        calls.backend,
        join(parts),
        None,
        joined_statistics(parts),
        joined_value(parts),
        calls.notes,
        numbers,
        parts[0].row_start,
    )


def _notes(recorder: Recorder, chosen: Iterable[Chosen]) -> list[str]:
    notes = []
    if recorder.returned is not None and any(one.run.orders and one.stops is None for one in chosen):
        notes.append("the sequences are the search's last beams: those that generate returned are not among them")
    replaced = max(recorder.replaced.values(), default=0)
    if replaced:
        passes = "pass" if replaced == 1 else "passes"
        notes.append(f"{replaced} earlier forward {passes} inside the block gave way to the last one")
    return notes
