"""What all Triton kernels share: the score of a tile, the mask as intervals of keys, and pointers to tiles.

With half precision inputs scores are kept in base 2 (times log2 e): each exponential is then one instruction. That
rounds scores once more, and large float32 ones would lose digits that count; those stay in nats.

A hidden key gets the finite score HIDDEN, and running maxima start at LOWEST, which lies above it: the exponential of
HIDDEN - LOWEST is 0, so a tile that hides everything needs no special case, and no infinity ever meets another.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803  (what is fixed when a kernel is compiled has a name in capitals)

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .triton_tiles import interpreting

INTERPRETED = tl.constexpr(interpreting())
LOG2E = tl.constexpr(1.4426950408889634)
HIDDEN = tl.constexpr(-3.4e38)
LOWEST = tl.constexpr(-2.6e38)


class Heads(NamedTuple):
    """A [batch, heads, positions, size] tensor, or a pointer into one, and its strides."""

    data: Any
    strides: tuple[int, ...]


class Tile(NamedTuple):
    """Sizes of a tile: BLOCK_M queries by BLOCK_N keys; D and E are head sizes, padded to BLOCK_D and BLOCK_E."""

    BLOCK_M: int
    BLOCK_N: int
    D: int
    BLOCK_D: int
    E: int
    BLOCK_E: int


class Rules(NamedTuple):
    """All that decides a score besides query and key. What is None is absent from the compiled kernel.

    A query at position p = i + offset sees keys p - left to p + right of its own chunk; causal is right = 0.
    score * unit = inner * q.k, or cap * tanh(inner * q.k), plus bias and dense times unit, which is log2 e with base2
    and 1 without. `falling` is 1 where inner is negative. `floor` is where an additive dense mask hides, None for a
    bool one. Every tensor is expanded to [B, H, M, N] without copying: strides are 0 where nothing depends on an axis.
    """

    rows: int
    cols: int
    scale: float
    unit: float
    base2: int | None
    inner: float
    falling: int | None
    cap: float | None
    offset: int
    left: int | None
    right: int | None
    chunk: int | None
    padding: Heads | None
    row_segments: Heads | None
    col_segments: Heads | None
    dense: Heads | None
    floor: float | None
    bias: Heads | None
    sinks: Heads | None


@triton.jit
def narrow(x, DTYPE: tl.constexpr):
    """x, float32, rounded to a dtype; the interpreter would cut the last bits of a bfloat16 off."""
    if INTERPRETED and DTYPE == tl.bfloat16:  # noqa: SIM300
        bits = x.to(tl.uint32, bitcast=True)
        bits = tl.where(x == x, (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000, bits)
        x = bits.to(tl.float32, bitcast=True)
    return x.to(DTYPE)


@triton.jit
def dot(a, b):
    """a @ b, summed in float32; the interpreter would multiply the bit patterns of bfloat16."""
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision="ieee")


@triton.jit
def add_dot(total, a, b):
    """total + a @ b, with a narrowed to the dtype of b."""
    a = narrow(a, b.dtype)
    if INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, total, input_precision="ieee")


@triton.jit
def power(x, rules):
    """exp(x / unit)."""
    return tl.exp(x) if rules.base2 is None else tl.exp2(x)


@triton.jit
def logarithm(x, rules):
    """log(x) * unit."""
    return tl.log(x) if rules.base2 is None else tl.log2(x)


@triton.jit
def tanh(x):
    """(1 - e) / (1 + e) with e = exp(-2 |x|), and its series near 0, where that difference would lose digits."""
    size = tl.abs(x)
    e = tl.exp2(size * (-2.0 * LOG2E))
    far = (1.0 - e) / (1.0 + e)
    small = tl.minimum(tl.maximum(x, -0.25), 0.25)
    s2 = small * small
    near = small + small * s2 * (-1.0 / 3 + s2 * (2.0 / 15 + s2 * (-17.0 / 315 + s2 * (62.0 / 2835))))
    return tl.where(size < 0.25, near, tl.where(x < 0, -far, far))


@triton.jit
def chunk_start(position, chunk):
    """The largest multiple of chunk that is <= position, also for negative positions (of cropped views)."""
    below = tl.where(position < 0, position - (chunk - 1), position)
    return below // chunk * chunk


@triton.jit
def first_key(i, rules):
    """The lowest key that the mask's structure shows to query i: max(0, p - left, start of p's chunk)."""
    position = i + rules.offset
    low = position * 0
    if rules.left is not None:
        low = tl.maximum(low, position - rules.left)
    if rules.chunk is not None:
        low = tl.maximum(low, chunk_start(position, rules.chunk))
    return low


@triton.jit
def last_key(i, rules):
    """The highest key that the mask's structure shows to query i: min(N - 1, p + right, end of p's chunk)."""
    position = i + rules.offset
    high = position * 0 + (rules.cols - 1)
    if rules.right is not None:
        high = tl.minimum(high, position + rules.right)
    if rules.chunk is not None:
        high = tl.minimum(high, chunk_start(position, rules.chunk) + (rules.chunk - 1))
    return high


@triton.jit
def first_row(j, rules):
    """The lowest query that the mask's structure lets see key j: max(0, j - right - offset, start of j's chunk)."""
    low = j * 0
    if rules.right is not None:
        low = tl.maximum(low, j - rules.right - rules.offset)
    if rules.chunk is not None:
        low = tl.maximum(low, chunk_start(j, rules.chunk) - rules.offset)
    return low


@triton.jit
def last_row(j, rules):
    """The highest query that the mask's structure lets see key j: min(M - 1, j + left - offset, end of j's chunk)."""
    high = j * 0 + (rules.rows - 1)
    if rules.left is not None:
        high = tl.minimum(high, j + rules.left - rules.offset)
    if rules.chunk is not None:
        high = tl.minimum(high, chunk_start(j, rules.chunk) + (rules.chunk - 1) - rules.offset)
    return high


@triton.jit
def phases(begin, inner_begin, inner_end, end, BLOCK: tl.constexpr):
    """Tile starts a <= b <= c <= d of an interval whose inner part is visible to all: [a, b) and [c, d) need the band.

         begin   inner_begin        inner_end    end
    ...|...xxxx|xxxx:oooo|oooooooo|oooo:xxxx|xxx.....|     x: seen by some, o: seen by all of the other side's tile
       a                 b        c                  d
    """
    a = tl.maximum(begin, 0) // BLOCK * BLOCK
    d = tl.maximum(end, a)
    b = tl.minimum(tl.maximum(inner_begin + (BLOCK - 1), a) // BLOCK * BLOCK, d)
    c = tl.maximum(tl.minimum(inner_end, d) // BLOCK * BLOCK, b)
    return a, b, c, d


@triton.jit
def key_phases(start, rules, BLOCK: tl.constexpr, BLOCK_N: tl.constexpr):
    """`phases` of the keys for the tile of queries that begins at start."""
    last = tl.minimum(start + BLOCK, rules.rows) - 1
    return phases(
        first_key(start, rules), first_key(last, rules), last_key(start, rules) + 1, last_key(last, rules) + 1, BLOCK_N
    )


@triton.jit
def row_phases(start, rules, BLOCK: tl.constexpr, BLOCK_M: tl.constexpr):
    """`phases` of the queries for the tile of keys that begins at start."""
    last = tl.minimum(start + BLOCK, rules.cols) - 1
    return phases(
        first_row(start, rules), first_row(last, rules), last_row(start, rules) + 1, last_row(last, rules) + 1, BLOCK_M
    )


@triton.jit
def head_index(flat, heads, groups):
    """Batch, query head and key head of the flat'th query head."""
    head = flat % heads
    return flat // heads, head, head // (heads // groups)


@triton.jit
def head_of(tensor, batch, head):
    """One head of `Heads`: the same strides, the pointer moved."""
    return Heads(tensor.data + batch * tensor.strides[0] + head * tensor.strides[1], tensor.strides)


@triton.jit
def load_cells(one, row, col):
    """Cells (row, col) of one head of a tensor expanded to [B, H, M, N]."""
    return tl.load(one.data + row * one.strides[2] + col * one.strides[3])


@triton.jit
def scored(product, i, j, batch, head, rules, BAND: tl.constexpr):
    """score(i, j) * unit of a tile from its products q.k, HIDDEN where the mask hides key j from query i.

    i and j are index tensors that broadcast to the tile, either way round. BAND=False skips the interval test where
    the caller knows that every query of the tile sees every key of it. Indices outside of the map read what lies at
    its edge and must be dropped by the caller (queries) or fall to the interval test (keys).
    """
    score = product * rules.inner
    if rules.cap is not None:
        score = rules.cap * tanh(score)
    row = tl.minimum(i, rules.rows - 1).to(tl.int64)
    col = tl.maximum(tl.minimum(j, rules.cols - 1), 0).to(tl.int64)
    if rules.bias is not None:
        bias = load_cells(head_of(rules.bias, batch, head), row, col).to(tl.float32)
        score = tl.maximum(score + bias * rules.unit, HIDDEN)
    if rules.dense is not None:
        dense = load_cells(head_of(rules.dense, batch, head), row, col)
        if rules.floor is None:
            score = tl.where(dense != 0, score, HIDDEN)
        else:
            shown = dense.to(tl.float32) > rules.floor
            dense = tl.where(shown, dense.to(tl.float32), 0.0)
            score = tl.where(shown, tl.maximum(score + dense * rules.unit, HIDDEN), HIDDEN)
    if rules.padding is not None:
        padding = head_of(rules.padding, batch, head)
        score = tl.where(tl.load(padding.data + col * padding.strides[3]) != 0, score, HIDDEN)
    if rules.row_segments is not None:
        mine, theirs = head_of(rules.row_segments, batch, head), head_of(rules.col_segments, batch, head)
        same = tl.load(mine.data + row * mine.strides[2]) == tl.load(theirs.data + col * theirs.strides[3])
        score = tl.where(same, score, HIDDEN)
    if BAND:
        score = tl.where((j >= first_key(i, rules)) & (j <= last_key(i, rules)), score, HIDDEN)
    return score


@triton.jit
def levels(logsumexp, flat, i, rules):
    """logsumexp[i] * unit; +inf for queries that see nothing or do not exist, which makes their weights 0."""
    level = tl.load(logsumexp + flat * rules.rows + i, mask=i < rules.rows, other=float("-inf"))
    return tl.where(level == float("-inf"), float("inf"), level * rules.unit)


@triton.jit
def load_tile(one, i, limit, SIZE: tl.constexpr, BLOCK: tl.constexpr, BOUNDED: tl.constexpr):
    """Rows i of one head, [len(i), BLOCK]; 0 beyond SIZE, and beyond limit if BOUNDED."""
    e = tl.arange(0, BLOCK)
    # 64 bits: a row's offset may pass 2**31 where heads are interleaved
    pointers = one.data + i.to(tl.int64)[:, None] * one.strides[2] + e[None, :] * one.strides[3]
    if BOUNDED:
        return tl.load(pointers, mask=(i < limit)[:, None] & (e < SIZE)[None, :], other=0.0)
    elif SIZE != BLOCK:
        return tl.load(pointers, mask=(e < SIZE)[None, :], other=0.0)
    else:
        return tl.load(pointers)


@triton.jit
def store_tile(one, i, limit, tile, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    """Write rows i < limit of one head, [len(i), BLOCK], as far as SIZE."""
    e = tl.arange(0, BLOCK)
    pointers = one.data + i.to(tl.int64)[:, None] * one.strides[2] + e[None, :] * one.strides[3]
    tl.store(pointers, narrow(tile, one.data.dtype.element_ty), mask=(i < limit)[:, None] & (e < SIZE)[None, :])
