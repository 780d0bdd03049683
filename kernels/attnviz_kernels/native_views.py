"""Functions of a finished call by the compiled kernel: see kernels/native/views.cpp."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from .native_describe import describe, described, isa, unavailable
from .spec import View

if TYPE_CHECKING or unavailable() is None:
    from . import _native


def tile(view: View, rows: slice, cols: slice) -> Tensor:
    """weights[..., rows, cols], [B, H, rows, cols]."""
    out = torch.empty(*view.shape[:2], rows.stop - rows.start, cols.stop - cols.start)
    return _run(_native.TILE, view, out, rows, cols)


def pool(view: View, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
    """[B, H, R, C] block means or maxima of weights[..., rows, cols]."""
    sizes = (min(rows.stop - rows.start, shape[0]), min(cols.stop - cols.start, shape[1]))
    return _run(_native.POOL, view, torch.empty(*view.shape[:2], *sizes), rows, cols, largest=reduce == "max")


def received(view: View) -> Tensor:
    """[B, H, N]: the sum of each column, over all queries."""
    batch, heads, _, cols = view.shape
    return _run(_native.RECEIVED, view, torch.empty(batch, heads, cols, 1))[..., 0]


def push(view: View, vector: Tensor) -> Tensor:
    """weights @ vector, [B, H, M, E]."""
    return _run(_native.PUSH, view, torch.empty(*view.shape[:3], vector.shape[3]), vector=vector)


def pull(view: View, vector: Tensor) -> Tensor:
    """weights.T @ vector, [B, H, N, E]."""
    batch, heads, _, cols = view.shape
    return _run(_native.PULL, view, torch.empty(batch, heads, cols, vector.shape[3]), vector=vector)


def _run(
    kind: int,
    view: View,
    out: Tensor,
    rows: slice | None = None,
    cols: slice | None = None,
    vector: Tensor | None = None,
    largest: bool = False,
) -> Tensor:
    """Fills `out` and returns it."""
    keep = [view.logsumexp.to(torch.float32)]
    look = _native.View()
    look.logsumexp, look.out = described(keep[0]), out.data_ptr()
    rows, cols = rows or slice(0, view.shape[2]), cols or slice(0, view.shape[3])
    look.row_begin, look.row_end, look.col_begin, look.col_end = rows.start, rows.stop, cols.start, cols.stop
    look.R, look.C, look.largest = out.shape[2], out.shape[3], largest
    if vector is not None:
        keep.append(vector.to(torch.float32))
        look.width = vector.shape[3]
        look.vector = described(keep[-1], (*view.shape[:2], *vector.shape[2:]))
    _native.view(isa(), torch.get_num_threads(), kind, describe(view, keep), look)
    return out
