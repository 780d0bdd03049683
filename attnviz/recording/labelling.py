"""The labels of a recorded trace's axes, from what each stack was given."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..tokens import TokenAxis
from ..trace import AXES
from .labels import Given, axis, side_labels
from .recorder import Calls, Recorder
from .runs import Run
from .sequences import Chosen


def sides(calls: Sequence[Calls]) -> dict[str, str]:
    """For each set of labels the stack whose tokens they are."""
    found: dict[str, str] = {}
    for one in calls:
        side = AXES[one.place.kind][0]
        if side not in found or one.place.kind != "cross":
            found[side] = one.place.stack
    return found


def axes(recorder: Recorder, side: str, stack: str, chosen: Chosen) -> tuple[TokenAxis, ...]:
    """The labels of each sequence over all positions of a run."""
    run = chosen.run
    record = next(r for r in recorder.trace.records if r.view is not None and AXES[r.kind][0] == side)
    assert record.view is not None
    batch, _, rows, _ = record.view.shape
    total = record.row_start + rows
    words = side_labels(recorder.labels, side)
    text = recorder.text if batch == 1 and side in ("self", "encoder") else None
    ids = _ids(chosen, batch)
    real = run.real(total)
    found = []
    for index in range(batch):
        shown = index if chosen.rows is None else int(chosen.rows[-1][index])
        shared = shown * (1 if real is None else real.shape[0]) // batch if chosen.rows is None else shown
        given = Given(
            total,
            run.starts[0],
            None if ids is None or ids.shape[1] + run.starts[0] != total else ids[index],
            None if real is None else real[min(shared, len(real) - 1)],
            None if chosen.stops is None else run.starts[0] + chosen.stops[index],
            _steps(run, total),
            run.grid,
        )
        found.append(axis(given, recorder.tokenizer, words, text))
    return tuple(found)


def complete(recorder: Recorder, stack: str) -> None:
    """Let a stack know what the models around it were given, the nearest first."""
    around = [name for name in recorder.runs if name != stack and (name == "" or stack.startswith(name + "."))]
    for name in sorted(around, key=len, reverse=True):
        recorder.runs[stack].complete(recorder.runs[name])


def _ids(chosen: Chosen, batch: int) -> torch.Tensor | None:
    """[R, M] ids of all positions, where they were seen."""
    run, rows = chosen.run, chosen.rows
    first = run.ids[0]
    if first is None:
        return None
    if rows is None:
        rows = [torch.arange(batch) * first.shape[0] // batch] * len(run.ids)
    return run.tokens(rows)


def _steps(run: Run, total: int) -> tuple[int, ...] | None:
    if len(run.starts) == 1:
        return None
    steps = [0] * total
    for step, (start, count) in enumerate(zip(run.starts, run.counts, strict=True)):
        steps[start : start + count] = [step] * count
    return tuple(steps[:total])
