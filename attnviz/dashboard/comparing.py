"""How far apart heads are, as work for a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..analysis.compare import compare_heads
from ..head import Head
from ..tokens import Token
from ..trace import Trace
from .jobs import Job

if TYPE_CHECKING:
    import pandas as pd

CELLS = 1 << 27
"""Weights looked at without asking first."""

Pair = tuple[Head, Head]


def with_every(head: Head, trace: Trace) -> list[Pair]:
    """One head with each of the others."""
    place = (head.layer, head.head)
    return [(head, other) for other in trace.every_head() if (other.layer, other.head) != place]


def same_places(one: Trace, other: Trace) -> list[Pair]:
    """Each head with the one at the same place in the other run, where there is one of the same size."""
    there = {(head.layer, head.head): head for head in other.every_head()}
    pairs = [(head, there.get((head.layer, head.head))) for head in one.every_head()]
    return [(head, twin) for head, twin in pairs if twin is not None and twin.shape == head.shape]


def cells(pairs: Sequence[Pair]) -> int:
    """How many weights are compared."""
    return sum(head.shape[0] * head.shape[1] for head, _ in pairs)


def distances(pairs: Sequence[Pair], job: Job) -> pd.DataFrame:
    """One row per pair, by the place of its second head: the mean Jensen-Shannon distance, the largest first."""
    import pandas as pd

    rows = []
    for done, (one, other) in enumerate(pairs, 1):
        rows.append((other.layer, other.head, compare_heads(one, other).mean))
        job.step(f"Comparing heads: {done} of {len(pairs)}", done / len(pairs))
    table = pd.DataFrame(rows, columns=["layer", "head", "distance"])
    return table.sort_values("distance", ascending=False, kind="stable", ignore_index=True)


def mismatch(one: Sequence[Token], other: Sequence[Token]) -> str | None:
    """Why rows of two runs cannot be compared, or None."""
    if len(one) == len(other):
        return None
    return (
        f"The first has {len(one)} tokens and the second {len(other)}: rows can be compared, and maps subtracted, where"
        " both have as many."
    )
