"""From calls as they were heard to records: which layer, kind and branch each call is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..head import Record
from .chains import Chain
from .joining import join, joined_statistics, joined_value

_STACK = re.compile(r"(?:^|[._])(enc|dec)")


def records(chains: Sequence[Chain], heads: tuple[int, ...] | None = None) -> list[Record]:
    """The records of a run, numbered.

    A layer is one run of a module: its own number where the paths of all modules tell them apart by one, else their
    order. Several calls of a kind in one run are branches. Calls in the model's own forward are a layer each.
    """
    calls = _spread(chains)
    together: dict[tuple[str, int, str, int | None], list[Chain]] = defaultdict(list)
    for call in calls:
        together[call.name, call.visit, call.kind, call.origin.layer].append(call)
    numbers = {kind: layer_numbers(_runs(calls, kind)) for kind in {call.kind for call in calls}}
    out = []
    for (name, visit, kind, layer), several in together.items():
        number = numbers[kind][name, visit] if layer is None else layer
        for index, call in enumerate(several):
            branch = None if len(several) == 1 else call.origin.label or str(index)
            out.append(_record(call, number, branch, heads))
    return out


def with_stacks(chains: Sequence[Chain]) -> list[Chain]:
    """The calls of an encoder-decoder model with "self" told apart into "encoder" and "decoder"."""
    crossing = [call for call in chains if call.kind == "cross"]
    out, crossed = [], False
    for call in chains:
        crossed = crossed or call.kind == "cross"
        if call.kind == "self" and crossing:
            call = replace(call, origin=replace(call.origin, kind=_stack(call, crossing, crossed)))
        out.append(call)
    return out


def _stack(call: Chain, crossing: Sequence[Chain], crossed: bool) -> str:
    """Whose tokens attend to themselves: told by a layer with cross attention, lengths, names, order, in this turn."""
    beside = {_pattern(_parent(cross.name)) for cross in crossing} | {_pattern(cross.name) for cross in crossing}
    if {_pattern(_parent(call.name)), _pattern(call.name)} & (beside - {""}):
        return "decoder"
    length, cross = call.parts[-1].row_stop, crossing[0].parts[-1]
    if cross.row_stop != cross.keys and length in (cross.row_stop, cross.keys):
        return "decoder" if length == cross.row_stop else "encoder"
    named = _STACK.search(call.name)
    if named:
        return "encoder" if named[1] == "enc" else "decoder"
    return "decoder" if crossed or "" in beside else "encoder"


def layer_numbers(runs: Sequence[tuple[str, int]]) -> dict[tuple[str, int], int]:
    """A number for each (module path, visit): the first or last number in the paths if all differ by it, else order."""
    paths = [[int(part) for part in name.split(".") if part.isdigit()] for name, _ in runs]
    for place in (0, -1):
        numbers = [path[place] for path in paths if path]
        if len(set(numbers)) == len(runs):
            return dict(zip(runs, numbers, strict=True))
    return {run: index for index, run in enumerate(runs)}


def _runs(calls: Sequence[Chain], kind: str) -> list[tuple[str, int]]:
    return list(dict.fromkeys((call.name, call.visit) for call in calls if call.kind == kind))


def _spread(chains: Sequence[Chain]) -> list[Chain]:
    """Calls in the model's own forward, each as a run of its own."""
    out, count = [], defaultdict[str, int](int)
    for call in chains:
        if not call.name:
            call = replace(call, visit=count[call.kind])
            count[call.kind] += 1
        out.append(call)
    return out


def _record(call: Chain, layer: int, branch: str | None, heads: tuple[int, ...] | None) -> Record:
    origin = call.origin
    return Record(
        name=".".join(part for part in (call.name, origin.label) if part) or "model",
        layer=layer,
        kind=call.kind,
        rung=origin.rung,
        backend=origin.backend,
        view=join(call.parts),
        branch=branch,
        statistics=joined_statistics(call.parts),
        value=joined_value(call.parts),
        notes=origin.notes,
        numbers=heads,
        row_start=call.parts[0].row_start,
    )


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _pattern(name: str) -> str:
    """The path with its numbers taken out: equal for all layers of a stack."""
    return re.sub(r"\b\d+\b", "*", name)
