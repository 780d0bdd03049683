"""The weights of a finished call, recomputed tile by tile from query, key and logsumexp."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803, N806  (what is fixed when a kernel is compiled has a name in capitals)

from __future__ import annotations

from typing import NamedTuple

import triton
import triton.language as tl

from .triton_masks import (
    add_dot,
    dot,
    first_key,
    head_index,
    head_of,
    key_phases,
    last_key,
    levels,
    load_tile,
    power,
    row_phases,
    scored,
)


class Cells(NamedTuple):
    """One axis of a pooled map: `blocks` cells over `length` positions from `begin`, the largest holding `widest`.

    Cell k covers k * length // blocks to (k + 1) * length // blocks.
    """

    begin: int
    length: int
    blocks: int
    widest: int


class Slots(NamedTuple):
    """How cells lie in a tile: ROWS by COLS cells side by side, each in a slot of BLOCK_M / ROWS by BLOCK_N / COLS."""

    ROWS: int
    COLS: int


@triton.jit
def tile_kernel(queries, keys, logsumexp, chosen, output, rules, heads, groups, window, T: tl.constexpr):
    """output[i - top, j - left] = exp(score(i, j) - logsumexp[i]) for top <= i < bottom, left <= j < right.

    One program per tile of one head; `chosen` is (count, indices) of heads, None for all.
    """
    top, bottom, left, right = window
    tiles_n = tl.cdiv(right - left, T.BLOCK_N)
    tiles = tl.cdiv(bottom - top, T.BLOCK_M) * tiles_n
    program = tl.program_id(0)
    place = (program // tiles).to(tl.int64)
    flat = place
    if chosen is not None:
        count, indices = chosen
        flat = place // count * heads + tl.load(indices + place % count)
    batch, head, group = head_index(flat, heads, groups)
    i = top + program % tiles // tiles_n * T.BLOCK_M + tl.arange(0, T.BLOCK_M)
    j = left + program % tiles_n * T.BLOCK_N + tl.arange(0, T.BLOCK_N)
    query = load_tile(head_of(queries, batch, head), i, rules.rows, T.D, T.BLOCK_D, True)
    key = load_tile(head_of(keys, batch, group), j, rules.cols, T.D, T.BLOCK_D, True)
    product = dot(query, tl.trans(key))
    score = scored(product, i[:, None], j[None, :], batch, head, rules, True)
    weight = power(score - levels(logsumexp, flat, i, rules)[:, None], rules)
    row = place * (bottom - top) + (i - top)
    cell = row[:, None] * (right - left) + (j - left)[None, :]
    tl.store(output + cell, weight, mask=(i < bottom)[:, None] & (j < right)[None, :])


@triton.jit
def push_kernel(queries, keys, logsumexp, vectors, output, rules, heads, groups, width, T: tl.constexpr):
    """output[i] = sum over j of exp(score(i, j) - logsumexp[i]) vector[j].

    One program per tile of queries of one head and columns of the vectors.
    """
    tiles_e = tl.cdiv(width, T.BLOCK_E)
    tiles = tl.cdiv(rules.rows, T.BLOCK_M) * tiles_e
    program = tl.program_id(0)
    flat = (program // tiles).to(tl.int64)
    batch, head, group = head_index(flat, heads, groups)
    start = program % tiles // tiles_e * T.BLOCK_M
    i = start + tl.arange(0, T.BLOCK_M)
    e = program % tiles_e * T.BLOCK_E + tl.arange(0, T.BLOCK_E)
    query = load_tile(head_of(queries, batch, head), i, rules.rows, T.D, T.BLOCK_D, True)
    level = levels(logsumexp, flat, i, rules)
    keys, vectors = head_of(keys, batch, group), head_of(vectors, batch, head)
    total = tl.zeros([T.BLOCK_M, T.BLOCK_E], tl.float32)
    a, _, _, d = key_phases(start, rules, T.BLOCK_M, T.BLOCK_N)
    for begin in tl.range(a, d, T.BLOCK_N):
        j = begin + tl.arange(0, T.BLOCK_N)
        key = load_tile(keys, j, rules.cols, T.D, T.BLOCK_D, True)
        product = dot(query, tl.trans(key))
        score = scored(product, i[:, None], j[None, :], batch, head, rules, True)
        pointers = vectors.data + j.to(tl.int64)[:, None] * vectors.strides[2] + e[None, :] * vectors.strides[3]
        vector = tl.load(pointers, mask=(j < rules.cols)[:, None] & (e < width)[None, :], other=0.0)
        total = add_dot(total, power(score - level[:, None], rules), vector)
    cell = (flat * rules.rows + i)[:, None] * width + e[None, :]
    tl.store(output + cell, total, mask=(i < rules.rows)[:, None] & (e < width)[None, :])


@triton.jit
def pull_kernel(queries, keys, logsumexp, vectors, output, rules, heads, groups, width, T: tl.constexpr):
    """output[j] = sum over i of exp(score(i, j) - logsumexp[i]) vector[i].

    One program per tile of keys of one query head and columns of the vectors. Without vectors these are all 1, and
    output[j] is what key j receives.
    """
    tiles_e = tl.cdiv(width, T.BLOCK_E)
    tiles = tl.cdiv(rules.cols, T.BLOCK_N) * tiles_e
    program = tl.program_id(0)
    flat = (program // tiles).to(tl.int64)
    batch, head, group = head_index(flat, heads, groups)
    start = program % tiles // tiles_e * T.BLOCK_N
    j = start + tl.arange(0, T.BLOCK_N)
    e = program % tiles_e * T.BLOCK_E + tl.arange(0, T.BLOCK_E)
    key = load_tile(head_of(keys, batch, group), j, rules.cols, T.D, T.BLOCK_D, True)
    queries = head_of(queries, batch, head)
    if vectors is not None:
        vectors = head_of(vectors, batch, head)
    received = tl.zeros([T.BLOCK_N], tl.float32)
    total = tl.zeros([T.BLOCK_N, T.BLOCK_E], tl.float32)
    a, _, _, d = row_phases(start, rules, T.BLOCK_N, T.BLOCK_M)
    for begin in tl.range(a, d, T.BLOCK_M):
        i = begin + tl.arange(0, T.BLOCK_M)
        query = load_tile(queries, i, rules.rows, T.D, T.BLOCK_D, True)
        product = dot(key, tl.trans(query))
        score = scored(product, i[None, :], j[:, None], batch, head, rules, True)
        weight = power(score - levels(logsumexp, flat, i, rules)[None, :], rules)
        if vectors is not None:
            pointers = vectors.data + i.to(tl.int64)[:, None] * vectors.strides[2] + e[None, :] * vectors.strides[3]
            vector = tl.load(pointers, mask=(i < rules.rows)[:, None] & (e < width)[None, :], other=0.0)
            total = add_dot(total, weight, vector)
        else:
            received += tl.sum(weight, 1)
    if vectors is None:
        tl.store(output + flat * rules.cols + j, received, mask=j < rules.cols)
    else:
        cell = (flat * rules.cols + j)[:, None] * width + e[None, :]
        tl.store(output + cell, total, mask=(j < rules.cols)[:, None] & (e < width)[None, :])


@triton.jit
def _edge(k, axis):
    # where cell k of an axis begins
    return (axis.begin + k.to(tl.int64) * axis.length // axis.blocks).to(tl.int32)


@triton.jit
def _positions(cells, step, within, axis, outside):
    # position number step + within of each cell, `outside` beyond the cell's end
    position = _edge(cells, axis) + step + within
    inside = (cells < axis.blocks) & (position < _edge(cells + 1, axis))
    return tl.where(inside, position, outside)


@triton.jit
def pool_kernel(
    queries,
    keys,
    logsumexp,
    output,
    rules,
    heads,
    groups,
    row_axis,
    col_axis,
    spans,
    MAXIMUM: tl.constexpr,
    S: tl.constexpr,
    T: tl.constexpr,
):
    """output[r, c] = mean or maximum of exp(score(i, j) - logsumexp[i]) over i in row cell r and j in column cell c.

    One program per band of S.ROWS row cells of one head and every spans'th group of S.COLS column cells. Tiles are cut
    along the cells, so that no two programs share a cell: sums are the same in every run. Small cells lie side by side
    in one tile, each in its slot; large ones take several tiles.

    This sweep costs about the score half of an attention pass. It cannot share that pass, because weights are known
    only when the pass has ended.
    """
    WIDE_M: tl.constexpr = T.BLOCK_M // S.ROWS
    WIDE_N: tl.constexpr = T.BLOCK_N // S.COLS
    bands = tl.cdiv(row_axis.blocks, S.ROWS)
    program = tl.program_id(0)
    flat = (program // (bands * spans)).to(tl.int64)
    batch, head, group = head_index(flat, heads, groups)
    band = program // spans % bands * S.ROWS
    queries, keys = head_of(queries, batch, head), head_of(keys, batch, group)
    slot_m, slot_n = tl.arange(0, T.BLOCK_M), tl.arange(0, T.BLOCK_N)
    row_cells, row_within = band + slot_m // WIDE_M, slot_m % WIDE_M
    band_end = _edge(tl.minimum(band + S.ROWS, row_axis.blocks), row_axis)

    seeing = tl.zeros([T.BLOCK_M], tl.float32)
    for step in tl.range(0, row_axis.widest, WIDE_M):
        i = _positions(row_cells, step, row_within, row_axis, rules.rows)
        seeing += tl.where(levels(logsumexp, flat, i, rules) < float("inf"), 1.0, 0.0)
    seeing = tl.sum(tl.reshape(seeing, [S.ROWS, WIDE_M]), 1)

    for turn in tl.range(0, tl.cdiv(tl.cdiv(col_axis.blocks, S.COLS), spans)):
        first = (program % spans + turn * spans) * S.COLS
        col_cells, col_within = first + slot_n // WIDE_N, slot_n % WIDE_N
        group_begin = _edge(first, col_axis)
        group_end = _edge(tl.minimum(first + S.COLS, col_axis.blocks), col_axis)
        found = tl.zeros([T.BLOCK_M, T.BLOCK_N], tl.float32)
        for step in tl.range(0, row_axis.widest, WIDE_M):
            i = _positions(row_cells, step, row_within, row_axis, rules.rows)
            low, high = first_key(_edge(band, row_axis) + step, rules), last_key(band_end - 1, rules)
            query = load_tile(queries, i, rules.rows, T.D, T.BLOCK_D, True)
            level = levels(logsumexp, flat, i, rules)
            for move in tl.range(0, col_axis.widest, WIDE_N):
                if (group_begin + move <= high) & (group_end > low):
                    j = _positions(col_cells, move, col_within, col_axis, rules.cols)
                    key = load_tile(keys, j, rules.cols, T.D, T.BLOCK_D, True)
                    product = dot(query, tl.trans(key))
                    score = scored(product, i[:, None], j[None, :], batch, head, rules, True)
                    weight = power(score - level[:, None], rules)
                    found = tl.maximum(found, weight) if MAXIMUM else found + weight
        slots = tl.reshape(found, [S.ROWS, WIDE_M, S.COLS, WIDE_N])
        r, c = band + tl.arange(0, S.ROWS), first + tl.arange(0, S.COLS)
        if MAXIMUM:
            cells = tl.max(tl.max(slots, 3), 1)
        else:
            width = (_edge(c + 1, col_axis) - _edge(c, col_axis)).to(tl.float32)
            cells = tl.sum(tl.sum(slots, 3), 1) / (tl.maximum(seeing, 1.0)[:, None] * width[None, :])
        cells = tl.where(seeing[:, None] > 0, cells, float("nan"))
        place = (flat * row_axis.blocks + r)[:, None] * col_axis.blocks + c[None, :]
        tl.store(output + place, cells, mask=(r < row_axis.blocks)[:, None] & (c < col_axis.blocks)[None, :])
