"""Several calls of one module in one forward pass: halves and their difference, or blocks of one map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch

from ..composed import Difference, Stacked, join_statistics
from ..head import Record
from .heard import take_heads


def differential(record: Record, module: Any, numbers: tuple[int, ...] | None) -> list[Record]:
    """The two halves of the heads, and the first less lambda times the second (Ye et al. 2024, arXiv 2410.05258)."""
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


def blocks(records: Sequence[Record]) -> Record:
    """One record of several sequences that attend to themselves only, one after another along both axes."""
    views = [record.view for record in records if record.view is not None]
    lefts = tuple(accumulate((view.shape[3] for view in views), initial=0))
    found = [record.statistics for record in records if record.statistics is not None]
    values = [record.value for record in records if record.value is not None]
    return replace(
        records[0],
        view=Stacked(tuple(views), lefts[:-1], lefts[-1]),
        statistics=join_statistics(found, lefts[:-1]) if len(found) == len(views) else None,
        value=torch.cat(values, 2) if values else None,
        notes=(*records[0].notes, f"{len(views)} sequences that do not see each other, one after another"),
    )
