"""Facts about attention that people can check on their own numbers: scaling, order, masking, several heads.

Vaswani et al. 2017 (arXiv 1706.03762) divide scores by sqrt(d_k) because large scores push softmax to where its
gradient vanishes; `scaling` shows this as the norm of the softmax Jacobian. Without position information attention
does not know order: `shuffled` shows that permuting the tokens permutes the map and changes nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..errors import UsageError

if TYPE_CHECKING:
    import pandas as pd


def softmax_row(scores: Tensor, divisor: float) -> Tensor:
    """softmax(scores / divisor) along the last axis; -inf hides a key."""
    if divisor <= 0:
        raise UsageError(f"the divisor must be positive, got {divisor}")
    return torch.softmax(scores.double() / divisor, dim=-1)


def jacobian_norm(weights: Tensor) -> Tensor:
    """[...]: Frobenius norm of d softmax / d scores = diag(p) - p p^T, along the last axis.

    It is sqrt(sum p^2 - 2 sum p^3 + (sum p^2)^2): 0 for a one-hot row, through which no gradient passes.
    """
    p = weights.double()
    square, cube = (p**2).sum(-1), (p**3).sum(-1)
    return (square - 2 * cube + square**2).clamp(min=0).sqrt()


def scaling(scores: Tensor, divisors: Sequence[float]) -> pd.DataFrame:
    """One row per divisor of one query's raw scores [N]: entropy (nats), largest weight, norm of the Jacobian."""
    import pandas as pd

    rows = []
    for divisor in divisors:
        weights = softmax_row(scores, divisor)
        rows.append(
            {
                "divisor": divisor,
                "entropy": -torch.xlogy(weights, weights).sum().item(),
                "largest": weights.max().item(),
                "jacobian": jacobian_norm(weights).item(),
            }
        )
    return pd.DataFrame(rows)


def shuffled(query: Tensor, key: Tensor, order: Sequence[int]) -> float:
    """The largest change of any weight between two tokens when [N, D] queries and keys are put in another order.

    Zero up to rounding: the weight between two tokens depends on the tokens only. Position information, added to
    queries and keys, or a causal mask is what makes order matter.
    """
    count = len(query)
    if sorted(order) != list(range(count)):
        raise UsageError(f"order must hold each of 0 to {count - 1} once")
    index = torch.tensor(order)
    before = softmax_row(query.double() @ key.double().T, query.shape[1] ** 0.5)
    after = softmax_row(query[index].double() @ key[index].double().T, query.shape[1] ** 0.5)
    return (after - before[index][:, index]).abs().max().item()


def masked(scores: Tensor, visible: Tensor) -> Tensor:
    """Weights [M, N] of scores with only visible keys: the unmasked weights, renormalised over what is left.

    Hiding keys never changes the ratio of two visible weights. A row that sees nothing is all zeros.
    """
    weights = torch.softmax(scores.double(), dim=-1) * visible
    total = weights.sum(-1, keepdim=True)
    return torch.where(total > 0, weights / total.where(total > 0, 1.0), 0.0)


def one_head_or_many(query: Tensor, key: Tensor, heads: int) -> pd.DataFrame:
    """The same [N, H * D] queries and keys read as one head and as `heads` heads: one row per head, and for all.

    Columns: heads, head (-1 for the single one), entropy (mean over rows, nats), largest (mean of the largest weight).
    Several heads look at several places at once; one head can only mix them.
    """
    import pandas as pd

    width = query.shape[1]
    if heads < 1 or width % heads:
        raise UsageError(f"heads must divide the width {width}, got {heads}")
    size = width // heads
    parts = [(1, -1, slice(None), width)]
    parts += [(heads, head, slice(head * size, (head + 1) * size), size) for head in range(heads)]
    rows = []
    for count, head, part, dimension in parts:
        weights = softmax_row(query[:, part].double() @ key[:, part].double().T, dimension**0.5)
        entropy = -torch.xlogy(weights, weights).sum(1).mean().item()
        rows.append({"heads": count, "head": head, "entropy": entropy, "largest": weights.max(1).values.mean().item()})
    return pd.DataFrame(rows)
