"""How the calls of one run become one map."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from attnviz_kernels import Statistics, View

from ..composed import Stacked, Unkept, join_statistics
from ..errors import RecordingError
from ..views import Dense, QueryKey, WeightView
from .parts import Kept, Part, Weighed


def join(parts: Sequence[Any]) -> WeightView:
    """The map of all parts together; its first row and column are the first part's.

    One view where one mask describes all parts, else the parts one under another.
    """
    left, right = parts[0].key_start, max(part.key_stop for part in parts)
    if isinstance(parts[0], Kept):
        return _join_kept(parts, left, right)
    if isinstance(parts[0], Weighed):
        padded = [_padded(part, left, right) for part in parts]
        return Dense(padded[0] if len(padded) == 1 else torch.cat(padded, 2), parts[0].row_start - left)
    seen = torch.cat([part.seen for part in parts], 2)
    return Unkept((*seen.shape, right - left), seen)


def joined_statistics(parts: Sequence[Part]) -> Statistics | None:
    """The statistics of all rows, columns counted from the first part's first key."""
    found = [part.statistics for part in parts if part.statistics is not None]
    if len(found) < len(parts):
        return None
    return join_statistics(found, tuple(part.key_start - parts[0].key_start for part in parts))


def joined_value(parts: Sequence[Any]) -> Tensor | None:
    """The values [B, G, N, E] of all keys, where they were kept."""
    if not isinstance(parts[0], Kept) or parts[0].value is None:
        return None
    return _gather([part.value for part in parts], parts, parts[0].key_start, max(part.key_stop for part in parts))


def _join_kept(parts: Sequence[Kept], left: int, right: int) -> WeightView:
    key = _gather([part.view.key for part in parts], parts, left, right)
    later_keys_hidden = parts[0].view.mask.causal or len({part.key_stop for part in parts}) == 1
    if later_keys_hidden and all(_joins(part, parts[0]) and _hides_before(part, left) for part in parts):
        return QueryKey(_one(parts, key, left, right))
    views = [_alone(part, key, left) for part in parts]
    if len(views) == 1:
        return views[0]
    return Stacked(tuple(views), tuple(part.key_start - left for part in parts), right - left)


def _gather(tensors: Sequence[Tensor], parts: Sequence[Kept], left: int, right: int) -> Tensor:
    """Keys or values [B, G, right - left, ...] put together from what the parts kept."""
    first = tensors[0]
    if len(parts) == 1 and first.shape[2] == right - left:
        return first
    if all(part.kept_from == before.kept_to for before, part in pairwise(parts)):
        return torch.cat(list(tensors), 2)[:, :, : right - left]
    whole = first.new_empty(*first.shape[:2], right - left, first.shape[3])
    known = left
    for part, tensor in zip(parts, tensors, strict=True):
        if part.kept_from > known:
            raise RecordingError(
                f"the keys of positions {known} to {part.kept_from - 1} were not seen: record from the first token on"
            )
        whole[:, :, part.kept_from - left : part.kept_to - left] = tensor[:, :, : right - part.kept_from]
        known = max(known, part.kept_to)
    return whole


def _joins(part: Kept, first: Kept) -> bool:
    """Whether one mask can describe both calls."""
    one, other = part.view.mask, first.view.mask
    alike = (one.causal, one.window, one.chunk) == (other.causal, other.window, other.chunk)
    return alike and (one.segments is None) == (other.segments is None) and one.dense is None and part.view.bias is None


def _hides_before(part: Kept, left: int) -> bool:
    """Whether the mask hides the keys from `left` on that a call did not have: a cache may forget more than it says."""
    mask, missing = part.view.mask, part.key_start > left
    if missing and mask.window is not None and mask.window[0] is not None:
        return part.row_start - mask.window[0] >= part.key_start
    if missing and mask.chunk is not None:
        return part.row_start // mask.chunk * mask.chunk >= part.key_start
    return not missing


def _one(parts: Sequence[Kept], key: Tensor, left: int, right: int) -> View:
    first = parts[0]
    if len(parts) == 1 and right - left == first.keys:
        return replace(first.view, key=key)
    mask = replace(
        first.view.mask,
        offset=first.row_start - left,
        key_padding=_padding(parts, left, right),
        segments=_segments(parts, left, right),
    )
    query = torch.cat([part.view.query for part in parts], 2)
    logsumexp = torch.cat([part.view.logsumexp for part in parts], 2)
    return replace(first.view, query=query, key=key, logsumexp=logsumexp, mask=mask)


def _padding(parts: Sequence[Kept], left: int, right: int) -> Tensor | None:
    """[B, N]: which keys are real, by the last part that says so."""
    given = [(part, part.view.mask.key_padding) for part in parts if part.view.mask.key_padding is not None]
    if not given:
        return None
    real = given[0][1].new_ones(given[0][1].shape[0], right - left)
    for part, padding in given:
        real[:, part.key_start - left : part.key_stop - left] = padding[:, : part.key_stop - part.key_start]
    return real


def _segments(parts: Sequence[Kept], left: int, right: int) -> tuple[Tensor, Tensor] | None:
    given = [(part, part.view.mask.segments) for part in parts if part.view.mask.segments is not None]
    if not given:
        return None
    rows = torch.cat([segments[0] for _, segments in given], 1)
    keys = rows.new_zeros(rows.shape[0], right - left)
    for part, segments in given:
        keys[:, part.key_start - left : part.key_stop - left] = segments[1][:, : part.key_stop - part.key_start]
    return rows, keys


def _alone(part: Kept, key: Tensor, left: int) -> WeightView:
    """One call with all the keys it saw."""
    start = part.key_start - left
    return QueryKey(replace(part.view, key=key[:, :, start : start + part.keys]))


def _padded(part: Weighed, left: int, right: int) -> Tensor:
    """Weights [B, H, M, right - left], zero for keys that the call did not have."""
    start, width = part.key_start - left, part.key_stop - part.key_start
    return F.pad(part.weights[..., :width], (start, right - left - start - width))
