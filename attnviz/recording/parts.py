"""One attention call as it is kept; `joining` makes one map of the calls of a run.

A cache hands the keys of all earlier tokens to every call. Only the keys of a call's own tokens are kept with it, so
that a run takes memory in proportion to its length.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Self

from torch import Tensor

from attnviz_kernels import Statistics, View

from ..composed import each

Take = Callable[[Tensor], Tensor]


@dataclass(frozen=True, kw_only=True)
class Part:
    """One call: M queries from position row_start on, and N keys from position key_start on.

    step counts the forward passes of the run; statistics are [B, H, M].
    """

    row_start: int
    rows: int
    key_start: int
    keys: int
    step: int
    causal: bool = False
    statistics: Statistics | None = None

    @property
    def row_stop(self) -> int:
        """One past the last query's position."""
        return self.row_start + self.rows

    @property
    def key_stop(self) -> int:
        """One past the last key that a query of this call may see."""
        stop = self.key_start + self.keys
        return min(stop, self.row_stop) if self.causal else stop

    @property
    def batch(self) -> int:
        """How many sequences the call held."""
        raise NotImplementedError

    def picked(self, rows: Tensor) -> Self:
        """The part with its sequences [B] replaced by those chosen, in that order."""
        batch = self.batch
        return self._changed(lambda tensor: tensor.index_select(0, rows) if tensor.shape[0] == batch else tensor)

    def until(self, stop: int) -> Self:
        """The part without the queries from a position on."""
        count = self.rows - (self.row_stop - stop)
        return replace(self._first(count), rows=count)

    def _first(self, count: int) -> Self:
        statistics = None if self.statistics is None else each(self.statistics, lambda column: column[..., :count])
        return replace(self, statistics=statistics)

    def _changed(self, take: Take) -> Self:
        statistics = None if self.statistics is None else each(self.statistics, take)
        return replace(self, statistics=statistics)


@dataclass(frozen=True, kw_only=True)
class Kept(Part):
    """A call of which queries and keys are kept: keys from position `kept_from` on, possibly none.

    view.mask is that of the whole call, N keys. value is [B, G, kept keys, E].
    """

    view: View
    kept_from: int
    value: Tensor | None = None

    @property
    def batch(self) -> int:
        """How many sequences the call held."""
        return self.view.query.shape[0]

    @property
    def kept_to(self) -> int:
        """One past the last kept key's position."""
        return self.kept_from + self.view.key.shape[2]

    def _changed(self, take: Take) -> Self:
        view, mask = self.view, self.view.mask
        mask = replace(
            mask,
            key_padding=_maybe(mask.key_padding, take),
            segments=None if mask.segments is None else (take(mask.segments[0]), take(mask.segments[1])),
            dense=_maybe(mask.dense, take),
        )
        bias = _maybe(view.bias, take)
        query, key, logsumexp = take(view.query), take(view.key), take(view.logsumexp)
        view = replace(view, query=query, key=key, logsumexp=logsumexp, bias=bias, mask=mask)
        return replace(super()._changed(take), view=view, value=_maybe(self.value, take))

    def _first(self, count: int) -> Self:
        view, mask = self.view, self.view.mask
        mask = replace(
            mask,
            segments=None if mask.segments is None else (mask.segments[0][:, :count], mask.segments[1]),
            dense=_maybe(mask.dense, lambda dense: _rows(dense, count)),
        )
        bias = _maybe(view.bias, lambda bias: _rows(bias, count))
        query, logsumexp = view.query[:, :, :count], view.logsumexp[:, :, :count]
        view = replace(view, query=query, logsumexp=logsumexp, bias=bias, mask=mask)
        return replace(super()._first(count), view=view)


@dataclass(frozen=True, kw_only=True)
class Weighed(Part):
    """A call of which the weights [B, H, M, N] are kept."""

    weights: Tensor

    @property
    def batch(self) -> int:
        """How many sequences the call held."""
        return self.weights.shape[0]

    def _first(self, count: int) -> Self:
        return replace(super()._first(count), weights=self.weights[:, :, :count])

    def _changed(self, take: Take) -> Self:
        return replace(super()._changed(take), weights=take(self.weights))


@dataclass(frozen=True, kw_only=True)
class Counted(Part):
    """A call of which only statistics are kept, and how many keys each query saw [B, H, M]."""

    seen: Tensor

    @property
    def batch(self) -> int:
        """How many sequences the call held."""
        return self.seen.shape[0]

    def _first(self, count: int) -> Self:
        return replace(super()._first(count), seen=self.seen[:, :, :count])

    def _changed(self, take: Take) -> Self:
        return replace(super()._changed(take), seen=take(self.seen))


def own_keys(part: Part, crosses: bool, goes_on: bool) -> tuple[int, int]:
    """Which keys a call has to keep, as a range of positions.

    The first call of a run keeps all keys it may see, later ones those of their own tokens; keys that come from
    another sequence never change.
    """
    if not goes_on:
        return part.key_start, part.key_stop
    if crosses:
        return part.key_stop, part.key_stop
    return max(part.row_start, part.key_start), min(part.row_stop, part.key_stop)


def _rows(tensor: Tensor, count: int) -> Tensor:
    """The first rows of a tensor that broadcasts to [B, H, M, N]."""
    return tensor if tensor.shape[-2] == 1 else tensor[..., :count, :]


def _maybe(tensor: Tensor | None, take: Take) -> Tensor | None:
    return None if tensor is None else take(tensor)
