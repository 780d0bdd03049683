"""The compiled kernel against the definition in float64, on every instruction set that this processor has."""

from __future__ import annotations

import dataclasses
import math
import os
import signal
import threading
import time

import pytest
import torch
from kernel_cases import in_double, named

from attnviz_kernels import Call, Emit, Mask, Statistics, View, attend, check, native, reference

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason=str(native.unavailable()))

EVERYTHING = Emit(statistics=True, pooled=(5, 7), weights=True)
STATISTICS = [field.name for field in dataclasses.fields(Statistics)]


@pytest.fixture(autouse=True)
def _three_threads_and_the_same_numbers(monkeypatch):
    """Calls are spread over threads, whatever torch itself uses in these tests."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    torch.manual_seed(0)


@pytest.fixture(params=native.isas())
def isa(request):
    with native.force_isa(request.param):
        yield request.param


def inputs(batch=1, heads=2, groups=2, rows=65, cols=65, size=16, value_size=None, dtype=torch.float32, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, rows, size), (batch, groups, cols, size), (batch, groups, cols, value_size or size)
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def error(got: torch.Tensor, want: torch.Tensor) -> float:
    """The largest absolute difference; blind places must agree exactly."""
    got = got.double()
    odd = ~want.isfinite()
    assert torch.equal(got[odd].nan_to_num(7.0), want[odd].nan_to_num(7.0))
    assert got[~odd].isfinite().all()
    return float((got - want)[~odd].abs().max()) if (~odd).any() else 0.0


def compare(call: Call, emit: Emit = EVERYTHING) -> None:
    """Errors at most twice those of the dense torch computation in the same dtype (and a few roundings of 1)."""
    got, plain = named(native.attend(call, emit)), named(reference.attend(call, emit))
    want = named(reference.attend(in_double(call), emit))
    assert got.keys() == want.keys()
    for name, right in want.items():
        assert got[name].shape == right.shape, name
        assert got[name].dtype == plain[name].dtype, name
        if name == "largest_key":
            seen = right >= 0
            assert torch.equal(got[name] >= 0, seen)
            picked = want["weights"].gather(-1, got[name].clamp(min=0)[..., None])[..., 0]
            assert (picked - want["largest"])[seen].abs().max() <= 1e-6 if seen.any() else True
            continue
        size = max(1.0, float(right.nan_to_num(0, 0, 0).abs().max()))
        floor = 4 * torch.finfo(torch.float32).eps * size
        assert error(got[name], right) <= 2 * error(plain[name], right) + floor, name


def call_of(query, key, value, mask=Mask(), emit=EVERYTHING, scale=None, softcap=None, bias=None, sinks=None) -> Call:
    return check(query, key, value, scale, mask, softcap, bias, sinks, emit)


@pytest.mark.parametrize("rows", [1, 3, 63, 65, 127])
@pytest.mark.parametrize("cols", [1, 3, 65, 127, 257])
def test_odd_lengths(isa, rows, cols):
    compare(call_of(*inputs(rows=rows, cols=cols)))
    compare(call_of(*inputs(rows=rows, cols=cols), mask=Mask(causal=True, offset=max(0, cols - rows))))


@pytest.mark.parametrize(("size", "value_size"), [(16, 16), (17, 5), (40, 40), (64, 128), (96, 80), (256, 256), (1, 1)])
def test_head_sizes(isa, size, value_size):
    compare(call_of(*inputs(size=size, value_size=value_size, rows=70, cols=130)))


@pytest.mark.parametrize(("heads", "groups"), [(6, 6), (6, 3), (6, 2), (6, 1)])
@pytest.mark.parametrize("rows", [1, 2, 30, 63, 64, 130])
def test_grouped_queries(isa, heads, groups, rows):
    mask = Mask(causal=True, offset=7)
    compare(call_of(*inputs(batch=2, heads=heads, groups=groups, rows=rows, cols=rows + 7), mask=mask))


def dense_masks(batch, heads, rows, cols):
    generator = torch.Generator().manual_seed(5)
    seen = torch.rand(batch, 1, rows, cols, generator=generator) > 0.4
    per_head = torch.rand(batch, heads, rows, cols, generator=generator) > 0.4
    blocks = torch.zeros(rows, cols, dtype=torch.bool)
    blocks[: rows // 2, : cols // 2] = True
    lowest = torch.finfo(torch.float32).min
    return {
        "bool": seen,
        "bool per head": per_head,
        "bool over keys": seen[:, :, :1],
        "bool over queries": seen[..., :1],
        "bool 2-D": seen[0, 0],
        "whole tiles": blocks,
        "all visible": torch.ones(1, 1, 1, 1, dtype=torch.bool),
        "all hidden": torch.zeros(rows, cols, dtype=torch.bool),
        "lowest number": torch.zeros(rows, cols).masked_fill(~seen[0, 0], lowest),
        "-inf": torch.randn(batch, 1, rows, cols, generator=generator).masked_fill(~seen, -torch.inf),
        "float64": torch.randn(rows, cols, generator=generator).double().masked_fill(~seen[0, 0], -1.7e308),
        "float16": torch.randn(rows, cols, generator=generator).half().masked_fill(~seen[0, 0], -65504),
        "bfloat16": torch.zeros(rows, cols).bfloat16().masked_fill(~seen[0, 0], torch.finfo(torch.bfloat16).min),
        "transposed": seen.transpose(2, 3).contiguous().transpose(2, 3),
    }


@pytest.mark.parametrize("name", dense_masks(1, 1, 2, 2))
@pytest.mark.parametrize("rows", [5, 130])
def test_dense_masks(isa, name, rows):
    batch, heads, cols = 2, 4, 150
    mask = Mask(dense=dense_masks(batch, heads, rows, cols)[name])
    compare(call_of(*inputs(batch=batch, heads=heads, groups=2, rows=rows, cols=cols), mask=mask))


def structures(batch, rows, cols):
    generator = torch.Generator().manual_seed(6)
    padding = torch.rand(batch, cols, generator=generator) > 0.3
    left_padding = torch.arange(cols)[None] >= torch.tensor([0, cols // 2])[:batch, None]
    packed = (torch.arange(cols) * 5 // cols)[None].expand(batch, cols) * 10**12
    scattered = torch.randint(-3, 3, (batch, cols), generator=generator)
    offset = max(0, cols - rows)
    return {
        "causal": Mask(causal=True),
        "offset": Mask(causal=True, offset=offset),
        "offset beyond": Mask(causal=True, offset=cols + 70),
        "window": Mask(window=(20, 11)),
        "left window": Mask(causal=True, window=(9, None), offset=offset),
        "right window": Mask(window=(None, 0)),
        "own only": Mask(window=(0, 0)),
        "huge window": Mask(window=(2**60, 2**60)),
        "out of window": Mask(window=(3, 3), offset=cols),
        "chunk": Mask(causal=True, chunk=17),
        "chunk both ways": Mask(chunk=64, offset=offset),
        "padding": Mask(key_padding=padding),
        "causal padding": Mask(causal=True, key_padding=left_padding, offset=offset),
        "no real key": Mask(key_padding=torch.zeros(batch, cols, dtype=torch.bool)),
        "packed": Mask(causal=True, segments=(packed[:, :rows], packed)),
        "scattered": Mask(segments=(scattered[:, :rows], scattered)),
        "all": Mask(
            causal=True, offset=2, window=(50, 3), chunk=64, key_padding=padding, segments=(packed[:, :rows], packed),
            dense=torch.rand(rows, cols, generator=generator) > 0.1,
        ),
    }  # fmt: skip


@pytest.mark.parametrize("name", structures(2, 2, 2))
@pytest.mark.parametrize("rows", [5, 150])
def test_structures(isa, name, rows):
    compare(call_of(*inputs(batch=2, heads=4, groups=2, rows=rows, cols=150), mask=structures(2, rows, 150)[name]))


@pytest.mark.parametrize("rows", [7, 130])
@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True)], ids=["full", "causal"])
def test_softcap_sinks_and_bias(isa, rows, mask):
    query, key, value = inputs(batch=2, heads=4, groups=2, rows=rows, cols=130)
    slopes = torch.tensor([0.5, 0.25, 0.1, 0.01])
    alibi = -slopes[:, None, None] * torch.arange(130.0)
    for bias in (alibi, torch.randn(2, 1, rows, 130), torch.randn(4, rows, 1).bfloat16(), torch.randn(1).double()):
        compare(call_of(query, key, value, mask=mask, bias=bias))
    for softcap in (0.5, 2.0, 50.0):
        compare(call_of(4 * query, key, value, mask=mask, softcap=softcap))
    for sinks in (torch.randn(4), torch.tensor([-torch.inf, 80.0, -80.0, 0.0]), torch.randn(4).bfloat16()):
        compare(call_of(query, key, value, mask=mask, sinks=sinks))
    compare(call_of(query, key, value, mask=mask, sinks=torch.randn(4), bias=alibi, softcap=3.0, scale=-0.7))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("size", [24, 64])
def test_half_types(isa, dtype, size):
    tensors = inputs(heads=4, rows=130, cols=200, size=size, dtype=dtype)
    compare(call_of(*tensors, mask=Mask(causal=True, offset=70)))


def test_every_half_number_is_read_and_written(isa):
    bits = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16)
    for dtype in (torch.float16, torch.bfloat16):
        numbers = bits.view(dtype)
        numbers = numbers[numbers.isfinite()].reshape(1, 1, 1, -1)
        tiny = torch.ones(1, 1, 1, 1, dtype=dtype)
        got = native.attend(call_of(tiny, tiny, numbers, emit=Emit()), Emit()).output
        assert torch.equal(got, numbers)
        # two keys with weights 1/2: the mean of neighbours, rounded to even
        numbers = numbers[numbers.abs() < 1e38].reshape(1, 1, 1, -1)
        pair = torch.cat([numbers, numbers.roll(1, -1)], dim=2)
        got = native.attend(call_of(tiny, tiny.expand(1, 1, 2, 1), pair, emit=Emit()), Emit()).output
        assert torch.equal(got, (pair.float() / 2).sum(2, keepdim=True).to(dtype))


def test_strided_and_expanded_inputs(isa):
    query, key, value = inputs(batch=2, heads=4, groups=4, rows=70, cols=90, size=24)
    shuffled = query.transpose(1, 2).contiguous().transpose(1, 2)
    last = key.transpose(2, 3).contiguous().transpose(2, 3)
    compare(call_of(shuffled, last, value))
    one = key[:1, :1].expand(2, 4, 90, 24)
    compare(call_of(query, one, value[:, :, :1].expand(2, 4, 90, 24)))
    every_other = torch.randn(2, 4, 90, 48)[..., ::2]
    compare(call_of(query, every_other, every_other))


def test_emit_chooses(isa):
    call = call_of(*inputs(batch=2, heads=4, groups=2, rows=130, cols=140), mask=Mask(causal=True, offset=10))
    whole = native.attend(call, Emit(statistics=True, weights=True))
    bare = native.attend(call, Emit())
    assert (bare.statistics, bare.pooled, bare.weights) == (None, None, None)
    assert torch.equal(bare.output, whole.output)
    some = native.attend(call, Emit(weights=True, heads=(3, 1, 3), rows=range(60, 71))).weights
    assert torch.equal(some, whole.weights[:, [3, 1, 3], 60:71])
    assert native.attend(call, Emit(weights=True, heads=())).weights.shape == (2, 0, 130, 140)
    alone = native.attend(call, Emit(statistics=True)).statistics
    for name in STATISTICS:
        assert torch.equal(getattr(alone, name), getattr(whole.statistics, name)), name


@pytest.mark.parametrize("grid", [(1, 1), (64, 64), (130, 140), (1000, 1000), (3, 139), (129, 2)])
def test_pooled_grids(isa, grid):
    call = call_of(*inputs(batch=2, heads=4, groups=2, rows=130, cols=140), mask=Mask(causal=True, offset=10))
    compare(call, Emit(pooled=grid))
    few = call_of(*inputs(batch=2, heads=4, groups=1, rows=9, cols=140), mask=Mask(window=(3, 60)))
    compare(few, Emit(pooled=grid))


def test_few_queries_split_their_keys(isa, monkeypatch):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 4)
    emit = Emit(statistics=True, weights=True)
    for rows, mask in ((1, Mask(causal=True, offset=4999)), (3, Mask(window=(4000, 600), offset=4000)), (2, Mask())):
        call = call_of(*inputs(heads=4, groups=2, rows=rows, cols=5000), mask=mask, sinks=torch.randn(4))
        compare(call, emit)


def test_one_visible_key_has_no_entropy(isa):
    query, key, value = inputs(rows=130, cols=130)
    call = call_of(100 * query, key, value, mask=Mask(window=(0, 0)))
    found = native.attend(call, Emit(statistics=True))
    assert torch.equal(found.statistics.entropy, torch.zeros(1, 2, 130))
    assert torch.equal(found.statistics.own, torch.ones(1, 2, 130))
    assert torch.equal(found.output, value)


def test_far_apart_scores(isa):
    query = torch.full((1, 1, 3, 1), 100.0)
    key = torch.tensor([-100.0, 100.0, 100.0, -100.0]).reshape(1, 1, 4, 1)
    found = native.attend(call_of(query, key, key, scale=1.0), EVERYTHING)
    assert torch.equal(found.weights, torch.tensor([0, 0.5, 0.5, 0]).expand(1, 1, 3, 4))
    assert torch.equal(found.logsumexp, torch.full((1, 1, 3), 1e4 + math.log(2)))
    assert torch.allclose(found.statistics.entropy, torch.tensor(math.log(2)), rtol=0, atol=1e-7)
    assert torch.equal(found.statistics.largest_key, torch.ones(1, 1, 3, dtype=torch.int64))


@pytest.mark.parametrize("cols", [1, 64, 1000, 4096])
def test_equal_keys_give_the_entropy_of_a_fair_draw(isa, cols):
    query, key, value = inputs(rows=2, cols=cols)
    call = call_of(query, key[:, :, :1].expand_as(key), value)
    found = native.attend(call, Emit(statistics=True)).statistics
    assert (found.entropy - math.log(cols)).abs().max() <= 1e-6
    assert torch.equal(found.largest_key, torch.zeros(1, 2, 2, dtype=torch.int64))


def test_rising_scores_keep_their_sums(isa):
    """Each tile of keys beats the one before, so every running sum is rescaled at every tile."""
    key = torch.linspace(0, 40, 400).reshape(1, 1, 400, 1)
    compare(call_of(torch.ones(1, 1, 5, 1), key, key, scale=1.0))


def test_nan_spreads_and_hidden_nan_does_not(isa):
    query, key, value = inputs(rows=70, cols=70)
    key[0, 0, 40, 3] = torch.nan
    found = native.attend(call_of(query, key, value, mask=Mask(causal=True)), Emit())
    assert found.output[0, 0, :40].isfinite().all()
    assert found.output[0, 0, 40:].isnan().all()


def test_results_do_not_depend_on_threads(isa, monkeypatch):
    call = call_of(*inputs(heads=6, rows=300, cols=300, size=64), mask=Mask(causal=True))
    found = []
    for threads in (1, 3, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(named(native.attend(call, EVERYTHING)))
    for name in found[0]:
        assert torch.equal(found[0][name], found[1][name]), name
        assert torch.equal(found[0][name], found[2][name]), name


def test_calls_from_many_threads_do_not_mix():
    calls = [call_of(*inputs(heads=4, rows=200, cols=200, seed=seed), emit=Emit()) for seed in range(6)]
    want = [native.attend(call, Emit()).output for call in calls]
    got = [None] * 6

    def work(i):
        for _ in range(5):
            got[i] = native.attend(calls[i], Emit()).output

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_has_threads_of_its_own():
    # small enough that torch itself, whose threads do not survive a fork, works alone
    call = call_of(*inputs(heads=4, rows=100, cols=600), emit=Emit())
    want = native.attend(call, Emit()).output
    child = os.fork()
    if child == 0:
        os._exit(0 if torch.equal(native.attend(call, Emit()).output, want) else 1)
    assert os.waitpid(child, 0)[1] == 0


def test_ctrl_c_ends_a_long_call(interruptible):
    call = call_of(*inputs(heads=64, rows=8192, cols=8192, size=64), emit=Emit())
    start = time.perf_counter()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with native.force_isa("portable"), pytest.raises(KeyboardInterrupt):
        native.attend(call, Emit())
    assert time.perf_counter() - start < 30  # the whole call takes minutes
    timer.join()


def test_refusals():
    query, key, value = inputs()
    assert "float64" in native.refuses(call_of(query.double(), key.double(), value.double()))
    assert native.refuses(call_of(query, key, value)) is None
    far = call_of(query, key, value, mask=Mask(causal=True, offset=2**24))
    assert "16777216" in native.refuses(far)


def test_it_is_the_first_choice_for_float32():
    query, key, value = inputs()
    assert torch.equal(attend(query, key, value).output, native.attend(call_of(query, key, value), Emit()).output)
    assert isinstance(View(query, key, torch.zeros(1, 2, 65), 1.0), View)
