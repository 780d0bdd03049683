"""From checked calls to kernel launches: arguments, tile sizes, outputs."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from .spec import Attended, Call, Emit, Gradients, Statistics, View
from .triton_backward import delta_kernel, key_value_kernel, query_kernel
from .triton_forward import Leaves, attend_kernel
from .triton_masks import Heads, Rules, Tile
from .triton_tiles import Config, config, padded
from .triton_views import Cells, Slots, pool_kernel, pull_kernel, push_kernel, tile_kernel

_LOG2E = 1.4426950408889634
_PROGRAMS = 1024
"""Programs that keep the largest chip busy: a pooled map is split further while it has fewer."""


def attend(call: Call, emit: Emit) -> Attended:
    """Output, logsumexp and what `emit` asks for."""
    batch, heads, rows, cols = call.shape
    output = call.query.new_empty(batch, heads, rows, call.value.shape[3])
    logsumexp, found = _forward(call, call.value, output, emit.statistics)
    view = View(call.query, call.key, logsumexp, call.scale, call.mask, call.softcap, call.bias, call.sinks)
    part = slice(0, rows) if emit.rows is None else slice(emit.rows.start, emit.rows.stop)
    return Attended(
        output=output,
        logsumexp=logsumexp,
        statistics=found,
        pooled=pool(view, emit.pooled, slice(0, rows), slice(0, cols), "mean") if emit.pooled else None,
        weights=tile(view, part, slice(0, cols), emit.heads) if emit.weights else None,
    )


def statistics(view: View) -> Statistics:
    """Every row's statistics."""
    found = _forward(view, None, None, True)[1]
    assert found is not None
    return found


def tile(view: View, rows: slice, cols: slice, chosen: tuple[int, ...] | None) -> Tensor:
    """weights[:, chosen, rows, cols]; None chooses all heads."""
    setup, size = _setup("view", view, view.query.shape[3])
    count = view.shape[1] if chosen is None else len(chosen)
    height, width = rows.stop - rows.start, cols.stop - cols.start
    output = _floats(view, view.shape[0], count, height, width)
    launch(
        tile_kernel,
        output.shape[0] * count * _ceil(height, size.BLOCK_M) * _ceil(width, size.BLOCK_N),
        setup,
        output.device,
        **_inputs(view),
        logsumexp=view.logsumexp.contiguous(),
        chosen=None if chosen is None else (count, torch.tensor(chosen, dtype=torch.int32, device=output.device)),
        output=output,
        window=(rows.start, rows.stop, cols.start, cols.stop),
        T=size,
    )
    return output


def pool(view: View, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
    """Block means or maxima of weights[..., rows, cols]."""
    setup, size = _setup("view", view, view.query.shape[3])
    row_axis, col_axis = _cells(rows, shape[0]), _cells(cols, shape[1])
    slots = Slots(_side_by_side(row_axis, size.BLOCK_M), _side_by_side(col_axis, size.BLOCK_N))
    output = _floats(view, *view.shape[:2], row_axis.blocks, col_axis.blocks)
    bands = view.shape[0] * view.shape[1] * _ceil(row_axis.blocks, slots.ROWS)
    spans = min(max(_PROGRAMS // bands, 1), _ceil(col_axis.blocks, slots.COLS))
    launch(
        pool_kernel,
        bands * spans,
        setup,
        output.device,
        **_inputs(view),
        logsumexp=view.logsumexp.contiguous(),
        output=output,
        row_axis=row_axis,
        col_axis=col_axis,
        spans=spans,
        MAXIMUM=reduce == "max",
        S=slots,
        T=size,
    )
    return output


def push(view: View, vector: Tensor) -> Tensor:
    """weights @ vector."""
    return _product(view, push_kernel, vector, view.shape[3], view.shape[2])


def pull(view: View, vector: Tensor | None) -> Tensor:
    """weights.T @ vector; without one, [B, H, N, 1] sums of the columns."""
    return _product(view, pull_kernel, vector, view.shape[2], view.shape[3])


def backward(
    call: Call, output: Tensor, logsumexp: Tensor, output_gradient: Tensor, needs: tuple[bool, ...]
) -> Gradients:
    """The gradients that `needs` asks for: of query, key, value, bias, sinks."""
    delta = _delta(output, output_gradient)
    shared = {
        **_inputs(call),
        "values": _heads(call.value),
        "gradients": _heads(output_gradient),
        "logsumexp": logsumexp,
        "delta": delta,
    }
    query, bias = _query_side(call, shared, needs[3]) if needs[0] or needs[3] else (None, None)
    key, value = _key_side(call, shared) if needs[1] or needs[2] else (None, None)
    return Gradients(
        query=query if needs[0] else None,
        key=key if needs[1] else None,
        value=value if needs[2] else None,
        bias=bias,
        sinks=_sinks_gradient(call.sinks, logsumexp, delta) if needs[4] and call.sinks is not None else None,
    )


def launch(kernel: Any, programs: int, setup: Config, device: torch.device, **arguments: Any) -> None:
    """Run that many programs of a kernel on a device."""
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        # fusing multiply and add is asked for by name: what Triton does unasked changes with its version
        kernel[(programs,)](**arguments, num_warps=setup.warps, num_stages=setup.stages, enable_fp_fusion=True)


def capability(device: torch.device) -> tuple[int, int] | None:
    """The compute capability of a GPU, None for the CPU of the interpreter."""
    return torch.cuda.get_device_capability(device) if device.type == "cuda" else None


def rules_of(call: Call | View) -> Rules:
    """The mask as numbers and expanded tensors; limits that hide nothing of this map are left out."""
    batch, heads, rows, cols = shape = call.shape
    mask, offset = call.mask, call.mask.offset
    left, right = mask.window or (None, None)
    right = min([limit for limit in (right, 0 if mask.causal else None) if limit is not None], default=None)
    last = rows - 1 + offset
    one_chunk = mask.chunk is None or (offset >= 0 and max(last, cols - 1) < mask.chunk)
    segments = mask.segments
    base2 = call.query.dtype != torch.float32
    unit = _LOG2E if base2 else 1.0
    return Rules(
        rows=rows,
        cols=cols,
        scale=call.scale,
        unit=unit,
        base2=1 if base2 else None,
        falling=1 if call.scale < 0 else None,
        inner=call.scale * unit if call.softcap is None else call.scale / call.softcap,
        cap=None if call.softcap is None else call.softcap * unit,
        offset=offset,
        left=None if left is None or left >= last else left,
        right=None if right is None or right >= cols - 1 - offset else right,
        chunk=None if one_chunk else mask.chunk,
        padding=_expand(mask.key_padding, (batch, 1, 1, cols), shape),
        row_segments=None if segments is None else _expand(segments[0], (batch, 1, rows, 1), shape),
        col_segments=None if segments is None else _expand(segments[1], (batch, 1, 1, cols), shape),
        dense=_expand(mask.dense, None, shape),
        floor=None if mask.dense is None or mask.dense.dtype == torch.bool else torch.finfo(mask.dense.dtype).min / 2,
        bias=_expand(call.bias, None, shape),
        sinks=_expand(call.sinks, (1, heads, 1, 1), shape),
    )


def _forward(
    call: Call | View, value: Tensor | None, output: Tensor | None, wants_statistics: bool
) -> tuple[Tensor, Statistics | None]:
    kernel = "statistics" if wants_statistics else "attend"
    setup, size = _setup(kernel, call, call.query.shape[3] if value is None else value.shape[3])
    logsumexp = _floats(call, *call.shape[:3])
    found = _empty_statistics(logsumexp) if wants_statistics else None
    padding = call.mask.key_padding
    first_keys = None if padding is None else padding.to(torch.uint8).argmax(1)
    launch(
        attend_kernel,
        _programs(call, size.BLOCK_M),
        setup,
        logsumexp.device,
        **_inputs(call),
        values=None if value is None else _heads(value),
        output=None if output is None else _heads(output),
        logsumexp=logsumexp,
        leaves=None if found is None else Leaves(**vars(found), first_keys=first_keys),
        T=size,
    )
    return logsumexp, found


def _product(view: View, kernel: Any, vector: Tensor | None, read: int, written: int) -> Tensor:
    """Weights, or their transpose, times a vector over the axis that is read."""
    batch, heads, _, _ = view.shape
    width = 1 if vector is None else vector.shape[3]
    setup, size = _setup("view", view, min(width, 64))
    output = _floats(view, batch, heads, written, width)
    block = size.BLOCK_M if kernel is push_kernel else size.BLOCK_N
    launch(
        kernel,
        batch * heads * _ceil(written, block) * _ceil(width, size.BLOCK_E),
        setup,
        output.device,
        **_inputs(view),
        logsumexp=view.logsumexp.contiguous(),
        vectors=None if vector is None else _heads(vector.float().expand(batch, heads, read, width)),
        output=output,
        width=width,
        T=size,
    )
    return output


def _delta(output: Tensor, output_gradient: Tensor) -> Tensor:
    """[B, H, M]: each query's output times its gradient."""
    batch, heads, rows, size = output.shape
    delta = torch.empty(batch, heads, rows, dtype=torch.float32, device=output.device)
    shape = Tile(16, 16, size, padded(size), size, padded(size))
    launch(
        delta_kernel,
        batch * heads * _ceil(rows, shape.BLOCK_M),
        Config(shape.BLOCK_M, 0, 4, 1),
        delta.device,
        output=_heads(output),
        gradients=_heads(output_gradient),
        delta=delta,
        heads=heads,
        rows=rows,
        T=shape,
    )
    return delta


def _query_side(call: Call, shared: dict[str, Any], wants_bias: bool) -> tuple[Tensor, Tensor | None]:
    setup, size = _setup("query", call, call.value.shape[3])
    gradient = call.query.new_empty(call.query.shape)
    bias, bias_sum = call.bias, None
    if wants_bias and bias is not None:
        bias_sum = torch.zeros(bias.shape, dtype=torch.float32, device=bias.device)
    launch(
        query_kernel,
        _programs(call, size.BLOCK_M),
        setup,
        gradient.device,
        **shared,
        query_gradients=_heads(gradient),
        bias_gradients=_expand(bias_sum, None, call.shape),
        T=size,
    )
    return gradient, None if bias is None or bias_sum is None else bias_sum.to(bias.dtype)


def _key_side(call: Call, shared: dict[str, Any]) -> tuple[Tensor, Tensor]:
    setup, size = _setup("key_value", call, call.value.shape[3])
    key, value = call.key.new_empty(call.key.shape), call.value.new_empty(call.value.shape)
    launch(
        key_value_kernel,
        call.key.shape[0] * call.key.shape[1] * _ceil(call.key.shape[2], size.BLOCK_N),
        setup,
        key.device,
        **shared,
        key_gradients=_heads(key),
        value_gradients=_heads(value),
        T=size,
    )
    return key, value


def _sinks_gradient(sinks: Tensor, logsumexp: Tensor, delta: Tensor) -> Tensor:
    """-sum over queries of weight(sink) * delta: a sink's value is 0. Queries that see nothing leave it alone."""
    weight = torch.exp(sinks.float()[None, :, None] - logsumexp).masked_fill(logsumexp == -torch.inf, 0.0)
    return -(weight * delta).sum((0, 2)).to(sinks.dtype)


def _setup(kernel: str, call: Call | View, value_size: int) -> tuple[Config, Tile]:
    size, query = call.query.shape[3], call.query
    kernel = kernel if call.bias is None and call.mask.dense is None else "dense"
    setup = config(kernel, max(size, value_size), query.element_size(), capability(query.device))
    return setup, Tile(setup.block_m, setup.block_n, size, padded(size), value_size, padded(value_size))


def _inputs(call: Call | View) -> dict[str, Any]:
    """The arguments that nearly all kernels take."""
    return {
        "queries": _heads(call.query),
        "keys": _heads(call.key),
        "rules": rules_of(call),
        "heads": call.query.shape[1],
        "groups": call.key.shape[1],
    }


def _heads(tensor: Tensor) -> Heads:
    return Heads(tensor, tensor.stride())


def _expand(tensor: Tensor | None, axes: tuple[int, ...] | None, shape: tuple[int, ...]) -> Heads | None:
    """A tensor, laid out by `axes` if given, as [B, H, M, N] without copying."""
    if tensor is None:
        return None
    tensor = tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor
    return _heads((tensor if axes is None else tensor.reshape(axes)).expand(shape))


def _cells(where: slice, blocks: int) -> Cells:
    length = where.stop - where.start
    blocks = min(blocks, length)
    return Cells(where.start, length, blocks, _ceil(length, blocks))


def _side_by_side(axis: Cells, block: int) -> int:
    """How many cells of an axis fit in a tile, each in a slot that is a power of two."""
    return block // min(1 << (axis.widest - 1).bit_length(), block)


def _empty_statistics(like: Tensor) -> Statistics:
    types = {field.name: torch.int64 if field.name == "largest_key" else like.dtype for field in fields(Statistics)}
    return Statistics(**{name: torch.empty_like(like, dtype=kind) for name, kind in types.items()})


def _floats(call: Call | View, *shape: int) -> Tensor:
    return torch.empty(shape, dtype=torch.float32, device=call.query.device)


def _programs(call: Call | View, block: int) -> int:
    return call.shape[0] * call.shape[1] * _ceil(call.shape[2], block)


def _ceil(length: int, block: int) -> int:
    return -(length // -block)
