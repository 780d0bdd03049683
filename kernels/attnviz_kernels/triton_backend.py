"""The Triton backend as `dispatch` sees it: what it serves. Triton itself is imported with the first call it serves."""

from __future__ import annotations

from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from .spec import Attended, Call, Emit, Gradients, Statistics, View
from .triton_tiles import SIZES, interpreting


def unavailable() -> str | None:
    """Why it cannot be used on this machine at all."""
    if not installed():
        return "triton is not installed (pip install 'attnviz[triton]')"
    if not torch.cuda.is_available() and not interpreting():
        return "no GPU was found (TRITON_INTERPRET=1 in the environment runs it on the CPU, slowly)"
    return None


def refuses(call: Call | View) -> str | None:
    """Why it cannot serve this call."""
    device, dtype = call.query.device, call.query.dtype
    if device.type != ("cpu" if interpreting() else "cuda"):
        return f"it runs on {'the CPU while interpreting' if interpreting() else 'GPUs'}, the tensors are on {device}"
    if dtype == torch.float64:
        return "it computes in float32, the tensors are float64"
    size = max(call.query.shape[3], call.value.shape[3] if isinstance(call, Call) else 0)
    if size > SIZES[-1]:
        return f"it serves head sizes up to {SIZES[-1]}, got {size}"
    if device.type == "cuda" and torch.cuda.get_device_capability(device) < (8, 0):
        return f"it needs compute capability 8.0 or more, {torch.cuda.get_device_name(device)} has less"
    return None


def attend(call: Call, emit: Emit) -> Attended:
    """One pass for output, logsumexp and statistics; pooled maps and weights from a second one."""
    from . import triton_launch

    return triton_launch.attend(call, emit)


def backward(
    call: Call, output: Tensor, logsumexp: Tensor, output_gradient: Tensor, needs: tuple[bool, ...]
) -> Gradients:
    """The gradients that `needs` asks for: of query, key, value, bias, sinks."""
    from . import triton_launch

    return triton_launch.backward(call, output, logsumexp, output_gradient, needs)


def statistics(view: View) -> Statistics:
    """Every row's statistics, after the fact: the forward pass again, without values."""
    from . import triton_launch

    return triton_launch.statistics(view)


def tile(view: View, rows: slice, cols: slice) -> Tensor:
    """weights[..., rows, cols], [B, H, rows, cols]."""
    from . import triton_launch

    return triton_launch.tile(view, rows, cols, None)


def pool(view: View, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
    """[B, H, R, C] block means or maxima of weights[..., rows, cols]."""
    from . import triton_launch

    return triton_launch.pool(view, shape, rows, cols, reduce)


def received(view: View) -> Tensor:
    """[B, H, N]: the sum of each column, over all queries."""
    from . import triton_launch

    return triton_launch.pull(view, None)[..., 0]


def push(view: View, vector: Tensor) -> Tensor:
    """weights @ vector, [B, H, M, E]."""
    from . import triton_launch

    return triton_launch.push(view, vector)


def pull(view: View, vector: Tensor) -> Tensor:
    """weights.T @ vector, [B, H, N, E]."""
    from . import triton_launch

    return triton_launch.pull(view, vector)


@cache
def installed() -> bool:
    """Can triton be imported? Nothing is imported to find out."""
    return find_spec("triton") is not None
