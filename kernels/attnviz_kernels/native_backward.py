"""Gradients by the compiled kernel: see kernels/native/backward.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .native_describe import describe, described, isa, unavailable
from .spec import Call, Gradients

if TYPE_CHECKING or unavailable() is None:
    from . import _native


def backward(
    call: Call, output: Tensor, logsumexp: Tensor, output_gradient: Tensor, needs: tuple[bool, ...]
) -> Gradients:
    """d loss / d (query, key, value, sinks) where `needs` asks for it; a bias is a constant here."""
    keep: list[Tensor] = []
    out = _native.Backward()
    out.output, out.output_gradient, out.logsumexp = map(described, (output, output_gradient, logsumexp))
    delta = torch.empty(call.shape[:3])
    out.delta = delta.data_ptr()
    inputs = {"query": call.query, "key": call.key, "value": call.value}
    wanted = [name for name, need in zip(inputs, needs, strict=False) if need]
    found = {name: torch.empty_like(inputs[name]) for name in wanted}
    for name, gradient in found.items():
        setattr(out, name, described(gradient))
    _native.backward(isa(), torch.get_num_threads(), describe(call, keep), out)
    sinks = _of_sinks(call.sinks, logsumexp, delta) if call.sinks is not None and needs[4] else None
    return Gradients(**found, sinks=sinks)


def _of_sinks(sinks: Tensor, logsumexp: Tensor, delta: Tensor) -> Tensor:
    """[H]: a sink only takes weight from the keys, so it gets minus its weight times delta."""
    seeing = logsumexp.masked_fill(logsumexp == -torch.inf, torch.inf)
    weight = (sinks.to(torch.float32)[None, :, None] - seeing).exp()
    return -(weight * delta).sum((0, 2)).to(sinks.dtype)
