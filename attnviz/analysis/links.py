"""The strongest links of a head, found tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

    from ..head import Head

_CELLS = 1 << 22
"""Weights looked at together."""


def strongest_links(head: Head, count: int = 10, rows: Sequence[int] | None = None) -> pd.DataFrame:
    """The `count` largest weights: row, column, their labels, weight; strongest first, ties by row, then column.

    A large weight says where a head looked, not that what it found there mattered.
    """
    import pandas as pd

    total_rows, total_cols = head.shape
    step = max(1, _CELLS // total_cols)
    bands = (
        [slice(row, row + 1) for row in rows]
        if rows is not None
        else [slice(top, min(top + step, total_rows)) for top in range(0, total_rows, step)]
    )
    found: list[tuple[float, int, int]] = []
    for band in bands:
        weights = head.weights(band).flatten()
        for place in _largest(weights, min(count, weights.numel())).tolist():
            found.append((weights[place].item(), band.start + place // total_cols, place % total_cols))
    found = sorted(found, key=lambda link: (-link[0], link[1], link[2]))[:count]
    return pd.DataFrame(
        [
            {"row": row, "column": col, "from": head.rows[row].label, "to": head.cols[col].label, "weight": weight}
            for weight, row, col in found
            if weight > 0
        ],
        columns=["row", "column", "from", "to", "weight"],
    )


def _largest(values: Tensor, count: int) -> Tensor:
    """The places of the `count` largest values, the first ones where several are equal; topk takes any of those."""
    least = torch.topk(values, count).values[-1]
    above = torch.nonzero(values > least)[:, 0]
    return torch.cat([above, torch.nonzero(values == least)[: count - len(above), 0]])
