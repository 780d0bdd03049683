"""From calls as they were heard to records: which layer, kind and branch each call is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from ..trace import Record
from .chains import Chain
from .parts import join, joined_statistics, joined_value


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


def with_stacks(calls: Sequence[Chain]) -> list[Chain]:
    """The calls of an encoder-decoder model with "self" told apart.

    It is "decoder" in a layer (or a layer of the same stack) that has cross attention too, and after the first cross
    attention; else "encoder".
    """
    crossing = [call.name for call in calls if call.kind == "cross"]
    layers = {_pattern(_parent(name)) for name in crossing} | {_pattern(name) for name in crossing}
    out, crossed = [], False
    for call in calls:
        crossed = crossed or call.kind == "cross"
        if call.kind == "self" and crossing:
            beside = _pattern(_parent(call.name)) in layers or _pattern(call.name) in layers
            call = replace(call, origin=replace(call.origin, kind="decoder" if crossed or beside else "encoder"))
        out.append(call)
    return out


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
