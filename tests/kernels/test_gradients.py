"""Gradients: numerically in float64, and within the same error budget as everything else."""

from dataclasses import replace
from importlib import import_module

import pytest
import torch
from kernel_cases import (
    CASES,
    CONSTANTS,
    DTYPES,
    MASKS,
    OPTIONS,
    Case,
    assert_gradients_within_budget,
    backends,
    build,
    differentiated,
    in_double,
    named,
    output_of,
    plain_output,
)

from attnviz_kernels import BACKENDS, Emit, Mask, attend, blockwise_tiles, reference

INPUTS = ("query", "key", "value", "bias", "sinks")
SOME = [case for place, case in enumerate(CASES) if place % 3 == 0]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def check_gradients(call, backend):
    """Shapes, dtypes and errors of all gradients of a call."""
    true = differentiated(in_double(call), lambda exact: output_of(exact, "reference"))
    found = differentiated(call, lambda same: output_of(same, backend), backend)
    assert {name: tensor.dtype for name, tensor in found.items()} == dict.fromkeys(found, call.query.dtype)
    assert_gradients_within_budget(call, found, true, differentiated(call, plain_output))


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("mask", MASKS)
def test_gradcheck_in_float64(monkeypatch, mask, option):
    monkeypatch.setattr(blockwise_tiles, "tile_size", lambda call: (3, 4))
    call = in_double(build(Case("tiny", mask, option, "contiguous"), torch.float32))
    names = [name for name in INPUTS if getattr(call, name) is not None]
    inputs = [getattr(call, name)[..., :3].clone() if name in INPUTS[:3] else getattr(call, name) for name in names]

    def function(*tensors):
        return output_of(replace(call, **dict(zip(names, tensors, strict=True))), "blockwise")

    assert torch.autograd.gradcheck(function, [tensor.requires_grad_() for tensor in inputs], fast_mode=True)


def test_gradcheck_of_every_element(monkeypatch):
    monkeypatch.setattr(blockwise_tiles, "tile_size", lambda call: (2, 3))
    inputs = [
        draw(2, 4, 5, 3),
        draw(2, 2, 7, 3, seed=1),
        draw(2, 2, 7, 2, seed=2),
        draw(4, 5, 7, seed=3),
        draw(4, seed=4),
    ]

    def function(query, key, value, bias, sinks):
        mask = Mask(causal=True, offset=1)
        return attend(query, key, value, mask=mask, softcap=1.5, bias=bias, sinks=sinks, backend="blockwise").output

    assert torch.autograd.gradcheck(function, [tensor.requires_grad_() for tensor in inputs])


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SOME, ids=str)
@pytest.mark.parametrize("backend", backends())
def test_gradients_stay_within_the_error_budget(backend, case, dtype):
    check_gradients(build(case, DTYPES[dtype]), backend)


BIASES = [(), (7,), (7, 1), (7, 7), (1, 1, 7), (3, 1, 1), (3, 7, 7), (1, 3, 7, 7), (2, 1, 1, 1)]


@pytest.mark.parametrize("backend", backends("blockwise", "triton"))
@pytest.mark.parametrize("shape", BIASES, ids=str)
def test_a_bias_of_any_shape_gets_a_gradient_of_that_shape(backend, shape):
    call = build(Case("tiny", "causal", "plain", "contiguous"), torch.float32)
    call = replace(call, bias=draw(shape).float())
    check_gradients(call, backend)


@pytest.mark.parametrize("backend", backends())
@pytest.mark.parametrize("wanted", INPUTS)
def test_only_wanted_gradients_are_made(monkeypatch, backend, wanted):
    if wanted in CONSTANTS.get(backend, ()):
        pytest.skip(f"{backend} gives no gradient to {wanted}")
    module, made = import_module(BACKENDS[backend], "attnviz_kernels"), []
    backward = module.backward
    monkeypatch.setattr(module, "backward", lambda *given: made.append(backward(*given)) or made[0])
    call = build(Case("grouped", "causal", "all", "contiguous"), torch.float32)
    inputs = {name: getattr(call, name).clone().requires_grad_(name == wanted) for name in INPUTS}
    output_of(replace(call, **inputs), backend).sum().backward()
    assert [name for name, tensor in inputs.items() if tensor.grad is not None] == [wanted]
    assert [name for name, tensor in vars(made[0]).items() if tensor is not None] == [wanted]


@pytest.mark.parametrize("backend", backends())
def test_rows_that_see_nothing_give_no_gradient_and_no_nan(backend):
    query, key, value = (draw(1, 2, 6, 16).float().requires_grad_() for _ in range(3))
    sinks = torch.tensor([0.0, 200.0], requires_grad=True)  # exp(200) is infinite
    padding = torch.tensor([[False, False, True, True, True, False]])
    mask = Mask(causal=True, key_padding=padding)
    attend(query, key, value, mask=mask, sinks=sinks, backend=backend).output.square().sum().backward()
    for tensor in (query, key, value, sinks):
        assert bool(tensor.grad.isfinite().all())
    assert float(query.grad[:, :, :2].abs().max()) == 0
    assert float(key.grad[:, :, ~padding[0]].abs().max()) == 0
    assert float(value.grad[:, :, ~padding[0]].abs().max()) == 0


@pytest.mark.parametrize("backend", backends())
def test_what_the_mask_hides_gets_no_gradient(backend):
    query, key, value = (draw(1, 1, 80, 16).float().requires_grad_() for _ in range(3))
    ids = torch.tensor([[0] * 30 + [1] * 50])
    output = attend(query, key, value, mask=Mask(segments=(ids, ids)), backend=backend).output
    output[:, :, :30].square().sum().backward()
    for tensor in (query, key, value):
        assert float(tensor.grad[:, :, 30:].abs().max()) == 0
        assert float(tensor.grad[:, :, :30].abs().min()) > 0


@pytest.mark.parametrize("backend", backends())
def test_an_additive_mask_is_a_constant(backend):
    query, key, value = (draw(1, 1, 6, 16).float().requires_grad_() for _ in range(3))
    dense = torch.zeros(6, 6, requires_grad=True)
    output = attend(query, key, value, mask=Mask(dense=dense), backend=backend).output
    output.sum().backward()
    assert dense.grad is None
    assert query.grad is not None


@pytest.mark.parametrize("backend", backends())
def test_what_is_left_behind_is_the_same_with_gradients_and_carries_none(backend):
    query, key, value = (draw(1, 2, 20, 16).float() for _ in range(3))
    emit = Emit(statistics=True, pooled=(3, 3), weights=True)
    without = attend(query, key, value, emit=emit, backend=backend)
    with_gradients = attend(query.requires_grad_(), key, value, emit=emit, backend=backend)
    assert with_gradients.output.requires_grad
    torch.testing.assert_close(with_gradients.output, without.output)
    left = {name: tensor for name, tensor in named(with_gradients).items() if name != "output"}
    assert not any(tensor.requires_grad for tensor in left.values())


@pytest.mark.parametrize("backend", backends())
def test_backward_can_be_run_twice_and_through_one_tensor_three_times(backend):
    same = draw(1, 2, 20, 16).float().requires_grad_()
    output = attend(same, same, same, mask=Mask(causal=True), backend=backend).output
    first = torch.autograd.grad(output.sum(), same, retain_graph=True)[0]
    second = torch.autograd.grad(output.sum(), same)[0]
    assert torch.equal(first, second)
    exact = same.detach().double().requires_grad_()
    expected = attend(exact, exact, exact, mask=Mask(causal=True), backend="reference").output
    torch.testing.assert_close(first, torch.autograd.grad(expected.sum(), exact)[0].float())


def test_the_reference_gives_the_gradients_of_torch():
    query, key, value = (draw(2, 2, 7, 8, seed=seed).requires_grad_() for seed in range(3))
    call = build(Case("tiny", "causal", "plain", "contiguous"), torch.float32)
    call = replace(call, query=query, key=key[:, :2], value=value, scale=8**-0.5)
    gradient = draw(2, 2, 7, 8, seed=9)
    result = reference.attend(replace(call, query=query.detach(), key=key.detach(), value=value.detach()), Emit())
    found = reference.backward(call, result.output, result.logsumexp, gradient, (True, True, True, False, False))
    output = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True)
    expected = torch.autograd.grad(output, (query, key, value), gradient)
    torch.testing.assert_close((found.query, found.key, found.value), expected)
