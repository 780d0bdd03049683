"""The arguments of torch's attention functions in the terms of the kernels: four axes, and masks as structure."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from attnviz_kernels import Mask


@dataclass(frozen=True)
class Inputs:
    """One attention as `attnviz_kernels.attend` takes it: query [B, H, M, D], key [B, G, N, D], value [B, G, N, E].

    The last `extra` keys are the module's own (bias_k, a zero key), not positions of the sequence.
    """

    query: Tensor
    key: Tensor
    value: Tensor
    scale: float | None = None
    mask: Mask = field(default_factory=Mask)
    bias: Tensor | None = None
    softcap: float | None = None
    sinks: Tensor | None = None
    extra: int = 0

    def options(self) -> dict[str, Any]:
        """The keywords of `attend`."""
        names = ("scale", "mask", "bias", "softcap", "sinks")
        return {name: getattr(self, name) for name in names}

    def autocast(self) -> Inputs:
        """The call as it is under autocast, which lowers the precision of all but float64."""
        device = self.query.device.type
        if not torch.is_autocast_enabled(device):
            return self
        dtype = torch.get_autocast_dtype(device)
        if self.query.dtype == torch.float64:
            return self
        return replace(self, query=self.query.to(dtype), key=self.key.to(dtype), value=self.value.to(dtype))


def dot_product_inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    scale: float | None = None,
    batch: int | None = None,
) -> Inputs:
    """The arguments of `torch.nn.functional.scaled_dot_product_attention`, of any rank from two.

    batch is how many sequences the first axis of tensors of three axes holds; None means all of it, with one head.
    A causal mask is aligned top left, as torch defines it. Raises RuntimeError where shapes do not broadcast.
    """
    rank = max(tensor.dim() for tensor in (query, key, value))
    first = max(tensor.shape[0] for tensor in (query, key, value))
    if rank == 3 and len({query.shape[0], key.shape[0], 1}) == 3:
        batch = 1  # grouped heads of one sequence
    parts = [_four_axes(tensor, rank, first, batch) for tensor in (query, key, value)]
    lead = _broadcast([part.shape[:-3] for part in parts])
    groups = max(parts[1].shape[-3], parts[2].shape[-3])
    heads = (max(parts[0].shape[-3], groups), groups, groups)
    query, key, value = (
        part.expand(*lead, count, *part.shape[-2:]).flatten(0, -4) for part, count in zip(parts, heads, strict=True)
    )
    if attn_mask is None:
        return Inputs(query, key, value, scale, Mask(causal=is_causal))
    if attn_mask.dim() > rank:
        raise RuntimeError(f"attn_mask has {attn_mask.dim()} axes, query {rank}")
    dense = _four_axes(attn_mask, rank, first, batch)
    if len(lead) > 1:
        dense = dense.expand(*lead, *dense.shape[-3:]).flatten(0, -4)
    shape = (*query.shape[:3], key.shape[2])
    if _broadcast([dense.shape, torch.Size(shape)]) != shape:
        raise RuntimeError(f"attn_mask must broadcast to {shape}, got {tuple(attn_mask.shape)}")
    return Inputs(query, key, value, scale, mask_structure(dense, query.shape[0]))


def output_shape(query: Tensor, key: Tensor, value: Tensor) -> tuple[int, ...]:
    """The shape of scaled_dot_product_attention's output."""
    lead = _broadcast([tensor.shape[:-3] for tensor in (query, key, value)])
    heads = max(tensor.shape[-3:-2] for tensor in (query, key, value))
    return (*lead, *heads, query.shape[-2], value.shape[-1])


def multi_head_mask(
    attn_mask: Tensor | None, key_padding_mask: Tensor | None, batch: int, heads: int, extra: int
) -> tuple[Mask, Tensor | None]:
    """Mask and bias of `torch.nn.functional.multi_head_attention_forward`, whose boolean masks hide where True.

    extra columns (bias_k, the zero key) stand after the keys, and every query sees them.
    """
    mask, bias = Mask(), None
    if attn_mask is not None:
        dense = attn_mask.logical_not() if attn_mask.dtype == torch.bool else attn_mask
        dense = dense[None, None] if dense.dim() == 2 else dense.reshape(batch, heads, *dense.shape[1:])
        mask = mask_structure(_widen(dense, extra), batch)
    if key_padding_mask is not None:
        padding = key_padding_mask.logical_not() if key_padding_mask.dtype == torch.bool else key_padding_mask
        padding = _widen(padding.reshape(batch, 1, 1, -1), extra)
        structure = mask_structure(padding, batch)
        if structure.dense is None:
            mask = replace(mask, key_padding=structure.key_padding)
        else:
            bias = padding
    return mask, bias


def mask_structure(dense: Tensor, batch: int) -> Mask:
    """A mask that broadcasts to [B, H, M, N], bool (True = visible) or added to the scores, as structure.

    Key padding and causal masks are found out, all others stay as they are.
    """
    seen = _visible(dense)
    if seen is None:
        return Mask(dense=dense)
    if bool(seen.all()):
        return Mask()
    if _same_along(seen, 2) and _same_along(seen, 1):
        return Mask(key_padding=seen[:, 0, 0].expand(batch, -1))
    if _same_along(seen, 0) and _same_along(seen, 1):
        rows, cols = seen.shape[2:]
        for offset in {0, max(0, cols - rows)}:
            if torch.equal(seen[0, 0], seen.new_ones(rows, cols).tril(offset)):
                return Mask(causal=True, offset=offset)
    return Mask(dense=dense)


def _broadcast(shapes: list[torch.Size]) -> torch.Size:
    return torch.broadcast_shapes(*shapes)  # type: ignore[no-untyped-call, no-any-return]


def _visible(dense: Tensor) -> Tensor | None:
    """The mask as bool, or None where it adds anything but zero to a visible score."""
    if dense.dtype == torch.bool:
        return dense
    seen = dense == 0
    hidden = dense <= torch.finfo(dense.dtype).min / 2
    return seen if bool((seen | hidden).all()) else None


def _same_along(tensor: Tensor, axis: int) -> bool:
    first = tensor.narrow(axis, 0, 1)
    return tensor.shape[axis] == 1 or tensor.stride(axis) == 0 or torch.equal(first.expand_as(tensor), tensor)


def _widen(mask: Tensor, extra: int) -> Tensor:
    """The mask with visible columns added."""
    if not extra:
        return mask
    more = mask.new_ones(extra) if mask.dtype == torch.bool else mask.new_zeros(extra)
    return torch.cat([mask, more.expand(*mask.shape[:-1], extra)], dim=-1)


def _four_axes(tensor: Tensor, rank: int, first: int, batch: int | None) -> Tensor:
    """[..., H, M, D]; where the call has three axes, the first holds sequences, or sequences times heads."""
    if tensor.dim() == 2:
        return tensor[None, None]
    if tensor.dim() > 3:
        return tensor
    if rank > 3 or tensor.shape[0] != first:
        return tensor[None]
    return tensor[:, None] if batch is None or first % batch else tensor.reshape(batch, -1, *tensor.shape[1:])
