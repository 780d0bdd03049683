"""Attention of one tile of queries to all its keys in one pass (FlashAttention-2, Dao 2023), statistics included."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803, N806  (what is fixed when a kernel is compiled has a name in capitals)

from __future__ import annotations

from typing import Any, NamedTuple

import triton
import triton.language as tl

from .triton_masks import (
    HIDDEN,
    LOWEST,
    add_dot,
    dot,
    head_index,
    head_of,
    key_phases,
    load_tile,
    logarithm,
    power,
    scored,
    store_tile,
)


class Leaves(NamedTuple):
    """Where the statistics of a pass go, each [B, H, M]; first_keys [B] names the first real key of each sequence."""

    entropy: Any
    largest: Any
    largest_key: Any
    distance: Any
    own: Any
    previous: Any
    first: Any
    first_keys: Any


@triton.jit
def _pick(picked, score, hit):
    # the score that hit marks in each row, where there is one
    return tl.maximum(picked, tl.max(tl.where(hit, score, HIDDEN), 1))


@triton.jit
def _sweep(state, fixed, rules, begin, end, BOUNDARY: tl.constexpr, STATISTICS: tl.constexpr, T: tl.constexpr):
    # per row, over the keys of tile after tile, with x = score - top and old sums scaled by e^(old top - top):
    #   top = max score      total = sum e^x     mixed = sum e^x value
    #   spread = sum e^x x   travel = sum e^x |p - j|     best = the first j at which score = top
    # spread adds terms of one sign only, so the entropy made of it loses no digits
    top, total, mixed, spread, travel, best, own, previous, first = state
    query, keys, values, i, batch, head, p, first_key = fixed
    # columns as floats, converted once: in the loop that would cost as much as the exponentials
    within = tl.arange(0, T.BLOCK_N).to(tl.float32)[None, :]
    RISING: tl.constexpr = (rules.falling is None) and (rules.cap is None) and (rules.bias is None)
    SHOWN: tl.constexpr = (rules.dense is None) and (rules.padding is None) and (rules.row_segments is None)
    PLAIN: tl.constexpr = RISING and SHOWN and (not BOUNDARY)
    for start in tl.range(begin, end, T.BLOCK_N):
        start = tl.multiple_of(start, T.BLOCK_N)
        j = start + tl.arange(0, T.BLOCK_N)
        key = load_tile(keys, j, rules.cols, T.D, T.BLOCK_D, BOUNDARY)
        product = dot(query, tl.trans(key))
        score = scored(product, i[:, None], j[None, :], batch, head, rules, BOUNDARY)
        # where scores only rise with products, one multiplication a row does, not one a cell
        peak = tl.max(product, 1) * rules.inner if PLAIN else tl.max(score, 1)
        new_top = tl.maximum(top, peak)
        shrink = power(top - new_top, rules)
        x = score - new_top[:, None]
        mass = power(x, rules)
        if STATISTICS:
            spread = shrink * (spread + total * (top - new_top)) + tl.sum(mass * x, 1)
            ahead = (i + (rules.offset - start)).to(tl.float32)[:, None]
            travel = shrink * travel + tl.sum(mass * tl.abs(ahead - within), 1)
            here = tl.min(tl.where(score == peak[:, None], within, T.BLOCK_N), 1)
            best = tl.where(peak > top, start + here.to(tl.int32), best)
            # few tiles hold one of these keys: most pay for a comparison of numbers only
            if (start < p + T.BLOCK_M) & (start + T.BLOCK_N >= p):
                own = _pick(own, score, within == ahead)
                previous = _pick(previous, score, within == ahead - 1.0)
            if (start <= first_key) & (start + T.BLOCK_N > first_key):
                first = _pick(first, score, within == (first_key - start))
        total = shrink * total + tl.sum(mass, 1)
        if values is not None:
            value = load_tile(values, j, rules.cols, T.E, T.BLOCK_E, BOUNDARY)
            mixed = mixed * shrink[:, None]
            mixed = add_dot(mixed, mass, value)
        top = new_top
    return top, total, mixed, spread, travel, best, own, previous, first


@triton.jit
def _leave(pointer, leaf, blind, number, inside):
    # one statistic of each row, NaN for rows that see nothing
    tl.store(pointer + leaf, tl.where(blind, float("nan"), number), mask=inside)


@triton.jit
def attend_kernel(queries, keys, values, output, logsumexp, leaves, rules, heads, groups, T: tl.constexpr):
    """output[i] = sum over j of exp(score(i, j) - logsumexp[i]) value[j]; one program per tile of queries of one head.

    Of the three sweeps, the one over tiles that all its queries see leaves the interval test out.
    """
    tiles = tl.cdiv(rules.rows, T.BLOCK_M)
    program = tl.program_id(0)
    # the last tiles first: under a causal mask they have the most to do
    start = (tiles - 1 - program % tiles) * T.BLOCK_M
    flat = (program // tiles).to(tl.int64)
    batch, head, group = head_index(flat, heads, groups)
    i = start + tl.arange(0, T.BLOCK_M)
    query = load_tile(head_of(queries, batch, head), i, rules.rows, T.D, T.BLOCK_D, True)
    keys = head_of(keys, batch, group)
    if values is not None:
        values = head_of(values, batch, group)
    STATISTICS: tl.constexpr = leaves is not None
    first_key = 0
    if STATISTICS and leaves.first_keys is not None:
        first_key = tl.load(leaves.first_keys + batch).to(tl.int32)

    zero = tl.zeros([T.BLOCK_M], tl.float32)
    nothing = zero + HIDDEN
    mixed = tl.zeros([T.BLOCK_M, T.BLOCK_E], tl.float32)
    best = tl.zeros([T.BLOCK_M], tl.int32)
    state = (zero + LOWEST, zero, mixed, zero, zero, best, nothing, nothing, nothing)
    fixed = (query, keys, values, i, batch, head, start + rules.offset, first_key)
    a, b, c, d = key_phases(start, rules, T.BLOCK_M, T.BLOCK_N)
    if rules.left is not None or rules.chunk is not None:
        state = _sweep(state, fixed, rules, a, b, True, STATISTICS, T)
    state = _sweep(state, fixed, rules, b, c, False, STATISTICS, T)
    state = _sweep(state, fixed, rules, c, d, True, STATISTICS, T)
    key_top, total, mixed, spread, travel, best, own, previous, first = state

    blind = key_top == LOWEST
    top, shrink = key_top, zero + 1.0
    if rules.sinks is not None:
        # one more outcome: it takes weight and adds to the entropy, and has neither value nor position
        sink = tl.load(head_of(rules.sinks, batch, head).data).to(tl.float32) * rules.unit
        top = tl.maximum(key_top, sink)
        shrink = power(key_top - top, rules)
        x = tl.maximum(sink - top, HIDDEN)
        spread = shrink * (spread + total * (key_top - top)) + power(x, rules) * x
        total = shrink * total + power(x, rules)
    total = tl.where(blind, 1.0, total)
    inside = i < rules.rows
    leaf = flat * rules.rows + i
    tl.store(
        logsumexp + leaf, tl.where(blind, float("-inf"), (top + logarithm(total, rules)) / rules.unit), mask=inside
    )
    if values is not None:
        scaled = mixed * (shrink / total)[:, None]
        store_tile(head_of(output, batch, head), i, rules.rows, scaled, T.E, T.BLOCK_E)
    if STATISTICS:
        _leave(leaves.entropy, leaf, blind, (logarithm(total, rules) - spread / total) / rules.unit, inside)
        _leave(leaves.largest, leaf, blind, shrink / total, inside)
        tl.store(leaves.largest_key + leaf, tl.where(blind, -1, best), mask=inside)
        _leave(leaves.distance, leaf, blind, travel * shrink / total, inside)
        _leave(leaves.own, leaf, blind, power(own - top, rules) / total, inside)
        _leave(leaves.previous, leaf, blind, power(previous - top, rules) / total, inside)
        _leave(leaves.first, leaf, blind, power(first - top, rules) / total, inside)
