"""The compiled CPU kernel, for float32, bfloat16 and float16: see kernels/native for the C++ and its tile loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .native_backward import backward
from .native_describe import describe, described, force_isa, isa, isas, unavailable
from .native_views import pool, pull, push, received, tile
from .spec import Attended, Call, Emit, Statistics, View

if TYPE_CHECKING or unavailable() is None:
    from . import _native

__all__ = [
    "attend",
    "backward",
    "force_isa",
    "isas",
    "pool",
    "pull",
    "push",
    "received",
    "refuses",
    "statistics",
    "tile",
    "unavailable",
]

_LONGEST = 2**24


def refuses(call: Call | View) -> str | None:
    """Why this call is not for the compiled kernel, or None."""
    _, _, rows, cols = call.shape
    if call.query.device.type != "cpu":
        return f"it runs on the cpu, the tensors are on {call.query.device}"
    if call.query.dtype == torch.float64:
        return "it computes in float32, the tensors are float64"
    if max(rows + call.mask.offset, cols) > _LONGEST:
        return f"it serves positions below {_LONGEST}, this call has {max(rows + call.mask.offset, cols)}"
    if isinstance(call, Call) and call.bias is not None and call.bias.requires_grad and torch.is_grad_enabled():
        return "it gives no gradient to a bias, and this one requires it"
    return None


def attend(call: Call, emit: Emit) -> Attended:
    """The whole contract in one pass over the tiles; chosen whole weights take a second one over their rows."""
    batch, heads, rows, _ = call.shape
    keep: list[Tensor] = []
    out = _native.Forward()
    # memory order [B, M, H, E], as torch's own attention leaves it: the reshape that usually follows copies nothing
    output = torch.empty(batch, rows, heads, call.value.shape[3], dtype=call.query.dtype).transpose(1, 2)
    logsumexp = torch.empty(batch, heads, rows)
    out.output, out.logsumexp = described(output), logsumexp.data_ptr()
    statistics = _statistics_into(out, call) if emit.statistics else None
    pooled = _pooled_into(out, call, emit.pooled) if emit.pooled else None
    weights = _weights_into(out, call, emit, keep) if emit.weights else None
    _native.forward(isa(), torch.get_num_threads(), describe(call, keep), out)
    if weights is not None and emit.heads is not None:
        weights = weights[:, [sorted(set(emit.heads)).index(head) for head in emit.heads]]
    return Attended(output, logsumexp, statistics, pooled, weights)


def statistics(view: View) -> Statistics:
    """Every row's statistics: the forward pass again, with values of no size."""
    call = Call(view.query, view.key, view.key[..., :0], view.scale, view.mask, view.softcap, view.bias, view.sinks)
    found = attend(call, Emit(statistics=True)).statistics
    assert found is not None
    return found


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
