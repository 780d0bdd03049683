"""What transformers' mask functions mean, read as structure, so that no N x N mask is built.

transformers describes a mask as a small function of positions and lets the attention implementation turn it into a
tensor. `carrier` keeps the function's meaning instead: a tensor without memory that becomes the real mask as soon as
the model computes with it, and is read as structure where the model only hands it on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from attnviz_kernels import Mask

_FUNCTIONS = "transformers.masking_utils"
_METADATA = {getattr(Tensor, name).__get__ for name in ("shape", "dtype", "device", "ndim")} | {Tensor.size, Tensor.dim}
_SAME = {Tensor.contiguous, Tensor.detach}
"""What leaves a mask as it is."""


@dataclass(frozen=True)
class Pattern:
    """A mask function's conditions, all of which must hold; axes as in `attnviz_kernels.Mask`.

    chunk comes with the left padding [B] its blocks are counted from; packed are segment numbers [B, M] of packed
    sequences, whose positions [B, M] start anew.
    """

    causal: bool = False
    left: int | None = None
    right: int | None = None
    chunk: int | None = None
    left_padding: Tensor | None = None
    packed: Tensor | None = None
    positions: Tensor | None = None


@dataclass(frozen=True)
class Placed:
    """A mask as structure, and the absolute positions of the call's first query and first key, where they are known."""

    mask: Mask
    row_start: int | None = None
    key_start: int = 0


class Carrier(Tensor):
    """Stands for a mask [B, 1, M, N] without holding it; any computation on it sees the mask that eager gets."""

    placed: Placed
    build: Callable[[], Tensor]

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Answer shape, dtype and device; build the mask for everything else."""
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        if func in _SAME:
            return args[0]
        if func is Tensor.__getitem__ and _takes_rows(args[1]):
            return _some_rows(args[0], args[1])
        args, kwargs = _built(args), _built(kwargs or {})
        return func(*args, **kwargs)


def _takes_rows(index: Any) -> bool:
    """Whether an index takes queries one after another, and all of everything else."""
    if not isinstance(index, tuple) or len(index) not in (3, 4) or not all(isinstance(part, slice) for part in index):
        return False
    others = (*index[:2], *index[3:])
    return all(part == slice(None) for part in others) and index[2].step in (None, 1)


def _some_rows(whole: Carrier, index: tuple[slice, ...]) -> Carrier:
    """The carrier of some queries: models drop those that nothing later needs (Gemma 4)."""
    placed, mask = whole.placed, whole.placed.mask
    start, stop, _ = index[2].indices(whole.shape[2])
    segments = None if mask.segments is None else (mask.segments[0][:, start:stop], mask.segments[1])
    dense = mask.dense if mask.dense is None or mask.dense.shape[2] == 1 else mask.dense[:, :, start:stop]
    mask = replace(mask, offset=mask.offset + start, segments=segments, dense=dense)
    with torch._C.DisableTorchFunctionSubclass():
        part = whole[index].as_subclass(Carrier)
    part.placed = Placed(mask, None if placed.row_start is None else placed.row_start + start, placed.key_start)
    part.build = lambda: whole.build()[index]
    return part


def _built(value: Any) -> Any:
    """The same nest of arguments with every carrier replaced by its mask."""
    if isinstance(value, Carrier):
        return value.build()
    if isinstance(value, (list, tuple)):
        return type(value)(_built(part) for part in value)
    if isinstance(value, dict):
        return {name: _built(part) for name, part in value.items()}
    return value


def carrier(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Callable[..., Any] | None = None,
    attention_mask: Tensor | None = None,
    dtype: torch.dtype = torch.float32,
    allow_is_bidirectional_skip: bool = False,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Tensor | None:
    """The mask of one forward pass, for transformers' AttentionMaskInterface; None where every key may be seen."""
    from transformers.masking_utils import causal_mask_function, eager_mask, sdpa_mask

    function = causal_mask_function if mask_function is None else mask_function
    options = {
        **options,
        "batch_size": batch_size,
        "q_length": q_length,
        "kv_length": kv_length,
        "q_offset": q_offset,
        "kv_offset": kv_offset,
        "mask_function": function,
        "attention_mask": attention_mask,
        "device": device,
    }
    row_start, key_start = int(q_offset), int(kv_offset)
    pattern = read(function)
    if pattern is None:
        dense = sdpa_mask(**{**options, "allow_is_causal_skip": False})
        mask = Mask(dense=dense, offset=max(0, row_start - key_start))
    else:
        real = padding(attention_mask, batch_size, kv_length, key_start)
        mask = to_mask(pattern, real, (batch_size, q_length, kv_length), row_start, key_start)
        if allow_is_bidirectional_skip and replace(mask, offset=0) == Mask():
            return None
    empty = torch.zeros((), dtype=dtype, device=device).expand(batch_size, 1, q_length, kv_length)
    result = empty.as_subclass(Carrier)
    result.placed = Placed(mask, row_start, key_start)
    result.build = lambda: eager_mask(**options, dtype=dtype)
    return result


def padding(attention_mask: Tensor | None, batch: int, keys: int, start: int) -> Tensor | None:
    """[B, N] bool for keys start to start + N, or None where all are real; keys beyond the mask are not real."""
    if attention_mask is None:
        return None
    real = attention_mask.to(torch.bool)[:, start : start + keys]
    if real.shape[1] < keys:
        real = torch.nn.functional.pad(real, (0, keys - real.shape[1]))
    return None if bool(real.all()) else real.expand(batch, keys)


def to_mask(pattern: Pattern, real: Tensor | None, shape: tuple[int, int, int], row_start: int, key_start: int) -> Mask:
    """The kernel's mask for a call of shape (B, M, N) whose first query and key stand at absolute positions."""
    batch, rows, keys = shape
    offset = row_start - key_start
    window = None if pattern.left is None and pattern.right is None else (pattern.left, pattern.right)
    segments: Any = None
    chunk = pattern.chunk
    if pattern.packed is not None or (chunk is not None and not _aligned(pattern, key_start)):
        places = ((row_start, rows), (key_start, keys))
        segments = tuple(_segments(pattern, start, count).expand(batch, count) for start, count in places)
        chunk = None
    return Mask(pattern.causal, offset, window, chunk, real, segments)


def _aligned(pattern: Pattern, key_start: int) -> bool:
    assert pattern.chunk is not None
    shifted = pattern.left_padding is not None and bool(pattern.left_padding.any())
    return not shifted and key_start % pattern.chunk == 0


def _segments(pattern: Pattern, start: int, count: int) -> Tensor:
    """[B, count] numbers, equal where packing and chunks let two positions see each other."""
    if pattern.packed is not None:
        packed = pattern.packed[:, start : start + count]
        if pattern.chunk is None:
            return packed
        assert pattern.positions is not None
        return packed * (1 << 32) + _chunks(pattern, pattern.positions[:, start : start + count])
    device = None if pattern.left_padding is None else pattern.left_padding.device
    return _chunks(pattern, torch.arange(start, start + count, device=device)[None])


def _chunks(pattern: Pattern, position: Tensor) -> Tensor:
    assert pattern.chunk is not None
    moved = position if pattern.left_padding is None else position - pattern.left_padding.reshape(-1, 1)
    return torch.div(moved, pattern.chunk, rounding_mode="floor")


def read(function: Callable[..., Any]) -> Pattern | None:
    """The conditions of one of transformers' own mask functions, or None for any other."""
    if getattr(function, "__module__", None) != _FUNCTIONS:
        return None
    name = getattr(function, "__qualname__", "")
    if name in ("causal_mask_function", "bidirectional_mask_function"):
        return Pattern(causal=name.startswith("causal"))
    kept = _closure(function)
    match name.split(".")[0]:
        case "and_masks":
            return _all_of([read(part) for part in kept["mask_functions"]])
        case "sliding_window_overlay":
            return Pattern(left=kept["sliding_window"] - 1)
        case "sliding_window_bidirectional_overlay":
            return Pattern(left=kept["sliding_window"], right=kept["sliding_window"])
        case "chunked_overlay":
            return Pattern(chunk=kept["chunk_size"], left_padding=kept["left_padding"])
        case "packed_sequence_mask_function":
            return Pattern(packed=kept["packed_sequence_mask"])
        case "remap_positions_for_packed_sequence":
            inner = read(kept["mask_function"])
            return None if inner is None else replace(inner, positions=kept["position_ids"])
    return None


def _closure(function: Callable[..., Any]) -> dict[str, Any]:
    code, cells = function.__code__, function.__closure__ or ()
    return {name: cell.cell_contents for name, cell in zip(code.co_freevars, cells, strict=True)}


def _all_of(parts: list[Pattern | None]) -> Pattern | None:
    """All conditions together, or None where one is not known or two would have to be merged."""
    merged: dict[str, Any] = {}
    for part in parts:
        if part is None:
            return None
        for name in Pattern.__dataclass_fields__:
            value = getattr(part, name)
            if value is None or value is False:
                continue
            if name in merged and name != "causal":
                return None
            merged[name] = value
    # positions that start anew keep their order and distance only within one packed sequence
    return None if "positions" in merged and "packed" not in merged else Pattern(**merged)
