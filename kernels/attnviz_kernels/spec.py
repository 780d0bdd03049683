"""The contract every backend keeps: what a call is made of, what it leaves behind, and what is refused.

Axes, in every docstring and error: B batch, H query heads, G key/value heads, M query positions, N key positions,
D head size (E for values). Order is always [B, H, M, N] or [B, H, M, D].

    score(i, j)  = scale * query[i] . key[j];  softcap * tanh(score / softcap) if given;  + bias;  + additive mask
    weight(i, j) = exp(score(i, j) - logsumexp[i]),  0 where the mask hides key j from query i
    logsumexp[i] = log(sum over visible j of exp(score(i, j)) + exp(sink) if the head has one)

A query that may see no key has output 0, weights 0, logsumexp -inf and statistics NaN, with or without a sink.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


class ArgumentError(ValueError):
    """An argument breaks the contract; the message names it, gives the rule and the value."""


class BackendError(RuntimeError):
    """The backend asked for cannot serve this call; the message names backend, reason and remedy."""


@dataclass(frozen=True)
class Mask:
    """Which keys a query may see, as structure. Conditions are combined with "and".

    Query i stands at position p = i + offset, key j at position j (offset > 0 when keys come from a cache).

    causal       j <= p. With M = 2, N = 4 and offset = 2:    1 1 1 0
                                                              1 1 1 1
    window       (left, right): p - left <= j <= p + right; None on a side means no limit there.
    chunk        j and p lie in the same block of that many positions: j // chunk == p // chunk.
    key_padding  [B, N] bool, True where the key is real.
    segments     ([B, M], [B, N]) integers: a query sees the keys of its own segment (packed sequences).
    dense        broadcastable to [B, H, M, N]; bool (True = visible) or float, added to the score, where -inf and
                 anything below half of the dtype's lowest number hides the key. Read by tiles, never expanded.
    """

    causal: bool = False
    offset: int = 0
    window: tuple[int | None, int | None] | None = None
    chunk: int | None = None
    key_padding: Tensor | None = None
    segments: tuple[Tensor, Tensor] | None = None
    dense: Tensor | None = None

    def first_key(self, batch: int) -> int:
        """The position of the first real key of one sequence (0 without key padding)."""
        if self.key_padding is None or not bool(self.key_padding[batch].any()):
            return 0
        return int(self.key_padding[batch].to(torch.uint8).argmax())


@dataclass(frozen=True)
class Emit:
    """What one pass leaves behind besides output and logsumexp. Nothing chosen costs nothing.

    statistics  a `Statistics` of every row.
    pooled      (R, C): block means of every head's map; see `pool_edges` for the blocks.
    weights     the map itself, [B, heads, rows, N]; `heads` and `rows` restrict it (None means all).
    """

    statistics: bool = False
    pooled: tuple[int, int] | None = None
    weights: bool = False
    heads: tuple[int, ...] | None = None
    rows: range | None = None


@dataclass(frozen=True)
class Statistics:
    """Per row, each [B, H, M], float32 (float64 for float64 inputs); NaN for a row that sees no key.

    entropy   -sum w ln w in nats, 0 ln 0 = 0; a sink counts as one more outcome.
    largest   the largest weight on a key; largest_key is its index (int64, the lowest on ties, -1 for no key).
    distance  sum over keys of w * |p - j|, in positions; a sink adds nothing.
    own       weight on the query's own position p; previous: on p - 1; first: on the first real key.
              0 where that key does not exist or is hidden.
    """

    entropy: Tensor
    largest: Tensor
    largest_key: Tensor
    distance: Tensor
    own: Tensor
    previous: Tensor
    first: Tensor


@dataclass(frozen=True)
class Attended:
    """What a call returns: output [B, H, M, E] in the inputs' dtype, logsumexp [B, H, M] in `accumulator` dtype."""

    output: Tensor
    logsumexp: Tensor
    statistics: Statistics | None = None
    pooled: Tensor | None = None
    weights: Tensor | None = None


@dataclass(frozen=True)
class Gradients:
    """d loss / d input for each input that asked for it; None elsewhere."""

    query: Tensor | None = None
    key: Tensor | None = None
    value: Tensor | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None


@dataclass(frozen=True)
class Call:
    """A checked call. query [B, H, M, D], key [B, G, N, D], value [B, G, N, E], bias broadcastable to [B, H, M, N],
    sinks [H]. Head h reads key/value head h // (H // G)."""

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float
    mask: Mask = Mask()
    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, M, N)."""
        return (*self.query.shape[:3], self.key.shape[2])


@dataclass(frozen=True)
class View:
    """The weights of a finished call, recomputed on demand: everything in `Call` that decides them, and logsumexp.

    Memory is O(M + N). `select` narrows to one head of one sequence without copying.
    """

    query: Tensor
    key: Tensor
    logsumexp: Tensor
    scale: float
    mask: Mask = Mask()
    softcap: float | None = None
    bias: Tensor | None = None
    sinks: Tensor | None = None

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(B, H, M, N)."""
        return (*self.query.shape[:3], self.key.shape[2])

    def sequence(self, batch: int) -> View:
        """The view of every head of one sequence, B = 1, without copying."""
        mask, one = self.mask, slice(batch, batch + 1)
        return replace(
            self,
            query=self.query[one],
            key=self.key[one],
            logsumexp=self.logsumexp[one],
            bias=None if self.bias is None else _take(self.bias, 0, one),
            mask=replace(
                mask,
                key_padding=None if mask.key_padding is None else mask.key_padding[one],
                segments=None if mask.segments is None else (mask.segments[0][one], mask.segments[1][one]),
                dense=None if mask.dense is None else _take(mask.dense, 0, one),
            ),
        )

    def select(self, batch: int, head: int) -> View:
        """The view of one head of one sequence, B = H = G = 1, without copying."""
        group = head // (self.query.shape[1] // self.key.shape[1])
        sequence, one = self.sequence(batch), slice(head, head + 1)
        mask = sequence.mask
        return replace(
            sequence,
            query=sequence.query[:, one],
            key=sequence.key[:, group : group + 1],
            logsumexp=sequence.logsumexp[:, one],
            bias=None if sequence.bias is None else _take(sequence.bias, 1, one),
            sinks=None if self.sinks is None else self.sinks[one],
            mask=replace(mask, dense=None if mask.dense is None else _take(mask.dense, 1, one)),
        )

    def crop(self, rows: slice, cols: slice) -> View:
        """The view of a range of queries and of keys, without copying; keys left out must be hidden from all queries.

        Raises ArgumentError where a chunked mask would be cut inside a chunk.
        """
        _, _, queries, keys = self.shape
        (top, bottom), (left, right) = check_range("rows", rows, queries), check_range("cols", cols, keys)
        mask = self.mask
        if mask.chunk is not None and left % mask.chunk:
            raise ArgumentError(f"cols must start at a multiple of {mask.chunk}, got {left}")
        padding = None if mask.key_padding is None else mask.key_padding[:, left:right]
        segments = mask.segments
        return replace(
            self,
            query=self.query[:, :, top:bottom],
            key=self.key[:, :, left:right],
            logsumexp=self.logsumexp[:, :, top:bottom],
            bias=None if self.bias is None else _crop(self.bias, slice(top, bottom), slice(left, right)),
            mask=replace(
                mask,
                offset=mask.offset + top - left,
                key_padding=None if padding is None or bool(padding.all()) else padding,
                segments=None if segments is None else (segments[0][:, top:bottom], segments[1][:, left:right]),
                dense=None if mask.dense is None else _crop(mask.dense, slice(top, bottom), slice(left, right)),
            ),
        )


def _crop(tensor: Tensor, rows: slice, cols: slice) -> Tensor:
    """Part of a tensor that broadcasts to [B, H, M, N]."""
    if tensor.dim() > 1 and tensor.shape[-2] > 1:
        tensor = tensor[..., rows, :]
    return tensor[..., cols] if tensor.dim() > 0 and tensor.shape[-1] > 1 else tensor


def _take(tensor: Tensor, axis: int, where: slice) -> Tensor:
    """Part of axis 0 (B) or 1 (H) of a tensor that broadcasts to [B, H, M, N]; made 4-D, broadcast axes stay."""
    tensor = tensor[(None,) * (4 - tensor.dim())]
    return tensor if tensor.shape[axis] == 1 else tensor[(slice(None),) * axis + (where,)]


def accumulator(dtype: torch.dtype) -> torch.dtype:
    """The dtype sums are kept in: float64 for float64, float32 for everything smaller."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def pool_edges(length: int, blocks: int) -> list[int]:
    """Where the blocks of a pooled axis begin and end: block k covers edges[k] to edges[k + 1].

    A grid finer than the map is the map: at most `length` blocks are made.
    """
    blocks = min(blocks, length)
    return [k * length // blocks for k in range(blocks + 1)]


def hides(additive: Tensor) -> Tensor:
    """Where an additive mask hides the key: -inf, or below half of the dtype's lowest number."""
    return additive <= torch.finfo(additive.dtype).min / 2


def check_range(name: str, where: slice, length: int) -> tuple[int, int]:
    """Start and stop of a contiguous, non-empty slice of an axis, or ArgumentError."""
    start, stop, step = where.indices(length)
    if step != 1:
        raise ArgumentError(f"{name} must be a contiguous range (step 1), got step {step}")
    if start >= stop:
        raise ArgumentError(f"{name} must select at least one of {length} positions, got {where.start}:{where.stop}")
    return start, stop
