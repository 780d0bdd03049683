"""What is kept of each call."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch

from ..arguments import refuse
from ..errors import UsageError

KEEP = ("qk", "qkv", "statistics", "weights")


@dataclass(frozen=True)
class Options:
    """What is kept of each call; see `record`."""

    keep: str = "qk"
    layers: frozenset[int] | None = None
    heads: tuple[int, ...] | None = None
    dtype: torch.dtype | None = None
    budget: int | None = None
    spill: Path | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""
        if self.keep not in KEEP:
            raise UsageError(f"keep must be one of {', '.join(KEEP)}, got {self.keep!r}")
        if self.layers is not None and not self.layers:
            raise UsageError("layers must name at least one layer, got none")
        if self.heads is not None and (not self.heads or self.heads[0] < 0):
            raise UsageError(f"heads must name at least one head, counting from zero, got {list(self.heads)}")
        if self.budget is not None and (not isinstance(self.budget, int | float) or self.budget <= 0):
            raise UsageError(f"budget must be a positive number of bytes, got {self.budget}")
        if self.dtype is not None and not isinstance(self.dtype, torch.dtype):
            raise refuse("dtype", "a type of torch, such as torch.float16", self.dtype)
        if self.dtype is not None and not self.dtype.is_floating_point:
            raise UsageError(f"dtype must be a floating point type, got {self.dtype}")
