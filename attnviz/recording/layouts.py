"""Weights that models lay out in their own ways, in token coordinates."""

from __future__ import annotations

import torch
from torch import Tensor


def banded_to_dense(weights: Tensor, everywhere: Tensor | None, rows_everywhere: Tensor | None) -> Tensor:
    """[B, H, N, N] from the layout of Longformer (Beltagy et al. 2020, arXiv 2004.05150).

    weights [B, H, N, X + 2 W + 1]: X columns for the tokens that are attended to from everywhere, then the window,
    whose column k of row i is token i - W + k. everywhere [B, N] marks those tokens; rows_everywhere [B, H, N, X] are
    the weights of their own rows, keys first.
    """
    batch, heads, count, width = weights.shape
    extra = 0 if everywhere is None else int(everywhere.sum(1).max())
    window = (width - extra) // 2
    device = weights.device
    places = torch.arange(count, device=device)[:, None] + torch.arange(width - extra, device=device)
    dense = weights.new_zeros(batch, heads, count, count + 2 * window)
    dense.scatter_(3, places.expand(batch, heads, -1, -1), weights[..., extra:])
    dense = dense[..., window : window + count].contiguous()
    if everywhere is None or extra == 0:
        return dense
    for sequence in range(batch):
        chosen = torch.nonzero(everywhere[sequence])[:, 0]
        one = dense[sequence]
        one[:, :, chosen] += weights[sequence, :, :, : len(chosen)]
        if rows_everywhere is not None:
            own = rows_everywhere[sequence, :, :count, : len(chosen)]
            one[:, chosen] = own.transpose(1, 2)
    return dense


def without_padding(weights: Tensor, rows: int, cols: int) -> Tensor:
    """The map without what a model adds to fill its last block, and without the empty places of a static cache."""
    height, width = weights.shape[2:]
    if rows == 0 or height < rows or width <= cols:
        return weights
    hidden = weights[:, :, :rows, cols:]
    return weights if bool((hidden > 0).any()) else weights[:, :, :rows, :cols]
