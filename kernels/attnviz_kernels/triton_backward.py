"""Gradients in tiles: weights are recomputed from logsumexp, so nothing of size M x N is kept (Dao 2023, section 3)."""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
# ruff: noqa: N803, N806  (what is fixed when a kernel is compiled has a name in capitals)

from __future__ import annotations

import triton
import triton.language as tl

from .triton_masks import (
    add_dot,
    dot,
    head_index,
    head_of,
    key_phases,
    levels,
    load_tile,
    power,
    row_phases,
    scored,
    store_tile,
    tanh,
)


@triton.jit
def delta_kernel(output, gradients, delta, heads, rows, T: tl.constexpr):
    """delta[i] = sum over e of output[i, e] gradient[i, e] = sum over j of weight(i, j) d loss/d weight(i, j)."""
    tiles = tl.cdiv(rows, T.BLOCK_M)
    program = tl.program_id(0)
    flat = (program // tiles).to(tl.int64)
    i = program % tiles * T.BLOCK_M + tl.arange(0, T.BLOCK_M)
    left = load_tile(head_of(output, flat // heads, flat % heads), i, rows, T.E, T.BLOCK_E, True)
    right = load_tile(head_of(gradients, flat // heads, flat % heads), i, rows, T.E, T.BLOCK_E, True)
    total = tl.sum(left.to(tl.float32) * right.to(tl.float32), 1)
    tl.store(delta + flat * rows + i, total, mask=i < rows)


@triton.jit
def _through_cap(slope, product, rules):
    # d loss/d (scale q.k): the cap's own slope is 1 - tanh^2
    if rules.cap is not None:
        bent = tanh(product * rules.inner)
        slope = slope * (1.0 - bent * bent)
    return slope


@triton.jit
def key_value_kernel(
    queries,
    keys,
    values,
    gradients,
    logsumexp,
    delta,
    key_gradients,
    value_gradients,
    rules,
    heads,
    groups,
    T: tl.constexpr,
):
    """d loss/d value[j] = sum over i of weight(i, j) gradient[i], and likewise of the key.

    d loss/d key[j] = scale * sum over i of d loss/d score(i, j) query[i]
    d loss/d score(i, j) = weight(i, j) (gradient[i] . value[j] - delta[i])

    One program per tile of keys of one key head: it runs over the query heads that share it, so nothing is added
    by two programs and grouped keys are never repeated.
    """
    tiles = tl.cdiv(rules.cols, T.BLOCK_N)
    program = tl.program_id(0)
    batch, group = (program // tiles).to(tl.int64) // groups, (program // tiles).to(tl.int64) % groups
    start = program % tiles * T.BLOCK_N
    j = start + tl.arange(0, T.BLOCK_N)
    key = load_tile(head_of(keys, batch, group), j, rules.cols, T.D, T.BLOCK_D, True)
    value = load_tile(head_of(values, batch, group), j, rules.cols, T.E, T.BLOCK_E, True)
    key_gradient = tl.zeros([T.BLOCK_N, T.BLOCK_D], tl.float32)
    value_gradient = tl.zeros([T.BLOCK_N, T.BLOCK_E], tl.float32)
    a, _, _, d = row_phases(start, rules, T.BLOCK_N, T.BLOCK_M)
    steps = tl.cdiv(d - a, T.BLOCK_M)
    members = heads // groups
    BAND: tl.constexpr = (rules.left is not None) or (rules.right is not None) or (rules.chunk is not None)
    # one loop over heads and tiles, with the interval test in all of it: more loops would need more registers than
    # there are
    for step in tl.range(0, members * steps):
        head = group * members + step // steps
        flat = batch * heads + head
        i = a + step % steps * T.BLOCK_M + tl.arange(0, T.BLOCK_M)
        query = load_tile(head_of(queries, batch, head), i, rules.rows, T.D, T.BLOCK_D, True)
        gradient = load_tile(head_of(gradients, batch, head), i, rules.rows, T.E, T.BLOCK_E, True)
        product = dot(key, tl.trans(query))
        score = scored(product, i[None, :], j[:, None], batch, head, rules, BAND)
        weight = power(score - levels(logsumexp, flat, i, rules)[None, :], rules)
        value_gradient = add_dot(value_gradient, weight, gradient)
        weight_gradient = dot(value, tl.trans(gradient))
        shift = tl.load(delta + flat * rules.rows + i, mask=i < rules.rows, other=0.0)
        slope = _through_cap(weight * (weight_gradient - shift[None, :]), product, rules)
        key_gradient = add_dot(key_gradient, slope, query)
    store_tile(head_of(key_gradients, batch, group), j, rules.cols, key_gradient * rules.scale, T.D, T.BLOCK_D)
    store_tile(head_of(value_gradients, batch, group), j, rules.cols, value_gradient, T.E, T.BLOCK_E)


@triton.jit
def _sweep_keys(query_gradient, fixed, rules, begin, end, BOUNDARY: tl.constexpr, T: tl.constexpr):
    query, gradient, keys, values, level, shift, bias_gradient, i, batch, head = fixed
    for start in tl.range(begin, end, T.BLOCK_N):
        start = tl.multiple_of(start, T.BLOCK_N)
        j = start + tl.arange(0, T.BLOCK_N)
        key = load_tile(keys, j, rules.cols, T.D, T.BLOCK_D, BOUNDARY)
        value = load_tile(values, j, rules.cols, T.E, T.BLOCK_E, BOUNDARY)
        product = dot(query, tl.trans(key))
        score = scored(product, i[:, None], j[None, :], batch, head, rules, BOUNDARY)
        weight = power(score - level[:, None], rules)
        weight_gradient = dot(gradient, tl.trans(value))
        slope = weight * (weight_gradient - shift[:, None])
        if bias_gradient is not None:
            # atomic, because a bias that is broadcast collects from many queries or heads
            where = bias_gradient.data + i.to(tl.int64)[:, None] * bias_gradient.strides[2]
            where += j.to(tl.int64)[None, :] * bias_gradient.strides[3]
            tl.atomic_add(where, slope, mask=(i < rules.rows)[:, None] & (j < rules.cols)[None, :])
        slope = _through_cap(slope, product, rules)
        query_gradient = add_dot(query_gradient, slope, key)
    return query_gradient


@triton.jit
def query_kernel(
    queries,
    keys,
    values,
    gradients,
    logsumexp,
    delta,
    query_gradients,
    bias_gradients,
    rules,
    heads,
    groups,
    T: tl.constexpr,
):
    """d loss/d query[i] = scale * sum over j of d loss/d score(i, j) key[j], and d loss/d bias = d loss/d score.

    One program per tile of queries of one head.
    """
    tiles = tl.cdiv(rules.rows, T.BLOCK_M)
    program = tl.program_id(0)
    # the last tiles first: under a causal mask they have the most to do
    start = (tiles - 1 - program % tiles) * T.BLOCK_M
    flat = (program // tiles).to(tl.int64)
    batch, head, group = head_index(flat, heads, groups)
    i = start + tl.arange(0, T.BLOCK_M)
    query = load_tile(head_of(queries, batch, head), i, rules.rows, T.D, T.BLOCK_D, True)
    gradient = load_tile(head_of(gradients, batch, head), i, rules.rows, T.E, T.BLOCK_E, True)
    keys, values = head_of(keys, batch, group), head_of(values, batch, group)
    if bias_gradients is not None:
        bias_gradients = head_of(bias_gradients, batch, head)
    level = levels(logsumexp, flat, i, rules)
    shift = tl.load(delta + flat * rules.rows + i, mask=i < rules.rows, other=0.0)
    total = tl.zeros([T.BLOCK_M, T.BLOCK_D], tl.float32)
    a, b, c, d = key_phases(start, rules, T.BLOCK_M, T.BLOCK_N)
    fixed = (query, gradient, keys, values, level, shift, bias_gradients, i, batch, head)
    if rules.left is not None or rules.chunk is not None:
        total = _sweep_keys(total, fixed, rules, a, b, True, T)
    total = _sweep_keys(total, fixed, rules, b, c, False, T)
    total = _sweep_keys(total, fixed, rules, c, d, True, T)
    store_tile(head_of(query_gradients, batch, head), i, rules.rows, total * rules.scale, T.D, T.BLOCK_D)
