"""Numbers on their way into files and sentences."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


def many(count: int, one: str, more: str | None = None) -> str:
    """A count with its noun.

    >>> many(1, "token"), many(2048, "token"), many(2, "query", "queries")
    ('1 token', '2,048 tokens', '2 queries')
    """
    return f"{count:,} {one if count == 1 else more or one + 's'}"


def percent(share: float) -> str:
    """A share in per cent: two digits, no exponents.

    >>> percent(9.8e-7), percent(0.0123), percent(1.234)
    ('below 0.01 %', '1.2 %', '123 %')
    """
    value = 100 * share
    if 0 < value < 0.01:
        return "below 0.01 %"
    return f"{value:,.0f} %" if value >= 10 else f"{value:.2g} %"
