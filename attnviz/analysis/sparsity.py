"""What cheaper attention would lose: the mass a head keeps under a sparse pattern, and the error of its output.

Patterns keep a subset of the keys a query sees and renormalise over it. Linear attention (Katharopoulos et al. 2020,
arXiv 2006.16236) replaces exp(q.k) by phi(q).phi(k) with phi(x) = elu(x) + 1. The numbers are for this run's q, k and
v with the model as it is; a model trained with the pattern would do better than they say.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import UsageError
from ..head import Head
from ..views import QueryKey

if TYPE_CHECKING:
    import pandas as pd

_BAND = 256
"""Rows looked at together."""

Keeps = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(row positions [r, 1], key positions [1, N], weights [r, N]) to the kept ones, bool [r, N]."""


@dataclass(frozen=True)
class Pattern:
    """A named choice of keys."""

    name: str
    keeps: Keeps


def local(width: int) -> Pattern:
    """The keys fewer than `width` positions away."""
    return Pattern(f"local {width}", lambda i, j, w: (i - j).abs() < width)


def dilated(stride: int) -> Pattern:
    """Every `stride`-th key, counted from the query."""
    return Pattern(f"dilated {stride}", lambda i, j, w: (i - j) % stride == 0)


def streaming(first: int, width: int) -> Pattern:
    """The first tokens and a local window (Xiao et al. 2024, arXiv 2309.17453)."""
    return Pattern(f"first {first} + local {width}", lambda i, j, w: (j < first) | ((i - j).abs() < width))


def blocks(size: int) -> Pattern:
    """The query's own block, the one before and the first one."""
    return Pattern(f"blocks of {size}", lambda i, j, w: (i // size - j // size).abs().le(1) | (j < size))


def top(count: int) -> Pattern:
    """The `count` largest weights of each row."""

    def keeps(i: Tensor, j: Tensor, w: Tensor) -> Tensor:
        kept = torch.zeros_like(w, dtype=torch.bool)
        return kept.scatter_(1, w.topk(min(count, w.shape[1]), dim=1).indices, True)

    return Pattern(f"top {count}", keeps)


PATTERNS = (local(16), local(64), local(256), dilated(4), top(16), streaming(4, 64), streaming(4, 256), blocks(64))
"""What `sparsity` tries when nothing else is said."""


def sparsity(head: Head, patterns: Sequence[Pattern] = PATTERNS) -> pd.DataFrame:
    """One row per pattern: mass kept (mean over rows), keys kept (share of the visible), error of the output.

    error is ||sparse output - output|| / ||output|| over all rows, NaN for a trace recorded without values
    (keep="qkv" keeps them). The last row is linear attention, which keeps every key. Memory is O(N).
    """
    import pandas as pd

    value = head_value(head)
    named = [(pattern.name, pattern) for pattern in patterns]
    rows = [{"pattern": name, **_measure(head, pattern, value)} for name, pattern in named]
    if isinstance(head.view, QueryKey):
        rows.append({"pattern": "linear (elu + 1)", **_measure(head, None, value)})
    return pd.DataFrame(rows)


def head_value(head: Head) -> Tensor | None:
    """[N, E]: the values this head reads, where the trace kept them."""
    value = head.record.value
    if value is None:
        return None
    group = head.record.head_numbers.index(head.head) // (head.record.heads // value.shape[1])
    return value[head.batch, group, head.col_axis.valid]


def _measure(head: Head, pattern: Pattern | None, value: Tensor | None) -> dict[str, float]:
    rows, cols = head.shape
    key = torch.arange(cols)[None, :]
    own = head.view.own_keys()
    mass, kept, seen, wrong, size, counted = 0.0, 0.0, 0.0, 0.0, 0.0, 0
    for start in range(0, rows, _BAND):
        band = slice(start, min(start + _BAND, rows))
        weights = head.weights(band)
        sparse = _linear(head, band, weights) if pattern is None else None
        if pattern is not None:
            keeps = pattern.keeps(own[band, None], key, weights) & (weights > 0)
            sparse = weights * keeps
            mass += sparse.sum().item()
            kept += keeps.sum().item()
            total = sparse.sum(1, keepdim=True)
            sparse = torch.where(total > 0, sparse / total * weights.sum(1, keepdim=True), 0.0)
        seen += (weights > 0).sum().item()
        counted += int((weights > 0).any(1).sum())
        if value is not None and sparse is not None:
            read = value.to(weights.dtype)
            exact = weights @ read
            wrong += (sparse @ read - exact).square().sum().item()
            size += exact.square().sum().item()
    return {
        "mass": mass / counted if pattern else 1.0,
        "keys": kept / seen if pattern else 1.0,
        "error": (wrong / size) ** 0.5 if size else float("nan"),
    }


def _linear(head: Head, band: slice, weights: Tensor) -> Tensor:
    """Rows of the linear-attention map over the keys that the exact rows see."""
    assert isinstance(head.view, QueryKey)
    view = head.view.view
    scale = abs(view.scale) ** 0.5
    query, key = (
        torch.nn.functional.elu(x[0, 0].to(weights.dtype) * scale) + 1 for x in (view.query[:, :, band], view.key)
    )
    product = (query @ key.T) * (weights > 0)
    return product / product.sum(1, keepdim=True).clamp(min=1e-30)


def cost_table(
    lengths: Sequence[int] = (1024, 4096, 16384, 32768, 65536, 131072), *, head_size: int = 64
) -> pd.DataFrame:
    """What one head costs by length: multiplications, and float32 memory of the whole map against the tiles' O(N)."""
    import pandas as pd

    if min(lengths, default=0) < 1:
        raise UsageError(f"lengths must be positive numbers, got {list(lengths)}")
    return pd.DataFrame(
        [
            {
                "tokens": count,
                "multiplications, exact": 2 * count * count * head_size,
                "multiplications, local 256": 2 * count * min(count, 511) * head_size,
                "multiplications, linear": 2 * count * head_size * head_size,
                "map in bytes": 4 * count * count,
                "query, key and logsumexp in bytes": 4 * count * (2 * head_size + 1),
            }
            for count in lengths
        ]
    )
