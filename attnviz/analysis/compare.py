"""How different two maps are: Jensen-Shannon distance row by row, and heads grouped by it.

The distance is the square root of the Jensen-Shannon divergence in bits (Lin 1991), so 0 means the same distribution
and 1 disjoint ones; a sink counts as one more outcome. Clark et al. 2019 (arXiv 1906.04341, 6) cluster heads by the
divergence. Close maps do not mean that heads do the same: what they read and write may differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import UsageError
from ..head import Head
from ..trace import Trace
from .tables import Tabular

if TYPE_CHECKING:
    import pandas as pd

_CELLS = 1 << 22
"""Weights looked at together."""

Pair = tuple[Head, Head]


@dataclass(frozen=True)
class Comparison(Tabular):
    """distance [M]: how far each row of one head is from the same row of the other, 0 to 1; NaN for blind rows."""

    one: Head
    other: Head
    distance: Tensor

    @property
    def mean(self) -> float:
        """The mean distance over rows that see a key in both."""
        return torch.nanmean(self.distance).item()

    def table(self) -> pd.DataFrame:
        """One row per query, the most different first."""
        import pandas as pd

        rows = [
            {"position": index, "token": token.label, "distance": value}
            for index, (token, value) in enumerate(zip(self.one.rows, self.distance.tolist(), strict=True))
        ]
        return pd.DataFrame(rows).sort_values("distance", ascending=False, kind="stable", ignore_index=True)


def compare_heads(one: Head, other: Head) -> Comparison:
    """Row by row over maps of the same shape: two heads of one run, or the same head of two runs of as many tokens."""
    if one.shape != other.shape:
        raise UsageError(
            f"rows can be compared when both maps have the same shape: these have {one.shape[0]} x {one.shape[1]}"
            f" and {other.shape[0]} x {other.shape[1]}"
        )
    rows = [jensen_shannon(one.weights(band), other.weights(band)) for band in _bands(*one.shape)]
    return Comparison(one, other, torch.cat(rows))


def compare_traces(one: Trace, other: Trace) -> pd.DataFrame:
    """Two runs (two models on one text, or two texts of as many tokens): one row per head that both have, the most
    different first. UsageError where there is none, or texts differ in length."""
    return distances(same_places(one, other))


def same_places(one: Trace, other: Trace) -> list[Pair]:
    """Each head with the one at the same place in the other run, where there is one."""
    there = {(head.layer, head.head): head for head in other.every_head()}
    pairs = [(head, there.get((head.layer, head.head))) for head in one.every_head()]
    return [(head, twin) for head, twin in pairs if twin is not None]


def with_every(head: Head, trace: Trace) -> list[Pair]:
    """One head with each of the others."""
    place = (head.layer, head.head)
    return [(head, other) for other in trace.every_head() if (other.layer, other.head) != place]


def distances(pairs: Sequence[Pair], progress: Callable[[int, int], None] | None = None) -> pd.DataFrame:
    """One row per pair, by the place of its second head: the mean distance, the largest first.

    progress(done, total) is called after each pair. UsageError where there is no pair.
    """
    import pandas as pd

    if not pairs:
        raise UsageError("there are no heads to compare: give two heads, or runs of models that share a place")
    rows = []
    for done, (one, other) in enumerate(pairs, 1):
        rows.append((other.layer, other.head, compare_heads(one, other).mean))
        if progress is not None:
            progress(done, len(pairs))
    table = pd.DataFrame(rows, columns=["layer", "head", "distance"])
    return table.sort_values("distance", ascending=False, kind="stable", ignore_index=True)


def head_distances(trace: Trace) -> tuple[tuple[tuple[int, int], ...], Tensor]:
    """The (layer, head) of every head, and the mean distance of each pair, [heads, heads]; O(heads^2 N^2) time."""
    heads = trace.every_head()
    result = torch.zeros(len(heads), len(heads), dtype=torch.float64)
    counts = torch.zeros_like(result)
    rows, cols = heads[0].shape
    for band in _bands(rows, cols * len(heads)):
        maps = torch.stack([head.weights(band) for head in heads])
        for index in range(len(heads)):
            found = jensen_shannon(maps[index].expand_as(maps), maps)
            result[index] += torch.nansum(found, dim=1)
            counts[index] += (~found.isnan()).sum(1)
    return tuple((head.layer, head.head) for head in heads), result / counts


def cluster_heads(trace: Trace, groups: int) -> pd.DataFrame:
    """Heads in `groups` groups of similar maps (average linkage on `head_distances`): layer, head, group from 0."""
    import pandas as pd

    places, distance = head_distances(trace)
    if not 1 <= groups <= len(places):
        raise UsageError(f"groups must be 1 to {len(places)}, the number of heads, got {groups}")
    members = [[index] for index in range(len(places))]
    while len(members) > groups:
        links = [
            (distance[members[a]][:, members[b]].mean().item(), a, b)
            for a in range(len(members))
            for b in range(a + 1, len(members))
        ]
        _, a, b = min(links)
        members[a] += members.pop(b)
    return pd.DataFrame(
        [
            {"layer": places[index][0], "head": places[index][1], "group": group}
            for group, indices in enumerate(sorted(members, key=min))
            for index in sorted(indices)
        ]
    )


def jensen_shannon(one: Tensor, other: Tensor) -> Tensor:
    """[...]: distance of the distributions along the last axis, what is missing to 1 being one more outcome.

    NaN where either row is all zeros (it saw no key).
    """
    pair = [_with_rest(weights.double()) for weights in (one, other)]
    middle = (pair[0] + pair[1]) / 2
    divergence = sum(
        (torch.xlogy(weights, weights) - torch.xlogy(weights, middle)).sum(-1) / 2 for weights in pair
    ) / torch.log(torch.tensor(2.0, dtype=torch.float64))
    blind = ~(one != 0).any(-1) | ~(other != 0).any(-1)
    return divergence.clamp(0, 1).sqrt().masked_fill(blind, torch.nan)


def _with_rest(weights: Tensor) -> Tensor:
    rest = (1 - weights.sum(-1, keepdim=True)).clamp(min=0)
    return torch.cat([weights, torch.where(rest < 1e-5, 0.0, rest)], dim=-1)


def _bands(rows: int, cols: int) -> Iterator[slice]:
    step = max(1, _CELLS // cols)
    for top in range(0, rows, step):
        yield slice(top, min(top + step, rows))
