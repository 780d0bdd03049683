"""How many keys each query may see, from the mask's structure alone."""

from __future__ import annotations

import torch
from torch import Tensor

from .spec import Call, Mask, View, hides

_BAND = 1 << 22
"""Cells of a mask looked at together where its structure does not give the count."""


def visible_keys(view: Call | View) -> Tensor:
    """[B, H, M] int64: the number of keys that each query may see.

    O(M + N) for causal, window, chunk and key padding; segments and dense masks are counted band by band.
    """
    batch, heads, rows, cols = view.shape
    mask, device = view.mask, view.query.device
    low, high = key_interval(mask, torch.arange(rows, device=device), cols)
    if mask.segments is None and mask.dense is None:
        real = torch.ones(batch, cols, dtype=torch.int64, device=device)
        if mask.key_padding is not None:
            real = mask.key_padding.to(torch.int64)
        before = torch.cat([real.new_zeros(batch, 1), real.cumsum(1)], dim=1)
        return (before[:, high] - before[:, low])[:, None].expand(batch, heads, rows)
    step = max(1, _BAND // (cols * batch * heads))
    bands = [_count(mask, low, high, cols, slice(top, min(top + step, rows))) for top in range(0, rows, step)]
    return torch.cat(bands, dim=-1).expand(batch, heads, rows)


def key_interval(mask: Mask, rows: Tensor, cols: int) -> tuple[Tensor, Tensor]:
    """First and one past the last key position that causal, window and chunk leave to each query index; low <= high."""
    position = rows + mask.offset
    low, high = torch.zeros_like(position), torch.full_like(position, cols)
    if mask.causal:
        high = torch.minimum(high, position + 1)
    left, right = mask.window or (None, None)
    if left is not None:
        low = torch.maximum(low, position - left)
    if right is not None:
        high = torch.minimum(high, position + right + 1)
    if mask.chunk is not None:
        start = torch.div(position, mask.chunk, rounding_mode="floor") * mask.chunk
        low, high = torch.maximum(low, start), torch.minimum(high, start + mask.chunk)
    low = low.clamp(0, cols)
    return low, torch.maximum(high.clamp(0, cols), low)


def _count(mask: Mask, low: Tensor, high: Tensor, cols: int, band: slice) -> Tensor:
    key = torch.arange(cols, device=low.device)
    seen = ((key >= low[band, None]) & (key < high[band, None]))[None, None]
    if mask.key_padding is not None:
        seen = seen & mask.key_padding[:, None, None, :]
    if mask.segments is not None:
        seen = seen & (mask.segments[0][:, None, band, None] == mask.segments[1][:, None, None, :])
    if mask.dense is not None:
        dense = mask.dense if mask.dense.dim() < 2 or mask.dense.shape[-2] == 1 else mask.dense[..., band, :]
        seen = seen & (dense if dense.dtype == torch.bool else ~hides(dense))
    return seen.sum(-1)
