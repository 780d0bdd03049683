"""The last queries of a call, computed once more by the model's own eager attention: no difference goes unnoticed.

A model may hand its attention function something whose meaning is not known here. Whatever it is, it shows in the
weights of a few rows, so the first call of each kind of module is compared before its output is used.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnviz_kernels import tile
from attnviz_kernels.reference import visible

from ..errors import RecordingError
from .heard import Heard
from .modules import methods

ROWS = 2
TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-3}
"""Far above rounding, far below what a forgotten mask, sink or scale does; half precision gets 0.05."""


def eager_function(kind: type[nn.Module]) -> Any:
    """The function that a class of modules uses where `attn_implementation` is "eager", or None."""
    for function in methods(kind):
        for name in function.__code__.co_names:
            if name.startswith("eager") and callable(function.__globals__.get(name)):
                return function.__globals__[name]
    return None


@torch.no_grad()
def verify(module: nn.Module, heard: Heard, output: Tensor, keywords: dict[str, Any]) -> None:
    """RecordingError where the module's own eager attention gives other weights or outputs for the last rows.

    output is [B, H, M, E]; keywords are those of the call besides query, key, value, mask and dropout.
    """
    eager = eager_function(type(module))
    if eager is None:
        return
    count = heard.view.query.shape[2]
    rows = slice(max(0, count - ROWS), count)
    view = heard.view.crop(rows, slice(None))
    mask, seen = _additive(view)
    bias = keywords.get("position_bias")
    keywords = keywords if bias is None else {**keywords, "position_bias": _last(bias, count, rows)}
    own_output, own = eager(module, view.query, view.key, heard.value, mask, dropout=0.0, **keywords)
    own_output = own_output.transpose(1, 2)
    allowed = TOLERANCE.get(view.query.dtype, 0.05)
    found = tile(view)
    if view.sinks is not None and own is not None:  # some models return weights that leave their sink out
        found, own = found / found.sum(-1, keepdim=True), own / own.sum(-1, keepdim=True)
    wrong = _far(found, own, seen, allowed) or _far(output[:, :, rows], own_output, seen, allowed)
    if wrong is not None:
        raise RecordingError(
            f"{type(module).__name__} computes attention in a way that is not known here: its own eager attention"
            f" differs by {wrong:.2g}; load the model with eager attention and use attnviz.tap"
        )


def _additive(view: Any) -> tuple[Tensor, Tensor]:
    """The mask of a few rows as eager attention takes it, and which rows see a key, [B, H or 1, rows, 1]."""
    seen = visible(view.mask, view.shape, view.query.device)
    dtype = view.query.dtype
    lowest = max(torch.finfo(dtype).min, torch.finfo(torch.float32).min)  # eager softmax is often in float32
    mask = torch.zeros(seen.shape, dtype=dtype, device=seen.device).masked_fill(~seen, lowest)
    dense = view.mask.dense
    if dense is not None and dense.dtype != torch.bool:
        mask = mask + dense.to(dtype).masked_fill(~seen, 0)
    return mask.expand(view.shape[0], -1, -1, -1), seen.any(-1, keepdim=True)


def _last(value: Any, count: int, rows: slice) -> Any:
    """The rows of a bias that broadcasts to [B, H, M, N]."""
    one_for_all = not isinstance(value, Tensor) or value.shape[-2] != count
    return value if one_for_all else value[..., rows, :]


def _far(found: Tensor, own: Tensor | None, seen: Tensor, allowed: float) -> float | None:
    """By how much two results differ where that is more than `allowed`, relative to the largest; NaN is."""
    if own is None:
        return None
    own = own.float() if own.dtype != torch.float64 else own
    off = torch.where(seen, found.to(own.dtype) - own, 0).abs().max().item()
    scale = max(1.0, torch.where(seen, own, 0).abs().max().item())
    return None if off <= allowed * scale else off
