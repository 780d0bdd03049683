"""The public functions: check once, choose a backend openly, make the output differentiable.

Backends import `spec`, never each other.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache
from importlib import import_module
from typing import Any, Protocol, cast

import torch
from torch import Tensor

from .checks import check, check_grid, check_vector
from .spec import (
    ArgumentError,
    Attended,
    BackendError,
    Call,
    Emit,
    Gradients,
    Mask,
    Statistics,
    View,
    accumulator,
    check_range,
)

BACKENDS = {
    "triton": ".triton_backend",
    "native": ".native",
    "blockwise": ".blockwise",
    "reference": ".reference",
}
"""Name and module of each backend, in the order `choose` prefers them; `reference` serves only who asks for it."""


class Backend(Protocol):
    """What the module of a backend offers; arguments are checked and ranges resolved before they get there."""

    def unavailable(self) -> str | None:
        """Why it cannot be used on this machine at all."""

    def refuses(self, call: Call | View) -> str | None:
        """Why it cannot serve this call."""

    def attend(self, call: Call, emit: Emit) -> Attended:
        """Output, logsumexp and what `emit` asks for."""

    def backward(
        self, call: Call, output: Tensor, logsumexp: Tensor, output_gradient: Tensor, needs: tuple[bool, ...]
    ) -> Gradients:
        """The gradients that `needs` asks for: of query, key, value, bias, sinks."""

    def statistics(self, view: View) -> Statistics:
        """Every row's statistics."""

    def tile(self, view: View, rows: slice, cols: slice) -> Tensor:
        """weights[..., rows, cols]."""

    def pool(self, view: View, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        """Block means or maxima of weights[..., rows, cols]."""

    def received(self, view: View) -> Tensor:
        """The column sums of the weights."""

    def push(self, view: View, vector: Tensor) -> Tensor:
        """weights @ vector."""

    def pull(self, view: View, vector: Tensor) -> Tensor:
        """weights.T @ vector."""


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    *,
    scale: float | None = None,
    mask: Mask = Mask(),
    softcap: float | None = None,
    bias: Tensor | None = None,
    sinks: Tensor | None = None,
    emit: Emit = Emit(),
    backend: str | None = None,
) -> Attended:
    """Attention of query [B, H, M, D] to key [B, G, N, D] and value [B, G, N, E]; `spec` says what each part means.

    scale defaults to 1 / sqrt(D). The output is differentiable with respect to query, key, value, bias and sinks;
    nothing else that a call leaves behind is. `backend` names one of `BACKENDS`; None lets `choose` decide.

    Raises ArgumentError for an argument that breaks the contract, BackendError when the backend cannot serve the call.
    """
    call = check(query, key, value, scale, mask, softcap, bias, sinks, emit)
    chosen = _load(choose(call, backend))
    inputs = (query, key, value, bias, sinks)
    if not torch.is_grad_enabled() or not any(tensor is not None and tensor.requires_grad for tensor in inputs):
        with _full_precision(query):
            return chosen.attend(call, emit)
    kept: list[Attended] = []
    output = _Attend.apply(chosen, call, emit, kept, *inputs)  # type: ignore[no-untyped-call]
    return replace(kept[0], output=output)


def view_of(call: Call, attended: Attended) -> View:
    """The weights of a finished call as a `View`."""
    return View(call.query, call.key, attended.logsumexp, call.scale, call.mask, call.softcap, call.bias, call.sinks)


@torch.no_grad()
def statistics(view: View, *, backend: str | None = None) -> Statistics:
    """Every row's `Statistics`, after the fact."""
    with _full_precision(view.query):
        return _load(choose(view, backend)).statistics(view)


@torch.no_grad()
def tile(view: View, rows: slice = slice(None), cols: slice = slice(None), *, backend: str | None = None) -> Tensor:
    """weights[..., rows, cols], [B, H, rows, cols] in the accumulator dtype."""
    rows, cols = _ranges(view, rows, cols)
    with _full_precision(view.query):
        return _load(choose(view, backend)).tile(view, rows, cols)


@torch.no_grad()
def pool(
    view: View,
    shape: tuple[int, int],
    rows: slice = slice(None),
    cols: slice = slice(None),
    reduce: str = "mean",
    *,
    backend: str | None = None,
) -> Tensor:
    """[B, H, R, C] block means, or maxima with reduce="max", of weights[..., rows, cols]; blocks as in `pool_edges`.

    Queries that see no key are left out; a block that holds none but those is NaN.
    """
    if reduce not in ("mean", "max"):
        raise ArgumentError(f'reduce must be "mean" or "max", got {reduce!r}')
    check_grid("shape", shape)
    rows, cols = _ranges(view, rows, cols)
    with _full_precision(view.query):
        return _load(choose(view, backend)).pool(view, shape, rows, cols, reduce)


@torch.no_grad()
def received(view: View, *, backend: str | None = None) -> Tensor:
    """[B, H, N]: what each key receives, the exact column sums of the weights."""
    with _full_precision(view.query):
        return _load(choose(view, backend)).received(view)


@torch.no_grad()
def push(view: View, vector: Tensor, *, backend: str | None = None) -> Tensor:
    """weights @ vector; vector [B, H, N, E] (B and H may be 1), result [B, H, M, E] in the accumulator dtype."""
    check_vector(vector, view, axis="keys")
    with _full_precision(view.query):
        return _load(choose(view, backend)).push(view, vector)


@torch.no_grad()
def pull(view: View, vector: Tensor, *, backend: str | None = None) -> Tensor:
    """weights.T @ vector; vector [B, H, M, E] (B and H may be 1), result [B, H, N, E] in the accumulator dtype."""
    check_vector(vector, view, axis="queries")
    with _full_precision(view.query):
        return _load(choose(view, backend)).pull(view, vector)


@torch.no_grad()
def weight_gradients(
    output_gradient: Tensor, value: Tensor, rows: slice = slice(None), cols: slice = slice(None)
) -> Tensor:
    """d loss / d weights[..., rows, cols], [B, H, rows, cols].

    It is d loss / d output [B, H, M, E] times value [B, G, N, E], also where the mask hides the key, as dense attention
    has it.
    """
    if output_gradient.dim() != 4 or value.dim() != 4:
        raise ArgumentError("output_gradient and value must have 4 axes each")
    batch, heads, queries, size = output_gradient.shape
    groups, keys = value.shape[1:3]
    if value.shape[3] != size:
        raise ArgumentError(f"value must have the size of output_gradient ({size}), got {value.shape[3]}")
    if heads % groups:
        raise ArgumentError(f"value must have a number of heads that divides {heads}, got {groups}")
    top, bottom = check_range("rows", rows, queries)
    left, right = check_range("cols", cols, keys)
    wide = accumulator(value.dtype)
    with _full_precision(value):
        by_group = output_gradient[:, :, top:bottom].to(wide).reshape(batch, groups, -1, size)  # [B, G, H/G * rows, E]
        product = by_group @ value[:, :, left:right].to(wide).transpose(-1, -2)
    return product.reshape(batch, heads, bottom - top, right - left)


def choose(call: Call | View, backend: str | None = None) -> str:
    """The name of the backend that serves a call: the one asked for, or the first of `BACKENDS` that can.

    Raises ArgumentError for an unknown name, BackendError with the reason when the one asked for cannot serve.
    """
    if backend is None:
        # the call is asked about first: that is quicker than looking for the machine's devices
        return next(name for name in BACKENDS if not _load(name).refuses(call) and not unavailable(name))
    reason = _objection(backend, call)
    if reason is not None:
        raise BackendError(
            f"the {backend} backend cannot serve this call: {reason}; leave backend unset to use another"
        )
    return backend


def unavailable(backend: str) -> str | None:
    """Why a backend cannot be used on this machine at all, or None when it can; ArgumentError for an unknown name."""
    if backend not in BACKENDS:
        raise ArgumentError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    return _load(backend).unavailable()


def _objection(backend: str, call: Call | View) -> str | None:
    return unavailable(backend) or _load(backend).refuses(call)


@cache
def _load(backend: str) -> Backend:
    return cast(Backend, import_module(BACKENDS[backend], __package__))


def _full_precision(tensor: Tensor) -> AbstractContextManager[object]:
    """Autocast switched off, which would lower the precision of a backend's own sums."""
    device = tensor.device.type
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


def _ranges(view: View, rows: slice, cols: slice) -> tuple[slice, slice]:
    _, _, queries, keys = view.shape
    return slice(*check_range("rows", rows, queries)), slice(*check_range("cols", cols, keys))


class _Attend(torch.autograd.Function):
    """Makes the output of any backend differentiable through that backend's own backward."""

    @staticmethod
    def forward(ctx: Any, chosen: Backend, call: Call, emit: Emit, kept: list[Attended], *inputs: Any) -> Tensor:
        with _full_precision(call.query):
            attended = chosen.attend(call, emit)
        kept.append(replace(attended, output=attended.output.detach()))
        ctx.chosen, ctx.call = chosen, call
        ctx.save_for_backward(*inputs, attended.output, attended.logsumexp)
        return attended.output

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, output_gradient: Tensor) -> tuple[Tensor | None, ...]:
        query, key, value, bias, sinks, output, logsumexp = ctx.saved_tensors
        call = replace(ctx.call, query=query, key=key, value=value, bias=bias, sinks=sinks)
        with _full_precision(query):
            gradients = ctx.chosen.backward(call, output, logsumexp, output_gradient, ctx.needs_input_grad[4:])
        parts = (gradients.query, gradients.key, gradients.value, gradients.bias, gradients.sinks)
        return (None, None, None, None, *parts)
