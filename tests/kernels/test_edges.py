"""Rows and scores at the edge of what numbers can hold, the same for every backend."""

import math
from dataclasses import replace

import pytest
import torch
from kernel_cases import Case, assert_within_budget, attended, backends, build, named, plain, truth

from attnviz_kernels import Emit, Mask, attend, check, pool, pull, push, received, tile, view_of

pytestmark = [pytest.mark.usefixtures("small_tiles"), pytest.mark.parametrize("backend", backends())]

STATISTICS = Emit(statistics=True)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def made(mask, rows=5, keys=9, **options):
    """A call of two sequences with two heads of size 16."""
    query, key, value = draw(2, 2, rows, 16), draw(2, 2, keys, 16, seed=1), draw(2, 2, keys, 16, seed=2)
    given = {"scale": None, "softcap": None, "bias": None, "sinks": None} | options
    return check(query, key, value, mask=mask, emit=STATISTICS, **given)


@pytest.mark.parametrize("size", [0.0, 1.0, 1e4])
def test_one_visible_key_has_entropy_exactly_zero(backend, size):
    query, key, value = size * draw(1, 2, 80, 16), draw(1, 2, 80, 16, seed=1), draw(1, 2, 80, 16, seed=2)
    result = attend(query, key, value, mask=Mask(window=(0, 0)), emit=STATISTICS, backend=backend)
    found = result.statistics
    assert torch.equal(found.entropy, torch.zeros(1, 2, 80))
    assert torch.equal(found.largest, torch.ones(1, 2, 80))
    assert torch.equal(found.own, torch.ones(1, 2, 80))
    assert torch.equal(found.distance, torch.zeros(1, 2, 80))
    assert torch.equal(found.largest_key, torch.arange(80).expand(1, 2, 80))
    assert torch.equal(result.output, value)


@pytest.mark.parametrize("option", [{}, {"sinks": torch.tensor([0.5, -2.0])}], ids=["plain", "sinks"])
def test_a_row_without_a_visible_key_is_left_out_of_everything(backend, option):
    padding = torch.ones(2, 9, dtype=torch.bool)
    padding[1, :3] = False
    call = made(Mask(causal=True, key_padding=padding), **option)  # queries 0 to 2 of sequence 1 see nothing
    result = attended(call, backend)
    view = view_of(call, result)
    blind = (1, slice(None), slice(0, 3))
    assert torch.equal(result.output[blind], torch.zeros(2, 3, 16))
    assert bool((result.logsumexp[blind] == -torch.inf).all())
    for name, tensor in vars(result.statistics).items():
        assert bool((tensor[blind] == -1).all() if name == "largest_key" else tensor[blind].isnan().all()), name
    assert torch.equal(result.weights[blind], torch.zeros(2, 3, 9))
    assert torch.equal(tile(view, backend=backend)[blind], torch.zeros(2, 3, 9))
    assert torch.equal(push(view, torch.ones(1, 1, 9, 1), backend=backend)[blind], torch.zeros(2, 3, 1))
    assert bool(received(view, backend=backend).isfinite().all())
    assert bool(pull(view, torch.ones(1, 1, 5, 2), backend=backend).isfinite().all())
    assert bool(pool(view, (5, 3), backend=backend)[blind].isnan().all())
    means = pool(view, (1, 1), backend=backend)[1, :, 0, 0]
    torch.testing.assert_close(means, result.weights[1, :, 3:].mean((-1, -2)))


def test_a_bias_of_minus_infinity_hides_the_key(backend):
    bias = torch.zeros(5, 9)
    bias[:, 4:] = -torch.inf
    bias[2] = -torch.inf
    hidden = attended(made(Mask(), bias=bias), backend)
    masked = attended(made(Mask(dense=bias == 0)), backend)
    for name, tensor in named(hidden).items():
        torch.testing.assert_close(tensor, named(masked)[name], equal_nan=True)


def _large_scores(rows, keys):
    """Whole scores of about 1e4 and -1e4 that float32 holds exactly: the sign of a query turns its row around."""
    query = torch.zeros(1, 1, rows, 16)
    query[0, 0, :, 0] = torch.where(torch.arange(rows) % 2 == 0, 100.0, -100.0)
    query[0, 0, :, 1] = 1.0
    key = torch.zeros(1, 1, keys, 16)
    key[0, 0, :, 0] = torch.where(torch.arange(keys) % 3 == 0, 100.0, -100.0)
    key[0, 0, :, 1] = torch.arange(keys) % 7
    return query, key, draw(1, 1, keys, 16)


@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True)], ids=["full", "causal"])
def test_scores_of_ten_thousand_lose_nothing(backend, mask):
    query, key, value = _large_scores(70, 150)
    call = check(query, key, value, 1.0, mask, None, None, None, STATISTICS)
    assert attended(call, "reference").logsumexp.abs().max() > 9e3
    assert_within_budget(named(attended(call, backend)), truth(call)[0], plain(call)[0])


def _whole(*shape, size, seed=0):
    """Whole numbers, so that equal keys have equal scores in whatever order products are summed."""
    return (draw(*shape, seed=seed) * 4).round() * size


@pytest.mark.parametrize("size", [0, 1, 1000])
def test_identical_keys_have_entropy_log_n(backend, size):
    query, key = _whole(1, 2, 300, 16, size=1), _whole(1, 2, 1, 16, size=size, seed=1).expand(1, 2, 300, 16)
    result = attend(query, key, draw(1, 2, 300, 16), mask=Mask(causal=True), emit=STATISTICS, backend=backend)
    expected = torch.arange(1.0, 301).log().expand(1, 2, 300)
    torch.testing.assert_close(result.statistics.entropy, expected, atol=1e-6, rtol=0)


def test_on_ties_the_lowest_key_is_the_largest(backend):
    query, key = _whole(1, 2, 40, 16, size=1), _whole(1, 2, 1, 16, size=1, seed=1).expand(1, 2, 200, 16)
    padding = torch.arange(200)[None] >= 70
    for mask, lowest in ((Mask(), 0), (Mask(key_padding=padding), 70)):
        found = attend(query, key, draw(1, 2, 200, 16), mask=mask, emit=STATISTICS, backend=backend).statistics
        assert torch.equal(found.largest_key, torch.full((1, 2, 40), lowest))


def test_first_is_the_first_real_key_of_each_sequence(backend):
    padding = torch.arange(150)[None] >= torch.tensor([[0], [90]])
    call = made(Mask(causal=True, key_padding=padding), rows=150, keys=150)
    result = attended(call, backend)
    first, weights = result.statistics.first, result.weights
    torch.testing.assert_close(first[0], weights[0, :, :, 0])
    torch.testing.assert_close(first[1, :, 90:], weights[1, :, 90:, 90])


@pytest.mark.parametrize("sink", [1e4, -1e4, -torch.inf])
def test_sinks_of_any_size(backend, sink):
    call = made(Mask(causal=True), sinks=torch.full((2,), sink))
    assert_within_budget(named(attended(call, backend)), truth(call)[0], plain(call)[0])
    if sink > 0:
        assert attended(call, backend).output.abs().max() == 0
    else:
        without = attended(replace(call, sinks=None), backend)
        torch.testing.assert_close(attended(call, backend).output, without.output)


def test_a_soft_cap_bounds_any_score(backend):
    query, key, value = 1e3 * draw(1, 1, 20, 16), 1e3 * draw(1, 1, 30, 16, seed=1), draw(1, 1, 30, 16, seed=2)
    result = attend(query, key, value, softcap=2.0, emit=Emit(weights=True), backend=backend)
    assert float(result.logsumexp.max()) <= 2 + math.log(30) + 1e-6
    assert float(result.weights.min()) >= math.exp(-4) / 30 - 1e-6


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_products_beyond_half_precision_are_summed_in_float32(backend, dtype):
    query, key = torch.full((1, 1, 3, 64), 200.0, dtype=dtype), torch.full((1, 1, 70, 64), 200.0, dtype=dtype)
    value = draw(1, 1, 70, 16).to(dtype)  # q.k = 2,560,000 is infinite in half precision
    result = attend(query, key, value, scale=1.0, emit=STATISTICS, backend=backend)
    torch.testing.assert_close(result.output[0, 0, 0], value.float().mean((0, 1, 2)).to(dtype))
    torch.testing.assert_close(result.statistics.entropy, torch.full((1, 1, 3), math.log(70)))


@pytest.mark.parametrize("shape", ["one", "one-query", "one-key", "more-queries"])
def test_odd_shapes_with_everything_on(backend, shape):
    call = build(Case(shape, "everything", "all", "contiguous"), torch.float32)
    assert_within_budget(named(attended(call, backend)), truth(call)[0], plain(call)[0])
