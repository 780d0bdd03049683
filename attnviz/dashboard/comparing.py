"""How far apart heads are, as work for a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..analysis.compare import Pair, distances
from ..tokens import Token
from .causing import counted
from .jobs import Job

if TYPE_CHECKING:
    import pandas as pd

CELLS = 1 << 27
"""Weights looked at without asking first."""


def cells(pairs: Sequence[Pair]) -> int:
    """How many weights are compared."""
    return sum(head.shape[0] * head.shape[1] for head, _ in pairs)


def measured(pairs: Sequence[Pair], job: Job) -> pd.DataFrame:
    """The distance of every pair."""
    return distances(pairs, counted(job, "Comparing heads"))


def mismatch(one: Sequence[Token], other: Sequence[Token]) -> str | None:
    """Why rows of two runs cannot be compared, or None."""
    if len(one) == len(other):
        return None
    return (
        f"The first has {len(one)} tokens and the second {len(other)}: rows can be compared, and maps subtracted, where"
        " both have as many."
    )
