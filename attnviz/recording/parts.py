"""One attention call as it is kept, and how the calls of one run join into one map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import torch
from attnviz_kernels import Mask, Statistics, View
from torch import Tensor

from ..views import QueryKey, WeightView


@dataclass(frozen=True)
class Part:
    """One call of a run: the queries row_start, row_start + 1, ... and the keys that no earlier part holds.

    view.key holds the keys from `new_keys` on; the mask is still that of all N keys, which begin at `key_start`.
    """

    view: View
    row_start: int
    key_start: int
    new_keys: int
    step: int
    statistics: Statistics | None = None
    value: Tensor | None = None

    @property
    def row_stop(self) -> int:
        """One past the last query's position."""
        return self.row_start + self.view.query.shape[2]


def compact(tensor: Tensor) -> Tensor:
    """The detached tensor, copied where it is a small part of what its memory holds."""
    tensor = tensor.detach()
    held, needed = tensor.untyped_storage().nbytes(), tensor.numel() * tensor.element_size()
    return tensor.clone() if held > 1.25 * needed else tensor


def join(parts: Sequence[Part]) -> WeightView:
    """The map of all parts together, rows and columns at their absolute positions."""
    if len(parts) == 1:
        return QueryKey(parts[0].view)
    raise NotImplementedError


def join_statistics(parts: Sequence[Part]) -> Statistics | None:
    """The statistics of all rows; largest_key counted from the first column."""
    moved = [_moved(part) for part in parts if part.statistics is not None]
    if len(moved) != len(parts):
        return None
    return Statistics(*(torch.cat([getattr(one, f.name) for one in moved], -1) for f in fields(Statistics)))


def _moved(part: Part) -> Statistics:
    assert part.statistics is not None
    key = part.statistics.largest_key
    return replace(part.statistics, largest_key=torch.where(key < 0, key, key + part.key_start))
