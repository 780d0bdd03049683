"""What the compiled kernel is told of a call: addresses, types and strides of its tensors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .spec import Call, Mask, View

_missing: str | None = None
if TYPE_CHECKING:
    from . import _native
else:
    try:
        from . import _native
    except ImportError as error:
        _missing = str(error)

_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3, torch.bool: 4}
_forced: list[str] = []


def unavailable() -> str | None:
    """Why there is no compiled kernel here, or None."""
    if _missing is None:
        return None
    return f"it was not compiled ({_missing}); install a C++ compiler and install attnviz again"


def isas() -> list[str]:
    """The instruction sets that this build and this processor share, fastest first."""
    return [] if _missing else _native.isas()


@contextmanager
def force_isa(name: str) -> Iterator[None]:
    """Use one of `isas()` inside the block instead of the fastest: for tests and benchmarks."""
    _forced.append(name)
    try:
        yield
    finally:
        _forced.pop()


def describe(call: Call | View, keep: list[Tensor]) -> _native.Call:
    """A call as the addresses and strides that the compiled code takes; tensors made on the way go into `keep`."""
    shape, mask = call.shape, call.mask
    out = _native.Call()
    out.B, out.H, out.M, out.N = shape
    out.G, out.D = call.key.shape[1], call.key.shape[3]
    out.scale, out.softcap = call.scale, call.softcap or 0.0
    out.query, out.key = described(call.query), described(call.key)
    if isinstance(call, Call):
        out.E, out.value = call.value.shape[3], described(call.value)
    if call.bias is not None:
        out.bias = described(call.bias, shape)
    if call.sinks is not None:
        keep.append(call.sinks.detach().to(torch.float32).contiguous())
        out.sinks = keep[-1].data_ptr()
    _describe_mask(out, mask, shape, keep)
    return out


def _describe_mask(out: _native.Call, mask: Mask, shape: tuple[int, int, int, int], keep: list[Tensor]) -> None:
    batch, _, rows, cols = shape
    left, right = mask.window or (None, None)
    out.causal, out.offset = mask.causal, mask.offset
    # a limit beyond every position is no limit, and fits the C++ integer
    out.left, out.right, out.chunk = (-1 if n is None else min(n, 2**40) for n in (left, right, mask.chunk))
    if mask.dense is not None:
        out.dense = described(mask.dense, shape)
    if mask.key_padding is not None:
        out.padding = described(mask.key_padding, (batch, cols))
    if mask.segments is not None:
        keep.append(_small(torch.cat([segment.to(torch.int64) for segment in mask.segments], dim=1)))
        query, key = keep[-1][:, :rows], keep[-1][:, rows:]
        out.query_segment, out.key_segment = described(query, (batch, rows)), described(key, (batch, cols))


def _small(numbers: Tensor) -> Tensor:
    """Any integers as small ones that float32 holds exactly; equal ones stay equal."""
    least, most = (int(end) for end in numbers.aminmax())
    small = numbers - least if most - least < 2**24 else torch.unique(numbers, return_inverse=True)[1]
    return small.to(torch.float32)


def described(tensor: Tensor, shape: tuple[int, ...] | None = None) -> _native.Described:
    """Address, type and strides of a tensor, or of its expansion to `shape`."""
    strides = tensor.stride() if shape is None else tensor.expand(shape).stride()
    return (tensor.data_ptr(), _TYPES[tensor.dtype], *strides, *(0,) * (4 - len(strides)))  # type: ignore[return-value]


def isa() -> str:
    """The instruction set in use."""
    return _forced[-1] if _forced else isas()[0]
