"""What stands on the axes of maps that were heard: ids among the model's inputs, padding, and steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..tokens import TokenAxis
from ..trace import AXES
from .chains import Chain
from .labels import Given, Labels, axis, side_labels
from .parts import Kept

Ids = Mapping[int, Sequence[Tensor]]
"""For each step the tensors of ids [B, M] that the model was given."""


@dataclass(frozen=True)
class Side:
    """The positions start to stop of one sequence, and for each of the steps that brought them how many it brought."""

    start: int
    stop: int
    batch: int
    counts: dict[int, int]


def label_sides(
    chains: Sequence[Chain], ids: Ids, tokenizer: Any, labels: Labels | None
) -> dict[str, tuple[TokenAxis, ...]]:
    """The labels of each side ("self", "encoder", "decoder") of the maps, for every sequence of the batch.

    Attention of a sequence to itself says how long it is; cross attention only where there is none of that.
    """
    found: dict[str, tuple[TokenAxis, ...]] = {}
    for chain in sorted(chains, key=lambda chain: chain.kind == "cross"):
        rows, cols = AXES[chain.kind]
        for name, side in ((rows, _rows(chain)), (cols, _cols(chain))):
            if name not in found:
                given = _given(side, name, _real(chains, name, side.stop), ids)
                words = side_labels(labels, name)
                found[name] = tuple(axis(one, tokenizer, words, None) for one in given)
    return found


def _rows(chain: Chain) -> Side:
    first, last = chain.parts[0], chain.parts[-1]
    return Side(first.row_start, last.row_stop, first.batch, {part.step: part.rows for part in chain.parts})


def _cols(chain: Chain) -> Side:
    first = chain.parts[0]
    return Side(0, first.keys, first.batch, {first.step: first.keys})


def _given(side: Side, name: str, real: Tensor | None, ids: Ids) -> list[Given]:
    """One `Given` for each sequence."""
    own = _ids(side, ids, -1 if name == "decoder" else 0)
    steps = None
    if len(side.counts) > 1:
        steps = tuple(index for index, count in enumerate(side.counts.values()) for _ in range(count))
        steps = (0,) * side.start + steps
    return [
        Given(
            side.stop,
            side.start,
            ids=None if own is None else own[index],
            real=None if real is None else real[index],
            steps=steps,
        )
        for index in range(side.batch)
    ]


def _ids(side: Side, ids: Ids, place: int) -> Tensor | None:
    """[B, stop - start]: the first (place 0) or last (-1) of the tensors that fit, step after step."""
    pieces = []
    for step, count in side.counts.items():
        fitting = [tensor for tensor in ids.get(step, ()) if tuple(tensor.shape) == (side.batch, count)]
        if not fitting:
            return None
        pieces.append(fitting[place])
    return torch.cat(pieces, 1)


def _real(chains: Sequence[Chain], name: str, length: int) -> Tensor | None:
    """[B, length]: which positions of a side are not padding, by the first mask of its keys that says so."""
    for chain in chains:
        last = chain.parts[-1]
        padding = last.view.mask.key_padding if isinstance(last, Kept) else None
        if AXES[chain.kind][1] == name and padding is not None and padding.shape[1] >= length:
            return padding[:, :length]
    return None
