"""One table of calls for every backend, the plain computation to be measured against, and the error budget.

Truth is the reference in float64 on the very same inputs. Plain is what anyone would write in torch in the inputs' own
dtype: matmul, mask, softmax, matmul. A backend may be at most twice as far from the truth as plain is.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest
import torch
from torch import Tensor

from attnviz_kernels import (
    Attended,
    Call,
    Emit,
    Mask,
    View,
    attend,
    check,
    dispatch,
    pool,
    pull,
    push,
    received,
    reference,
    statistics,
    tile,
    view_of,
)
from attnviz_kernels.spec import hides

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}

SHAPES = {  # B, H, G, M, N, D, E
    "one": (1, 1, 1, 1, 1, 16, 16),
    "one-query": (2, 3, 1, 1, 37, 16, 16),
    "one-key": (1, 2, 2, 5, 1, 32, 32),
    "tiny": (2, 3, 3, 7, 7, 16, 16),
    "grouped": (1, 6, 2, 33, 33, 32, 32),
    "shared": (2, 4, 1, 65, 65, 64, 64),
    "cached": (1, 4, 2, 17, 90, 48, 32),
    "more-queries": (1, 2, 2, 70, 13, 32, 80),
    "odd-size": (3, 2, 1, 31, 47, 20, 28),
    "round": (2, 2, 2, 64, 128, 64, 64),
    "just-over": (1, 3, 3, 129, 129, 64, 64),
    "long": (1, 2, 1, 61, 259, 96, 112),
    "wide": (1, 2, 1, 67, 67, 128, 128),
    "widest": (1, 2, 2, 19, 83, 256, 256),
}

Builder = Callable[[torch.Generator, tuple[int, int, int, int]], Mask]


def _padding(g: torch.Generator, shape: tuple[int, int, int, int], left: bool) -> Tensor:
    batch, _, _, keys = shape
    kept = torch.randint(1, keys + 1, (batch, 1), generator=g)
    place = torch.arange(keys)
    return (place >= keys - kept) if left else (place < kept)


def _packed(g: torch.Generator, shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    batch, _, rows, keys = shape
    ids = torch.randint(0, 3, (batch, max(rows, keys)), generator=g).sort(dim=1).values
    return ids[:, :rows], ids[:, :keys]


def _scattered(g: torch.Generator, shape: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    batch, _, rows, keys = shape
    return torch.randint(0, 3, (batch, rows), generator=g), torch.randint(0, 3, (batch, keys), generator=g)


def _dense(g: torch.Generator, size: tuple[int, ...]) -> Tensor:
    return torch.rand(size, generator=g) > 0.4


def _additive(g: torch.Generator, size: tuple[int, ...], hidden: float) -> Tensor:
    return torch.randn(size, generator=g).masked_fill(~_dense(g, size), hidden)


LOWEST = -3e38  # stands for the lowest number of whatever dtype the call has

MASKS: dict[str, Builder] = {
    "full": lambda g, s: Mask(),
    "causal": lambda g, s: Mask(causal=True),
    "causal-offset": lambda g, s: Mask(causal=True, offset=max(0, s[3] - s[2])),
    "window": lambda g, s: Mask(window=(5, 3)),
    "window-causal": lambda g, s: Mask(causal=True, window=(11, None), offset=max(0, s[3] - s[2])),
    "window-right": lambda g, s: Mask(window=(None, 2), offset=1),
    "self-only": lambda g, s: Mask(window=(0, 0)),
    "chunk": lambda g, s: Mask(chunk=16, offset=max(0, s[3] - s[2])),
    "chunk-causal": lambda g, s: Mask(causal=True, chunk=7),
    "padding-right": lambda g, s: Mask(key_padding=_padding(g, s, left=False)),
    "padding-left": lambda g, s: Mask(causal=True, key_padding=_padding(g, s, left=True)),
    "packed": lambda g, s: Mask(causal=True, segments=_packed(g, s)),
    "scattered": lambda g, s: Mask(segments=_scattered(g, s)),
    "dense": lambda g, s: Mask(dense=_dense(g, s)),
    "dense-shared": lambda g, s: Mask(causal=True, dense=_dense(g, (s[0], 1, s[2], s[3]))),
    "additive": lambda g, s: Mask(dense=_additive(g, (s[2], s[3]), -torch.inf)),
    "additive-lowest": lambda g, s: Mask(dense=_additive(g, (s[0], 1, 1, s[3]), LOWEST)),
    "everything": lambda g, s: Mask(
        causal=True,
        offset=3,
        window=(40, None),
        chunk=64,
        key_padding=_padding(g, s, left=True),
        segments=_packed(g, s),
        dense=_additive(g, (1, s[1], 1, s[3]), -torch.inf),
    ),
}

OPTIONS: dict[str, Callable[[torch.Generator, tuple[int, int, int, int]], dict[str, object]]] = {
    "plain": lambda g, s: {},
    "scale": lambda g, s: {"scale": 0.37},
    "softcap": lambda g, s: {"softcap": 2.5},
    "sinks": lambda g, s: {"sinks": torch.randn(s[1], generator=g)},
    "alibi": lambda g, s: {"bias": -0.05 * torch.arange(1.0, s[1] + 1)[:, None, None] * torch.arange(float(s[3]))},
    "relative": lambda g, s: {"bias": torch.randn(1, s[1], s[2], s[3], generator=g)},
    "bias-map": lambda g, s: {"bias": torch.randn(s[2], s[3], generator=g), "scale": -0.2},
    "all": lambda g, s: {
        "softcap": 4.0,
        "sinks": torch.randn(s[1], generator=g),
        "bias": torch.randn(s[0], s[1], 1, s[3], generator=g),
    },
}

LAYOUTS = ("contiguous", "heads-last", "every-other", "expanded")


@dataclass(frozen=True)
class Case:
    """A named call: how its inputs lie in memory, what hides keys, what changes scores."""

    shape: str
    mask: str
    option: str
    layout: str

    def __str__(self) -> str:
        return f"{self.shape}-{self.mask}-{self.option}-{self.layout}"


CASES = [  # every shape with every mask; options and layouts take turns, so that each meets every shape and mask
    Case(shape, mask, list(OPTIONS)[(3 * i + 5 * j) % len(OPTIONS)], LAYOUTS[(i + j // 2) % len(LAYOUTS)])
    for i, shape in enumerate(SHAPES)
    for j, mask in enumerate(MASKS)
]


def backends(*names: str) -> list[object]:
    """Parameters for each backend; one that is not available here is skipped with its own reason."""
    params = []
    for name in names or ("blockwise", "native", "triton"):
        reason = dispatch.unavailable(name)
        marks = () if reason is None else pytest.mark.skip(reason=f"{name}: {reason}")
        params.append(pytest.param(name, id=name, marks=marks))
    return params


def laid_out(tensor: Tensor, layout: str) -> Tensor:
    """The same shape, in another memory layout; "expanded" repeats the first sequence and head without copies."""
    if layout == "heads-last":
        return tensor.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "every-other":
        return tensor.repeat_interleave(2, dim=2)[:, :, ::2]
    if layout == "expanded":
        return tensor[:1, :1].expand(tensor.shape)
    return tensor


def build(case: Case, dtype: torch.dtype) -> Call:
    """The checked call of a case: the same random numbers in every dtype, up to rounding."""
    g = torch.Generator().manual_seed(zlib.crc32(str(case).encode()))
    batch, heads, groups, rows, keys, size, values = SHAPES[case.shape]
    shape = (batch, heads, rows, keys)
    query, key, value = (
        laid_out(torch.randn(*axes, generator=g).to(dtype), case.layout)
        for axes in ((batch, heads, rows, size), (batch, groups, keys, size), (batch, groups, keys, values))
    )
    mask = MASKS[case.mask](g, shape)
    if mask.dense is not None and mask.dense.is_floating_point():
        mask = replace(mask, dense=_typed(mask.dense, dtype))
    options = {"scale": None, "softcap": None, "bias": None, "sinks": None} | OPTIONS[case.option](g, shape)
    options = {name: part.to(dtype) if isinstance(part, Tensor) else part for name, part in options.items()}
    return check(query, key, value, mask=mask, emit=EMIT, **options)


def _typed(dense: Tensor, dtype: torch.dtype) -> Tensor:
    lowest = torch.finfo(dtype).min
    return torch.where(dense == -torch.inf, -torch.inf, dense.clamp_min(lowest)).to(dtype)


EMIT = Emit(statistics=True, pooled=(5, 7), weights=True)
"""Everything at once; what is emitted alone is compared with it."""

Found = dict[str, Tensor]


def attended(call: Call, backend: str, emit: Emit = EMIT) -> Attended:
    """The call through the public function of one backend."""
    options = {name: getattr(call, name) for name in ("scale", "mask", "softcap", "bias", "sinks")}
    return attend(call.query, call.key, call.value, **options, emit=emit, backend=backend)


def output_of(call: Call, backend: str) -> Tensor:
    """The output alone, with its gradients."""
    return attended(call, backend, Emit()).output


def named(result: Attended) -> Found:
    """Every tensor that a call left behind, by name."""
    found = {name: getattr(result, name) for name in ("output", "logsumexp", "pooled", "weights")}
    statistics = {} if result.statistics is None else vars(result.statistics)
    return {name: tensor for name, tensor in (found | statistics).items() if tensor is not None}


def of_view(view: View, backend: str) -> Found:
    """What the functions of a finished call give, on odd parts of the map and with broadcast vectors."""
    rows, cols, queries, keys = window_of(view)
    return {
        "tile": tile(view, rows, cols, backend=backend),
        "mean": pool(view, GRID, rows, cols, backend=backend),
        "max": pool(view, GRID, rows, cols, "max", backend=backend),
        "received": received(view, backend=backend),
        "push": push(view, keys, backend=backend),
        "pull": pull(view, queries, backend=backend),
    } | vars(statistics(view, backend=backend))


GRID = (3, 4)


def window_of(view: View) -> tuple[slice, slice, Tensor, Tensor]:
    """A range of rows, one of columns, and a vector over each axis, [1, H, M, 3] and [B, 1, N, 3]."""
    batch, heads, rows, keys = view.shape
    g = torch.Generator().manual_seed(rows * keys)
    queries, over_keys = torch.randn(1, heads, rows, 3, generator=g), torch.randn(batch, 1, keys, 3, generator=g)
    exact = (vector.bfloat16().float() for vector in (queries, over_keys))  # the same in every dtype
    return slice(rows // 3, rows), slice(keys // 5, keys - keys // 4), *exact


def truth(call: Call) -> tuple[Found, Found]:
    """Everything of `EMIT`, and of the functions of a finished call, by the reference in float64."""
    exact = in_double(call)
    result = named(reference.attend(exact, EMIT))
    return result, result | of_view(view_of(exact, reference.attend(exact, Emit())), "reference")


def in_double(call: Call) -> Call:
    """The same call with its very inputs in float64."""
    dense = call.mask.dense
    if dense is not None and dense.is_floating_point():  # what hides a key depends on the dtype
        dense = dense.double().masked_fill(hides(dense), -torch.inf)
    inputs = {name: getattr(call, name) for name in ("query", "key", "value", "bias", "sinks")}
    doubled = {name: None if tensor is None else tensor.double() for name, tensor in inputs.items()}
    return replace(call, mask=replace(call.mask, dense=dense), **doubled)


def plain(call: Call) -> tuple[Found, Found]:
    """The same as `truth` by the straightforward computation in the call's own dtype."""
    weights, sink, logsumexp = plain_weights(call)
    seeing = logsumexp > -torch.inf
    found = reference.statistics_of(weights, sink, ~seeing, call.mask)
    result = Attended(
        output=plain_output(call),
        logsumexp=logsumexp,
        statistics=found,
        pooled=reference.pool_of(weights, seeing, (5, 7), "mean"),
        weights=weights,
    )
    rows, cols, queries, keys = window_of(view_of(call, result))
    part = weights[..., rows, cols]
    views = {
        "tile": part,
        "mean": reference.pool_of(part, seeing[..., rows], GRID, "mean"),
        "max": reference.pool_of(part, seeing[..., rows], GRID, "max"),
        "received": weights.sum(-2),
        "push": weights @ keys.to(weights.dtype),
        "pull": weights.transpose(-1, -2) @ queries.to(weights.dtype),
    } | vars(found)
    return named(result), {"weights": weights} | views


def plain_weights(call: Call) -> tuple[Tensor, Tensor | None, Tensor]:
    """Weights, the sinks' weights and logsumexp, by matmul, mask and softmax in the call's own dtype."""
    key = call.key.repeat_interleave(call.query.shape[1] // call.key.shape[1], dim=1)
    score = call.scale * (call.query @ key.transpose(-1, -2))
    if call.softcap is not None:
        score = call.softcap * torch.tanh(score / call.softcap)
    if call.bias is not None:
        score = score + call.bias
    if call.mask.dense is not None and call.mask.dense.is_floating_point():
        score = score + call.mask.dense
    score = score.masked_fill(~reference.visible(call.mask, call.shape, score.device), -torch.inf)
    blind = (score == -torch.inf).all(-1)
    if call.sinks is not None:
        score = torch.cat([score, call.sinks[:, None, None].expand(*score.shape[:3], 1)], dim=-1)
    weights = score.softmax(-1).masked_fill(blind[..., None], 0.0)
    sink = None if call.sinks is None else weights[..., -1]
    return weights[..., : call.shape[3]], sink, score.logsumexp(-1).masked_fill(blind, -torch.inf)


def plain_output(call: Call) -> Tensor:
    """The output by the straightforward computation."""
    return plain_weights(call)[0] @ call.value.repeat_interleave(call.query.shape[1] // call.value.shape[1], dim=1)


CONSTANTS = {"native": ("bias",)}
"""Inputs that a backend gives no gradient: it refuses a call in which one requires it."""


def differentiated(call: Call, output_of: Callable[[Call], Tensor], backend: str | None = None) -> Found:
    """d loss / d each input that the backend differentiates; d loss / d output is the same draw for every dtype."""
    inputs = [name for name in ("query", "key", "value", "bias", "sinks") if name not in CONSTANTS.get(backend, ())]
    names = [name for name in inputs if getattr(call, name) is not None]
    inputs = [getattr(call, name).detach().requires_grad_() for name in names]
    output = output_of(replace(call, **dict(zip(names, inputs, strict=True))))
    return dict(zip(names, torch.autograd.grad(output, inputs, _output_gradient(call)), strict=True))


def _output_gradient(call: Call) -> Tensor:
    shape = (*call.query.shape[:3], call.value.shape[3])
    return torch.randn(shape, generator=torch.Generator().manual_seed(7)).bfloat16().to(call.query.dtype)


FROM_LOGSUMEXP = ("weights", "pooled", "tile", "mean", "max", "received", "push", "pull")
"""Made of exp(score - logsumexp): the rounding of the stored logsumexp is a relative error of each of them."""

SINGLE_WEIGHTS = ("largest", "own", "previous", "first")
"""Weights picked from the map, judged by the errors of the whole map: of the few picked, plain may have lucky ones."""

LOGARITHMS = ("logsumexp", "entropy")
"""A relative error of what is inside a logarithm is an absolute error of the logarithm."""


def assert_within_budget(found: Found, true: Found, honest: Found) -> None:
    """Each quantity is NaN or infinite just where the truth is, and at most twice as far from it as plain is.

    Where plain happens to be exact (one key, say) that would be no error at all. So four units in the last place of the
    largest entry are allowed in any case: about one each for the score, the exponential, the sum and the quotient.
    """
    for name, tensor in found.items():
        if name == "largest_key":
            _assert_largest(tensor, true)
            continue
        alike = "weights" if name in SINGLE_WEIGHTS else name
        size = max(1.0, _size(true[name])) if name in LOGARITHMS else _size(true[name])
        if name in FROM_LOGSUMEXP:
            size *= max(1.0, _size(true["logsumexp"]))
        _assert_close(name, tensor, true[name], honest[alike] - true[alike], size)


def assert_gradients_within_budget(call: Call, found: Found, true: Found, honest: Found) -> None:
    """The same for gradients, whose unit is that of the terms they are sums of.

    d score is a difference, weight * (output gradient . value - delta): it may be exactly 0 (one key, say), yet each of
    its terms is rounded. Weights are exp(score - logsumexp) here as well.
    """
    rounding = max(1.0, _size(plain_weights(in_double(call))[2]))
    term = rounding * _size(_output_gradient(call).double()) * _size(call.value.double()) * call.value.shape[3] ** 0.5
    sizes = {
        "query": term * abs(call.scale) * _size(call.key.double()),
        "key": term * abs(call.scale) * _size(call.query.double()),
        "value": rounding * _size(true["value"]),
        "bias": term,
        "sinks": term,
    }
    for name, tensor in found.items():
        _assert_close(name, tensor, true[name], honest[name] - true[name], max(sizes[name], _size(true[name])))


def _assert_close(name: str, found: Tensor, true: Tensor, honest_error: Tensor, size: float) -> None:
    assert found.shape == true.shape, f"{name} has shape {tuple(found.shape)}"
    error = _error(found, true)
    allowed = max(2 * _size(honest_error), 4 * torch.finfo(found.dtype).eps * size)
    assert error <= allowed, f"{name} is off by {error:.3g}, allowed {allowed:.3g}"


def _assert_largest(found: Tensor, true: Found) -> None:
    """-1 in blind rows; elsewhere a key whose weight is the largest, or so close that rounding hides the difference."""
    blind = true["largest"].isnan()
    assert torch.equal(found == -1, blind), "largest_key is not -1 just where a query sees no key"
    weight = true["weights"].gather(-1, found.clamp_min(0)[..., None])[..., 0]
    assert bool((weight + 1e-6 >= true["largest"])[~blind].all()), "largest_key is not the largest"


def _error(found: Tensor, true: Tensor) -> float:
    """Largest absolute error; infinite where the two are not finite in the same places and the same way."""
    found = found.double()
    same = (found == true) | (found.isnan() & true.isnan())
    return float((found - true).abs().masked_fill(same, 0.0).nan_to_num(nan=torch.inf).max())


def _size(tensor: Tensor) -> float:
    return float(tensor[tensor.isfinite()].abs().max()) if bool(tensor.isfinite().any()) else 0.0
