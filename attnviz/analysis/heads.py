"""The table of heads: how broad, how far and where each one looks, as means over the rows that see a key."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Head, Trace


def heads_table(trace: Trace) -> pd.DataFrame:
    """One row per layer and head: entropy (nats), entropy_normalised, largest, distance, own, previous, first.

    Means over rows that see a key. `entropy_normalised` divides by ln(visible keys) and leaves out rows that see one
    key only, whose entropy is 0 by construction. It does not show which keys matter to the model's output.
    """
    import pandas as pd

    return pd.DataFrame([summary(head) for head in trace.every_head()])


def summary(head: Head) -> dict[str, float]:
    """The means of one head, as in `heads_table`."""
    found = head.statistics
    columns = {
        "entropy": found.entropy,
        "entropy_normalised": normalised_entropy(head),
        "largest": found.largest,
        "distance": found.distance,
        "own": found.own,
        "previous": found.previous,
        "first": found.first,
    }
    means = {name: torch.nanmean(column).item() for name, column in columns.items()}
    return {"layer": head.layer, "head": head.head, **means}


def normalised_entropy(head: Head) -> Tensor:
    """[M]: entropy / ln(visible keys); NaN for rows that see fewer than two keys."""
    visible = head.visible
    return head.entropy / torch.log(visible.to(head.entropy.dtype)).masked_fill(visible < 2, torch.nan)
