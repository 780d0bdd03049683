"""Functions of a finished call by the compiled kernel: every instruction set, long maps, windows, grids and vectors."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch
from kernel_cases import CASES, DTYPES, assert_within_budget, build, of_view, plain, truth

from attnviz_kernels import Emit, Mask, View, check, native, pool, pull, push, received, reference, tile, view_of

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason=str(native.unavailable()))

WHOLE = slice(None)
MAPS = ("tile", "mean", "max", "received", "push", "pull")


@pytest.fixture(params=native.isas())
def isa(request):
    with native.force_isa(request.param):
        yield request.param


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def a_view(batch=1, heads=2, groups=1, rows=70, cols=90, size=16, mask=Mask(), **options) -> View:
    """A view with the logsumexp that the definition gives it."""
    query, key = draw(batch, heads, rows, size), draw(batch, groups, cols, size, seed=1)
    options = {"scale": None, "softcap": None, "bias": None, "sinks": None} | options
    call = check(query, key, key, mask=mask, emit=Emit(), **options)
    return view_of(call, reference.attend(call, Emit()))


def weights(view: View) -> torch.Tensor:
    """The whole map in float64, from the view's own logsumexp."""
    doubled = {name: getattr(view, name) for name in ("query", "key", "logsumexp", "bias", "sinks")}
    doubled = {name: None if tensor is None else tensor.double() for name, tensor in doubled.items()}
    return reference.tile(replace(view, **doubled), WHOLE, WHOLE)


def assert_close(found, expected, terms=1):
    """Sums of `terms` weights or products, each right to a few units in the last place of float32."""
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), expected, rtol=2e-6, atol=1e-6 * terms**0.5, equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_every_instruction_set_keeps_the_budget(isa, case, dtype):
    call = build(case, DTYPES[dtype])
    (_, true), (_, honest) = truth(call), plain(call)
    found = of_view(view_of(call, native.attend(call, Emit())), "native")
    assert_within_budget({name: found[name] for name in MAPS}, true, honest)


PACKED = torch.arange(1500)[None] // 90
LONG = {
    "full": Mask(),
    "causal": Mask(causal=True, offset=900),
    "window": Mask(window=(200, 150), offset=300),
    "packed": Mask(causal=True, offset=900, segments=(PACKED[:, 900:], PACKED)),
    "padding": Mask(key_padding=(torch.arange(1500) > 700)[None]),
    "dense": Mask(dense=(torch.arange(1500) // 100 % 2 == 0)[None] & (torch.arange(600) % 7 > 0)[:, None]),
}  # fmt: skip


@pytest.mark.parametrize("mask", LONG)
def test_maps_longer_than_any_range_of_keys_that_is_held_at_once(isa, mask):
    view = a_view(rows=600, cols=1500, mask=LONG[mask], sinks=draw(2))
    true = weights(view)
    rows, cols = slice(77, 555), slice(13, 1499)
    assert_close(tile(view, rows, cols, backend="native"), true[..., rows, cols])
    assert_close(received(view, backend="native"), true.sum(-2), terms=600)
    over_keys, over_rows = draw(1, 1, 1500, 5), draw(1, 2, 600, 70)
    assert_close(push(view, over_keys, backend="native"), true @ over_keys.double(), terms=16)
    assert_close(pull(view, over_rows, backend="native"), true.transpose(-1, -2) @ over_rows.double(), terms=16)
    seeing = view.logsumexp[..., rows] > -torch.inf
    for reduce in ("mean", "max"):
        for grid in ((7, 5), (1, 1), (478, 3), (2, 1486)):
            found = pool(view, grid, rows, cols, reduce, backend="native")
            assert_close(found, reference.pool_of(true[..., rows, cols], seeing, grid, reduce))


@pytest.mark.parametrize("grid", [(1, 1), (1, 140), (130, 1), (64, 64), (130, 140), (1000, 1000), (3, 139), (129, 2)])
@pytest.mark.parametrize("reduce", ["mean", "max"])
def test_grids(isa, grid, reduce):
    mask = Mask(window=(30, 5), offset=20, key_padding=torch.arange(140)[None] > torch.tensor([[40], [-1]]))
    view = a_view(batch=2, heads=4, groups=2, rows=130, cols=140, mask=mask)
    seeing = view.logsumexp > -torch.inf
    assert not seeing.all()
    assert_close(
        pool(view, grid, reduce=reduce, backend="native"), reference.pool_of(weights(view), seeing, grid, reduce)
    )


@pytest.mark.parametrize("rows", [slice(0, 1), slice(69, 70), slice(3, 68), WHOLE], ids=str)
@pytest.mark.parametrize("cols", [slice(0, 1), slice(89, 90), slice(5, 81), WHOLE], ids=str)
def test_windows_of_the_map(isa, rows, cols):
    view = a_view(batch=2, heads=4, groups=2, mask=Mask(causal=True, offset=10), softcap=2.0, bias=draw(4, 70, 90))
    assert_close(tile(view, rows, cols, backend="native"), weights(view)[..., rows, cols])


@pytest.mark.parametrize("width", [1, 3, 64, 65, 130])
def test_vectors_of_any_width_and_layout(isa, width):
    view = a_view(batch=2, heads=4, groups=2, mask=Mask(causal=True, offset=10))
    true = weights(view)
    for batch, heads in ((2, 4), (1, 4), (2, 1), (1, 1)):
        over_keys, over_rows = draw(batch, heads, width, 90).mT, draw(batch, heads, width, 70).mT
        assert_close(push(view, over_keys, backend="native"), true @ over_keys.double(), terms=4)
        assert_close(pull(view, over_rows, backend="native"), true.mT @ over_rows.double(), terms=16)
    for dtype in (torch.float64, torch.bfloat16, torch.int64):
        numbers = (3 * draw(1, 1, 90, width)).to(dtype)
        assert_close(push(view, numbers, backend="native"), true @ numbers.double(), terms=16)


def test_statistics_are_those_of_the_call(isa):
    call = build(CASES[5], torch.float32)
    found = native.attend(call, Emit(statistics=True))
    again = native.statistics(view_of(call, found))
    for name, tensor in vars(found.statistics).items():
        torch.testing.assert_close(getattr(again, name), tensor, rtol=0, atol=0, equal_nan=True)


def test_parts_of_a_view_are_parts_of_its_map(isa):
    view = a_view(batch=2, heads=4, groups=2, rows=130, cols=140, mask=Mask(causal=True, window=(25, 0), offset=10))
    whole = tile(view, backend="native")
    assert torch.equal(tile(view.select(1, 3), backend="native"), whole[1:, 3:])
    cropped = view.crop(slice(60, 130), slice(45, 140))
    assert_close(tile(cropped, backend="native"), whole[:, :, 60:, 45:].double())


def test_hidden_nan_does_not_spread(isa):
    view = a_view(rows=200, cols=200, mask=Mask(causal=True))
    view.key[0, 0, 40] = torch.nan
    assert tile(view, slice(0, 40), backend="native").isfinite().all()
    assert tile(view, slice(40, 200), slice(40, 41), backend="native").isnan().all()
    assert pool(view, (200, 200), slice(0, 40), reduce="max", backend="native").isfinite().all()


def test_results_do_not_depend_on_threads(isa, monkeypatch):
    view = a_view(heads=6, groups=3, rows=1100, cols=1100, size=64, mask=Mask(causal=True))
    found = []
    for threads in (1, 3, 16):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        found.append(of_view(view, "native"))
    for name, tensor in found[0].items():
        torch.testing.assert_close(found[1][name], tensor, rtol=0, atol=0)
        torch.testing.assert_close(found[2][name], tensor, rtol=0, atol=0)


def test_ctrl_c_ends_a_long_pool(interruptible):
    query = torch.zeros(1, 1, 65536, 64)
    view = View(query, query, torch.zeros(1, 1, 65536), 1.0)
    start = time.perf_counter()
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with native.force_isa("portable"), pytest.raises(KeyboardInterrupt):
        pool(view, (8, 8), backend="native")
    assert time.perf_counter() - start < 30  # the whole map takes minutes
    timer.join()


def test_refusals():
    view = a_view()
    assert native.refuses(view) is None
    doubled = replace(view, query=view.query.double(), key=view.key.double())
    assert native.refuses(doubled) == "it computes in float32, the tensors are float64"
