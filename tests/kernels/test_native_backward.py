"""Gradients by the compiled kernel: every instruction set, long calls, wide heads, any layout; bias is refused."""

from __future__ import annotations

import os
import signal
import threading
import time
from dataclasses import replace

import pytest
import torch
from kernel_cases import (
    CASES,
    DTYPES,
    assert_gradients_within_budget,
    build,
    differentiated,
    in_double,
    output_of,
    plain_output,
)

from attnviz_kernels import BackendError, Call, Emit, Mask, attend, check, choose, native

pytestmark = pytest.mark.skipif(native.unavailable() is not None, reason=str(native.unavailable()))


@pytest.fixture(params=native.isas())
def isa(request):
    with native.force_isa(request.param):
        yield request.param


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def a_call(batch=1, heads=2, groups=1, rows=70, cols=90, size=16, value_size=None, mask=Mask(), **options) -> Call:
    query, key = draw(batch, heads, rows, size), draw(batch, groups, cols, size, seed=1)
    value = draw(batch, groups, cols, value_size or size, seed=2)
    options = {"scale": None, "softcap": None, "bias": None, "sinks": None} | options
    return check(query, key, value, mask=mask, emit=Emit(), **options)


def gradients(call: Call) -> dict[str, torch.Tensor]:
    return differentiated(call, lambda same: output_of(same, "native"), "native")


def check_budget(call: Call) -> None:
    true = differentiated(in_double(call), lambda exact: output_of(exact, "reference"))
    assert_gradients_within_budget(call, gradients(call), true, differentiated(call, plain_output))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES[::5], ids=str)
def test_every_instruction_set_keeps_the_budget(isa, case, dtype):
    check_budget(build(case, DTYPES[dtype]))


@pytest.mark.parametrize("threads", [1, 4])
@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True, offset=500), Mask(window=(90, 40), offset=300)], ids=str)
def test_more_keys_than_are_held_at_once(isa, monkeypatch, mask, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    check_budget(a_call(heads=4, groups=2, rows=700, cols=1300, mask=mask, softcap=3.0, sinks=draw(4)))


@pytest.mark.parametrize(("size", "value_size"), [(1, 1), (5, 17), (64, 65), (65, 64), (130, 40), (40, 256)])
def test_head_sizes(isa, size, value_size):
    check_budget(a_call(size=size, value_size=value_size, mask=Mask(causal=True, offset=20)))


@pytest.mark.parametrize(("heads", "groups"), [(6, 6), (6, 3), (6, 1)])
@pytest.mark.parametrize("rows", [1, 63, 64, 129])
def test_grouped_queries(isa, heads, groups, rows):
    check_budget(
        a_call(batch=2, heads=heads, groups=groups, rows=rows, cols=rows + 7, mask=Mask(causal=True, offset=7))
    )


def test_any_layout(isa):
    call = a_call(batch=2, heads=4, groups=4)
    want = gradients(call)
    last = {name: getattr(call, name).mT.contiguous().mT for name in ("query", "key", "value")}
    heads_last = {name: getattr(call, name).transpose(1, 2).contiguous().transpose(1, 2) for name in last}
    for layout in (last, heads_last):
        found = gradients(replace(call, **layout))
        for name, tensor in want.items():
            torch.testing.assert_close(found[name], tensor, rtol=0, atol=0)
            assert found[name].stride() == layout[name].stride()
    check_budget(replace(call, key=call.key[:1, :1].expand(2, 4, 90, 16)))


def test_gradients_of_half_types_lie_in_their_type(isa):
    for dtype in (torch.bfloat16, torch.float16):
        call = a_call(mask=Mask(causal=True, offset=20))
        call = replace(call, query=call.query.to(dtype), key=call.key.to(dtype), value=call.value.to(dtype))
        assert {tensor.dtype for tensor in gradients(call).values()} == {dtype}


def test_an_output_gradient_that_is_one_number(isa):
    call = a_call(mask=Mask(causal=True, offset=20))
    tensors = [tensor.requires_grad_() for tensor in (call.query, call.key, call.value)]
    found = torch.autograd.grad(output_of(call, "native").sum(), tensors)
    exact = torch.autograd.grad(output_of(in_double(call), "reference").sum(), tensors)
    for tensor, expected in zip(found, exact, strict=True):
        torch.testing.assert_close(tensor, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("wanted", ["query", "key", "value", "sinks"])
def test_a_gradient_alone_is_the_same(isa, wanted):
    call = a_call(heads=4, groups=2, mask=Mask(causal=True, offset=20), softcap=2.0, sinks=draw(4))
    attended = native.attend(call, Emit())
    given = (call, attended.output, attended.logsumexp, draw(1, 4, 70, 16))
    together = native.backward(*given, (True, True, True, False, True))
    names = ("query", "key", "value", "bias", "sinks")
    alone = vars(native.backward(*given, tuple(name == wanted for name in names)))
    assert [name for name, tensor in alone.items() if tensor is not None] == [wanted]
    torch.testing.assert_close(alone[wanted], getattr(together, wanted), rtol=0, atol=0)


@pytest.mark.parametrize("threads", [1, 3])
def test_two_runs_give_the_same_bits(isa, monkeypatch, threads):
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    call = a_call(heads=4, groups=2, rows=1100, cols=1100, mask=Mask(causal=True))
    first = gradients(call)
    for _ in range(3):
        for name, tensor in gradients(call).items():
            assert torch.equal(tensor, first[name]), name


def test_a_bias_is_a_constant_or_another_backend_serves():
    call = a_call(bias=draw(2, 70, 90))
    assert native.refuses(call) is None
    check_budget(call)
    wanting = replace(call, bias=call.bias.requires_grad_())
    assert choose(wanting) == "blockwise"
    with pytest.raises(BackendError, match="it gives no gradient to a bias, and this one requires it"):
        attend(call.query, call.key, call.value, bias=wanting.bias, backend="native")
    with torch.no_grad():
        assert choose(wanting) == "native"


def test_ctrl_c_ends_a_long_backward(monkeypatch, interruptible):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    tensor = torch.zeros(1, 8, 65536, 64)
    call = check(tensor, tensor, tensor, None, Mask(), None, None, None, Emit())
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    start = time.perf_counter()
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        native.backward(call, tensor, torch.zeros(1, 8, 65536), tensor, (True, True, True, False, False))
    assert time.perf_counter() - start < 30  # the whole call takes minutes
    timer.join()


def test_a_long_call_is_made_in_rounds():
    """Every slice of a narrow window's gradients is that of the slice alone, its margins left out."""
    length, margin = 49152, 100
    tensors = [draw(1, 1, length, 64, seed=seed) for seed in range(4)]

    def made(tensors, backend):
        query, key, value = (tensor.clone().requires_grad_() for tensor in tensors[:3])
        output = attend(query, key, value, mask=Mask(window=(30, 20)), backend=backend).output
        return torch.autograd.grad(output, (query, key, value), tensors[3])

    found = made(tensors, "native")
    for begin in (0, 511, 8000, length - 400):
        start, stop = max(0, begin - margin), min(length, begin + 400 + margin)
        exact = made([tensor[:, :, start:stop].double() for tensor in tensors], "reference")
        for tensor, expected in zip(found, exact, strict=True):
            part = expected[:, :, begin - start : begin - start + 400]
            torch.testing.assert_close(tensor[:, :, begin : begin + 400].double(), part, rtol=1e-5, atol=1e-5)
