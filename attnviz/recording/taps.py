"""Rung 4: weights that a module has computed itself, handed over by one line in it."""

from __future__ import annotations

import torch
from torch import Tensor

from ..errors import RecordingError
from ..trace import AXES
from .chains import Origin
from .watch import watching

RUNG = "tap"

_TOLERANCE = {torch.float64: 1e-6, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""How far a row's sum may be from one; halves are rounded to 8 or 11 bits."""


def tap(weights: Tensor, *, name: str, layer: int | None = None, kind: str = "self") -> Tensor:
    """Record attention weights [B, H, M, N] that a module computed by hand; does nothing outside `record`.

        weights = attnviz.tap(torch.softmax(scores, -1), name="mixing")

    Each row must sum to one, or to zero where a query sees no key: tap before dropout. layer None takes the number
    from the module's place in the model; kind is "self", "encoder", "decoder" or "cross". Returns the weights.

    Raises RecordingError for anything that is not attention weights, BudgetError when memory would run out.
    """
    watches = () if torch.compiler.is_compiling() else watching()  # compiled code does not run while recording
    if watches:
        refuse(weights, name, kind)
        kept = weights.detach().clone()
        for watch in watches:
            watch.chains.add_weights(watch.here, Origin(RUNG, kind, name, layer, "model"), kept)
    return weights


def refuse(weights: Tensor, name: str, kind: str) -> None:
    """RecordingError that says why these are no attention weights."""
    if kind not in AXES:
        raise RecordingError(f"tap {name!r}: kind must be one of {', '.join(AXES)}, got {kind!r}")
    if not isinstance(weights, Tensor):
        raise RecordingError(f"tap {name!r} takes a tensor of weights, got {type(weights).__name__}")
    shape = tuple(weights.shape)
    if len(shape) != 4 or 0 in shape:
        raise RecordingError(f"tap {name!r} takes weights with 4 axes [batch, heads, queries, keys], got {shape}")
    if weights.dtype not in _TOLERANCE:
        raise RecordingError(f"tap {name!r} takes floating point weights, got {weights.dtype}")
    sums = weights.detach().sum(-1, dtype=torch.float64 if weights.dtype == torch.float64 else torch.float32)
    off = ((sums - 1).abs() > _TOLERANCE[weights.dtype]) & (sums != 0)
    off |= (weights.detach() < 0).any(-1) | sums.isnan()
    if bool(off.any()):
        place = tuple(int(number) for number in off.nonzero()[0])
        raise RecordingError(
            f"tap {name!r} takes weights whose rows sum to one and are not negative, but row {list(place)} sums to"
            f" {float(sums[place]):.4g}: tap the result of softmax over the last axis, before dropout"
        )
