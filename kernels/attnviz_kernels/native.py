"""The compiled CPU kernel, for float32, bfloat16 and float16: see kernels/native for the C++ and its tile loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .spec import Attended, Call, Emit, Mask, Statistics, View

_missing: str | None = None
if TYPE_CHECKING:
    from . import _native
else:
    try:
        from . import _native
    except ImportError as error:
        _missing = str(error)

_TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3, torch.bool: 4}
_LONGEST = 2**24
_forced: list[str] = []


def unavailable() -> str | None:
    """Why there is no compiled kernel here, or None."""
    if _missing is None:
        return None
    return f"it was not compiled ({_missing}); install a C++ compiler and install attnviz again"


def refuses(call: Call | View) -> str | None:
    """Why this call is not for the compiled kernel, or None."""
    _, _, rows, cols = call.shape
    if call.query.device.type != "cpu":
        return f"it runs on the cpu, the tensors are on {call.query.device}"
    if call.query.dtype == torch.float64:
        return "it computes in float32, the tensors are float64"
    if max(rows + call.mask.offset, cols) > _LONGEST:
        return f"it serves positions below {_LONGEST}, this call has {max(rows + call.mask.offset, cols)}"
    if isinstance(call, View):
        return "it has no functions of a finished call yet"
    inputs = (call.query, call.key, call.value, call.bias, call.sinks)
    if torch.is_grad_enabled() and any(tensor is not None and tensor.requires_grad for tensor in inputs):
        return "it has no backward yet"
    return None


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


def attend(call: Call, emit: Emit) -> Attended:
    """The whole contract in one pass over the tiles; chosen whole weights take a second one over their rows."""
    batch, heads, rows, _ = call.shape
    keep: list[Tensor] = []
    out = _native.Forward()
    # memory order [B, M, H, E], as torch's own attention leaves it: the reshape that usually follows copies nothing
    output = torch.empty(batch, rows, heads, call.value.shape[3], dtype=call.query.dtype).transpose(1, 2)
    logsumexp = torch.empty(batch, heads, rows)
    out.output, out.logsumexp = _described(output), logsumexp.data_ptr()
    statistics = _statistics_into(out, call) if emit.statistics else None
    pooled = _pooled_into(out, call, emit.pooled) if emit.pooled else None
    weights = _weights_into(out, call, emit, keep) if emit.weights else None
    _native.forward(_isa(), torch.get_num_threads(), describe(call, keep), out)
    if weights is not None and emit.heads is not None:
        weights = weights[:, [sorted(set(emit.heads)).index(head) for head in emit.heads]]
    return Attended(output, logsumexp, statistics, pooled, weights)


def describe(call: Call, keep: list[Tensor]) -> _native.Call:
    """A call as the addresses and strides that the compiled code takes; tensors made on the way go into `keep`."""
    shape, mask = call.shape, call.mask
    out = _native.Call()
    out.B, out.H, out.M, out.N = shape
    out.G, out.D, out.E = call.key.shape[1], call.key.shape[3], call.value.shape[3]
    out.scale, out.softcap = call.scale, call.softcap or 0.0
    for name in ("query", "key", "value"):
        setattr(out, name, _described(getattr(call, name)))
    if call.bias is not None:
        out.bias = _described(call.bias, shape)
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
        out.dense = _described(mask.dense, shape)
    if mask.key_padding is not None:
        out.padding = _described(mask.key_padding, (batch, cols))
    if mask.segments is not None:
        both = torch.cat([segment.to(torch.int64) for segment in mask.segments], dim=1)
        # any integers become small ones that float32 holds exactly
        keep.append(torch.unique(both, return_inverse=True)[1].to(torch.float32))
        query, key = keep[-1][:, :rows], keep[-1][:, rows:]
        out.query_segment, out.key_segment = _described(query, (batch, rows)), _described(key, (batch, cols))


def _described(tensor: Tensor, shape: tuple[int, ...] | None = None) -> _native.Described:
    """Address, type and strides of a tensor, or of its expansion to `shape`."""
    strides = tensor.stride() if shape is None else tensor.expand(shape).stride()
    return (tensor.data_ptr(), _TYPES[tensor.dtype], *strides, *(0,) * (4 - len(strides)))  # type: ignore[return-value]


def _statistics_into(out: _native.Forward, call: Call) -> Statistics:
    values = torch.empty(6, *call.shape[:3])
    largest_key = torch.empty(call.shape[:3], dtype=torch.int64)
    out.statistics, out.largest_key = values.data_ptr(), largest_key.data_ptr()
    entropy, largest, *rest = values.unbind()
    return Statistics(entropy, largest, largest_key, *rest)


def _pooled_into(out: _native.Forward, call: Call, shape: tuple[int, int]) -> Tensor:
    batch, heads, rows, cols = call.shape
    out.R, out.C = min(shape[0], rows), min(shape[1], cols)
    pooled = torch.empty(batch, heads, out.R, out.C)
    out.pooled = pooled.data_ptr()
    return pooled


def _weights_into(out: _native.Forward, call: Call, emit: Emit, keep: list[Tensor]) -> Tensor:
    batch, heads, rows, cols = call.shape
    chosen = list(range(heads)) if emit.heads is None else sorted(set(emit.heads))
    slot = torch.full((heads,), -1, dtype=torch.int32)
    slot[chosen] = torch.arange(len(chosen), dtype=torch.int32)
    keep.append(slot)
    where = emit.rows if emit.rows is not None else range(rows)
    out.row_begin, out.row_end, out.chosen, out.slot = where.start, where.stop, len(chosen), slot.data_ptr()
    weights = torch.empty(batch, len(chosen), len(where), cols)
    out.weights = weights.data_ptr()
    return weights


def _isa() -> str:
    return _forced[-1] if _forced else isas()[0]
