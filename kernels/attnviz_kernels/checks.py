"""Refuses calls that break the contract: one line that names the argument, the rule and the value."""

from __future__ import annotations

import math
from numbers import Integral, Real

import torch
from torch import Tensor

from .spec import FLOATS, ArgumentError, Call, Emit, Mask, View

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None,
    mask: Mask,
    softcap: float | None,
    bias: Tensor | None,
    sinks: Tensor | None,
    emit: Emit,
) -> Call:
    """A `Call` whose every argument keeps the contract, or ArgumentError naming the one that does not."""
    _check_tensors(query, key, value)
    batch, heads, rows, size = query.shape
    shape = (batch, heads, rows, key.shape[2])
    scale = 1.0 / math.sqrt(size) if scale is None else scale
    if not _is_finite(scale):
        raise ArgumentError(f"scale must be a finite number or None, got {scale}")
    if softcap is not None and (not _is_finite(softcap) or softcap <= 0):
        raise ArgumentError(f"softcap must be positive or None, got {softcap}")
    if bias is not None:
        _check_floats("bias", bias)
        _check_broadcast("bias", bias, shape, query.device)
    if sinks is not None:
        _check_floats("sinks", sinks)
        _check_shape("sinks", sinks, (heads,), query.device)
    _check_mask(mask, shape, query.device)
    _check_emit(emit, shape)
    return Call(query, key, value, float(scale), mask, softcap, bias, sinks)


def check_grid(name: str, grid: object) -> None:
    """Refuse anything but two positive whole numbers."""
    fits = isinstance(grid, tuple | list) and len(grid) == 2 and all(_is_count(blocks, 1) for blocks in grid)
    if not fits:
        raise ArgumentError(f"{name} must be two positive whole numbers, got {grid}")


def check_vector(vector: Tensor, view: View, axis: str) -> None:
    """Refuse a vector that does not fit the view: [B, H, N, E] for axis="keys", [B, H, M, E] for axis="queries"."""
    batch, heads, rows, cols = view.shape
    length = cols if axis == "keys" else rows
    shape = tuple(vector.shape)
    fits = len(shape) == 4 and shape[0] in (1, batch) and shape[1] in (1, heads) and shape[2] == length
    if not fits:
        raise ArgumentError(f"vector must have shape ({batch} or 1, {heads} or 1, {length}, any), got {shape}")
    _check_device("vector", vector, view.query.device)


def _check_tensors(query: Tensor, key: Tensor, value: Tensor) -> None:
    for name, tensor in (("query", query), ("key", key), ("value", value)):
        if not isinstance(tensor, Tensor):
            raise ArgumentError(f"{name} must be a tensor, got {type(tensor).__name__}")
        if tensor.dim() != 4:
            raise ArgumentError(f"{name} must have 4 axes [batch, heads, positions, size], got {tuple(tensor.shape)}")
        if tensor.dtype not in FLOATS:
            raise ArgumentError(f"{name} must be float16, bfloat16, float32 or float64, got {tensor.dtype}")
        if 0 in tensor.shape:
            raise ArgumentError(f"{name} must have no empty axis, got {tuple(tensor.shape)}")
        if tensor.dtype != query.dtype:
            raise ArgumentError(f"{name} must have the dtype of query ({query.dtype}), got {tensor.dtype}")
        _check_device(name, tensor, query.device)
    batch, heads, _, size = query.shape
    groups, place = key.shape[1], tuple(key.shape[:3])
    if key.shape[0] != batch:
        raise ArgumentError(f"key must have the batch size of query ({batch}), got {key.shape[0]}")
    if key.shape[3] != size:
        raise ArgumentError(f"key must have the head size of query ({size}), got {key.shape[3]}")
    if heads % groups:
        raise ArgumentError(f"key must have a number of heads that divides query's ({heads}), got {groups}")
    got = tuple(value.shape[:3])
    if got != place:
        raise ArgumentError(f"value must have the batch, heads and positions of key {place}, got {got}")


def _check_mask(mask: Mask, shape: tuple[int, int, int, int], device: torch.device) -> None:
    if not isinstance(mask, Mask):
        raise ArgumentError(f"mask must be a Mask, got {type(mask).__name__}; a tensor goes into Mask(dense=...)")
    batch, _, rows, cols = shape
    if not _is_count(mask.offset):
        raise ArgumentError(f"mask.offset must be a whole number >= 0, got {mask.offset}")
    chunk = mask.chunk
    if chunk is not None and not _is_count(chunk, 1):
        raise ArgumentError(f"mask.chunk must be a positive whole number or None, got {chunk}")
    _check_window(mask.window)
    if mask.key_padding is not None:
        if mask.key_padding.dtype != torch.bool:
            raise ArgumentError(f"mask.key_padding must be bool, got {mask.key_padding.dtype}")
        _check_shape("mask.key_padding", mask.key_padding, (batch, cols), device)
    if mask.segments is not None:
        pair = isinstance(mask.segments, tuple | list) and len(mask.segments) == 2
        if not pair:
            raise ArgumentError("mask.segments must be two tensors, of the queries and of the keys")
        for index, length in enumerate((rows, cols)):
            name, tensor = f"mask.segments[{index}]", mask.segments[index]
            if tensor.dtype not in INTEGERS:
                raise ArgumentError(f"{name} must hold integers, got {tensor.dtype}")
            _check_shape(name, tensor, (batch, length), device)
    if mask.dense is not None:
        if mask.dense.dtype != torch.bool:
            _check_floats("mask.dense", mask.dense, " or bool")
        _check_broadcast("mask.dense", mask.dense, shape, device)


def _check_window(window: tuple[int | None, int | None] | None) -> None:
    if window is not None:
        pair = isinstance(window, tuple | list) and len(window) == 2
        fits = pair and all(side is None or _is_count(side) for side in window)
        if not fits:
            raise ArgumentError(f"mask.window must be (left, right), each a whole number >= 0 or None, got {window}")


def _check_emit(emit: Emit, shape: tuple[int, int, int, int]) -> None:
    if not isinstance(emit, Emit):
        raise ArgumentError(f"emit must be an Emit, got {type(emit).__name__}")
    _, heads, rows, _ = shape
    if emit.pooled is not None:
        check_grid("emit.pooled", emit.pooled)
    for head in emit.heads if emit.heads is not None else ():
        if not _is_count(head) or head >= heads:
            raise ArgumentError(f"emit.heads must lie in 0 to {heads - 1}, got {head}")
    if emit.rows is not None:
        inside = isinstance(emit.rows, range) and 0 <= emit.rows.start < emit.rows.stop <= rows and emit.rows.step == 1
        if not inside:
            raise ArgumentError(f"emit.rows must be a contiguous range within 0 to {rows}, got {emit.rows}")
    if not emit.weights and (emit.heads is not None or emit.rows is not None):
        raise ArgumentError("emit.heads and emit.rows need emit.weights=True")


def _check_floats(name: str, tensor: Tensor, also: str = "") -> None:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.dtype not in FLOATS:
        raise ArgumentError(f"{name} must be floating point{also}, got {tensor.dtype}")


def _check_shape(name: str, tensor: Tensor, want: tuple[int, ...], device: torch.device) -> None:
    if tuple(tensor.shape) != want:
        raise ArgumentError(f"{name} must have shape {want}, got {tuple(tensor.shape)}")
    _check_device(name, tensor, device)


def _check_broadcast(name: str, tensor: Tensor, shape: tuple[int, int, int, int], device: torch.device) -> None:
    padded = (1,) * (4 - tensor.dim()) + tuple(tensor.shape)
    fits = len(padded) == 4 and all(have in (1, want) for have, want in zip(padded, shape, strict=True))
    if not fits:
        raise ArgumentError(
            f"{name} must broadcast to [batch, heads, queries, keys] {shape}, got {tuple(tensor.shape)}"
        )
    _check_device(name, tensor, device)


def _check_device(name: str, tensor: Tensor, device: torch.device) -> None:
    if tensor.device != device:
        raise ArgumentError(f"{name} must be on the device of query ({device}), got {tensor.device}")


def _is_finite(number: object) -> bool:
    return isinstance(number, Real) and math.isfinite(number)


def _is_count(number: object, least: int = 0) -> bool:
    return isinstance(number, Integral) and int(number) >= least
