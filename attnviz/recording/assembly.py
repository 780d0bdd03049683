"""From what a recorder kept to a trace: sequences, layers, branches, labels."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from ..composed import Difference
from ..errors import RecordingError
from ..tokens import TokenAxis
from ..trace import AXES, Record
from .heard import take_heads
from .labels import Given, axis, side_labels
from .modules import Survey, is_differential
from .parts import join, joined_statistics, joined_value
from .recorder import Calls, Recorder
from .runs import Run
from .sequences import Chosen


def finish(recorder: Recorder, survey: Survey) -> None:
    """Fill the trace from the calls kept so far."""
    trace = recorder.trace
    calls = list(recorder.calls.values())
    used = {one.place.stack for one in calls}
    chosen = {name: Chosen(recorder.runs[name], recorder.returned) for name in used}
    count = max((choice.count for choice in chosen.values() if choice.count is not None), default=None)
    layers = numbers(calls, survey.stacks)
    kept = [one for one in calls if recorder.options.layers is None or layers[id(one)] in recorder.options.layers]
    order = {name: index for index, name in enumerate(survey.order)}
    kept.sort(key=lambda one: (order[one.place.name], one.index))
    trace.records[:] = [
        record for one in kept for record in records(recorder, one, layers[id(one)], chosen[one.place.stack], count)
    ]
    trace.records += [Record(place.name, place.layer, "linear", "", "", None) for place in survey.linear]
    trace.unrecorded[:] = survey.unknown
    trace.notes[:] = _notes(recorder, survey)
    for side, stack in _sides(kept).items():
        trace.axes[side] = _axes(recorder, side, stack, chosen[stack], count)


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


def records(recorder: Recorder, calls: Calls, layer: int, chosen: Chosen, count: int | None) -> list[Record]:
    """The record of one module's calls, or of its branches and their difference."""
    parts = [chosen.pick(part, count) for part in calls.parts]
    if len({part.batch for part in parts}) > 1:
        raise RecordingError(f"the number of sequences given to {calls.place.name} changed during the run")
    several = calls.index > 0 or any(
        other.place is calls.place and other.index > 0 for other in recorder.calls.values()
    )
    record = Record(
        calls.place.name,
        layer,
        calls.place.kind,
        calls.rung,
        calls.backend,
        join(parts),
        str(calls.index) if several and layer == calls.place.layer and not calls.place.shared else None,
        joined_statistics(parts),
        joined_value(parts),
        calls.notes,
        None if is_differential(calls.module) else recorder.options.heads,
        parts[0].row_start,
    )
    if is_differential(calls.module):
        return _differential(record, calls.module, recorder.options.heads)
    return [record]


def _differential(record: Record, module: Any, numbers: tuple[int, ...] | None) -> list[Record]:
    """The two halves of the heads, and the first less lambda times the second (Ye et al. 2024, arXiv 2410.05258)."""
    from dataclasses import replace

    assert record.view is not None
    half = record.heads // 2
    heads = numbers if numbers is not None else tuple(range(half))
    first, second = take_heads(record.view, heads), take_heads(record.view, [half + head for head in heads])
    with torch.no_grad():
        grown, shrunk = (
            torch.exp((q.float() * k.float()).sum())
            for q, k in ((module.lambda_q1, module.lambda_k1), (module.lambda_q2, module.lambda_k2))
        )
        factor = float(grown - shrunk) + module.lambda_init
    views = {"first": first, "second": second, "difference": Difference(first, second, factor)}
    note = f"the difference is the first less {factor:.4f} times the second"
    return [
        replace(record, view=view, branch=branch, statistics=None, value=None, numbers=numbers, notes=(note,))
        for branch, view in views.items()
    ]


def _notes(recorder: Recorder, survey: Survey) -> list[str]:
    notes = [f"{name} was not recorded: it {reason}" for name, reason in survey.unknown.items()]
    if recorder.replaced:
        notes.append(f"{recorder.replaced} earlier forward passes inside the block were replaced by the last one")
    return notes


def _sides(calls: Sequence[Calls]) -> dict[str, str]:
    """For each set of labels the stack whose tokens they are."""
    sides: dict[str, str] = {}
    for one in calls:
        side = AXES[one.place.kind][0]
        if side not in sides or one.place.kind != "cross":
            sides[side] = one.place.stack
    return sides


def _axes(recorder: Recorder, side: str, stack: str, chosen: Chosen, count: int | None) -> tuple[TokenAxis, ...]:
    """The labels of each sequence over all positions of a run."""
    run = chosen.run
    record = next(r for r in recorder.trace.records if r.view is not None and AXES[r.kind][0] == side)
    assert record.view is not None
    batch, _, rows, _ = record.view.shape
    total = record.row_start + rows
    words = side_labels(recorder.labels, side)
    ids = _ids(recorder, stack, chosen, batch)
    real = run.masks[-1]
    found = []
    for index in range(batch):
        shown = index if chosen.rows is None else int(chosen.rows[-1][index])
        shared = shown * (1 if real is None else real.shape[0]) // batch if chosen.rows is None else shown
        given = Given(
            total,
            run.starts[0],
            None if ids is None or ids.shape[1] + run.starts[0] != total else ids[index],
            None if real is None or real.shape[1] < total else real[min(shared, len(real) - 1), :total],
            None if chosen.stops is None else run.starts[0] + chosen.stops[index],
            _steps(run, total),
            run.grid,
        )
        found.append(axis(given, recorder.tokenizer, words, recorder.text if batch == 1 else None))
    return tuple(found)


def _ids(recorder: Recorder, stack: str, chosen: Chosen, batch: int) -> torch.Tensor | None:
    """[R, M] ids of all positions, of the stack or of the model around it that embedded them."""
    around = [name for name in recorder.runs if name == "" or stack == name or stack.startswith(name + ".")]
    for name in sorted(around, key=len, reverse=True):
        run = recorder.runs[name]
        if any(ids is None for ids in run.ids) or run.counts != chosen.run.counts:
            continue
        first = run.ids[0]
        assert first is not None
        rows = chosen.rows
        if rows is None:
            rows = [torch.arange(batch) * first.shape[0] // batch] * len(run.ids)
        return run.tokens(rows)
    return None


def _steps(run: Run, total: int) -> tuple[int, ...] | None:
    if len(run.starts) == 1:
        return None
    steps = [0] * total
    for step, (start, count) in enumerate(zip(run.starts, run.counts, strict=True)):
        steps[start : start + count] = [step] * count
    return tuple(steps[:total])
