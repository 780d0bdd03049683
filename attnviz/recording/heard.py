"""One attention call as the interface heard it, and parts of it by head."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from attnviz_kernels import Statistics, View

from ..composed import Difference, Stacked, Unkept, each
from ..errors import UsageError
from ..numbers import many
from ..views import Dense, QueryKey, WeightView
from .masks import Placed


@dataclass(frozen=True)
class Heard:
    """One attention call: its view [B, H, M, N], and what the kernel left behind."""

    view: View
    placed: Placed
    value: Tensor
    notes: tuple[str, ...] = ()
    statistics: Statistics | None = None
    weights: Tensor | None = None

    def only(self, heads: Sequence[int], layer: int) -> Heard:
        """The call of some heads; each of them then has keys and values of its own."""
        count = self.view.query.shape[1]
        if heads[-1] >= count:
            raise UsageError(
                f"head {heads[-1]} does not exist: layer {layer} has {many(count, 'head')} (0 to {count - 1})"
            )
        statistics, weights = self.statistics, self.weights
        return replace(
            self,
            view=narrow(self.view, heads),
            value=_groups(self.value, heads, count),
            statistics=None if statistics is None else each(statistics, lambda column: _heads(column, heads, count)),
            weights=None if weights is None else _heads(weights, heads, count),
        )


def narrow(view: View, heads: Sequence[int]) -> View:
    """The view of some heads."""
    count, mask = view.query.shape[1], view.mask
    return replace(
        view,
        query=_heads(view.query, heads, count),
        key=_groups(view.key, heads, count),
        logsumexp=_heads(view.logsumexp, heads, count),
        bias=None if view.bias is None else _heads(view.bias, heads, count),
        sinks=None if view.sinks is None else view.sinks[list(heads)],
        mask=replace(mask, dense=None if mask.dense is None else _heads(mask.dense, heads, count)),
    )


def take_heads(view: WeightView, heads: Sequence[int]) -> WeightView:
    """Some heads of any view."""
    if isinstance(view, QueryKey):
        return QueryKey(narrow(view.view, heads))
    if isinstance(view, Dense):
        return replace(view, weights=_heads(view.weights, heads, view.shape[1]))
    if isinstance(view, Stacked):
        return replace(view, parts=tuple(take_heads(part, heads) for part in view.parts))
    if isinstance(view, Difference):
        return replace(view, first=take_heads(view.first, heads), second=take_heads(view.second, heads))
    assert isinstance(view, Unkept)
    batch, count, rows, cols = view.shape
    return Unkept((batch, len(heads), rows, cols), _heads(view.seen, heads, count))


def _heads(tensor: Tensor, heads: Sequence[int], count: int) -> Tensor:
    """Some heads of a tensor [B, H or 1, ...]."""
    if tensor.shape[1] == 1 and count > 1:
        return tensor
    first, last = heads[0], heads[-1]
    if list(heads) == list(range(first, last + 1)):
        return tensor[:, first : last + 1]
    return tensor.index_select(1, torch.tensor(heads, device=tensor.device))


def _groups(tensor: Tensor, heads: Sequence[int], count: int) -> Tensor:
    """The keys or values [B, G, N, ...] of some of H heads: whole groups as they are, else one for each head."""
    size = count // tensor.shape[1]
    groups = [head // size for head in heads]
    first, last = groups[0], groups[-1]
    if list(heads) == list(range(first * size, (last + 1) * size)):
        return tensor[:, first : last + 1]
    return tensor.index_select(1, torch.tensor(groups, device=tensor.device))
