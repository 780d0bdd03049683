"""Where recorded tensors are kept: in memory under a budget, or in memory-mapped files."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..errors import BudgetError
from ..estimate import readable

SMALLEST_FILE = 1 << 16
"""Smaller tensors, such as those of one decoding step, stay in memory."""


class Store:
    """Keeps tensors and counts their bytes. budget None means the memory that is available when recording begins."""

    def __init__(self, budget: int | None, dtype: torch.dtype | None, spill: Path | None) -> None:
        self.budget = available() if budget is None else budget
        self.dtype = dtype
        self.spill = spill
        self.used = 0
        self._files = 0

    def vectors(self, tensor: Tensor, what: str) -> Tensor:
        """Queries, keys or values, in the dtype asked for."""
        return self.keep(tensor if self.dtype is None else tensor.to(self.dtype), what)

    def keep(self, tensor: Tensor, what: str) -> Tensor:
        """The tensor without its graph, copied only where it is a small part of the memory that it holds."""
        tensor = tensor.detach()
        size = tensor.nbytes
        if self.spill is not None and size >= SMALLEST_FILE:
            return self._spilled(tensor)
        self.count(size, what)
        return tensor.clone() if tensor.untyped_storage().nbytes() > 1.25 * size else tensor

    def count(self, size: int, what: str) -> None:
        """Add bytes to what is used, or raise BudgetError before memory runs out."""
        if self.used + size > self.budget:
            self.check(size, what)
        self.used += size

    def check(self, size: int, what: str) -> None:
        """Raise BudgetError where that many bytes more would not fit."""
        if self.used + size > self.budget:
            raise BudgetError(
                f"{what} would take the recording to {readable(self.used + size)}, the budget is"
                f" {readable(self.budget)}: pass a larger budget=, fewer layers= or heads=, dtype=torch.float16,"
                ' keep="statistics" or spill=folder'
            )

    def _spilled(self, tensor: Tensor) -> Tensor:
        assert self.spill is not None
        self.spill.mkdir(parents=True, exist_ok=True)
        path = self.spill / f"{self._files:06d}.bin"
        self._files += 1
        mapped = torch.from_file(str(path), shared=True, size=tensor.numel(), dtype=tensor.dtype)
        mapped = mapped.view(tensor.shape)
        mapped.copy_(tensor)
        return mapped


def available() -> int:
    """Bytes of memory that can be used without swapping."""
    import psutil

    return int(psutil.virtual_memory().available)
