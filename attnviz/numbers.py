"""Numbers on their way into files."""

from __future__ import annotations

from torch import Tensor


def shortest(values: Tensor) -> list[float]:
    """The values as the Python numbers with the fewest digits that still give back the same float32 (or float64).

    >>> import torch
    >>> shortest(torch.tensor([0.1, 1 / 3]))
    [0.1, 0.33333334]
    """
    found = values.detach().cpu()
    if found.dtype.itemsize != 8:
        found = found.float()
    return [float(str(value)) for value in found.flatten().numpy()]
