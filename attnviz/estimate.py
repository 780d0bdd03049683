"""What recording attention takes: arithmetic on a model's numbers, nothing is loaded.

Eager attention holds the whole N x N map of every head; attnviz holds query, key, logsumexp and the statistics.
"""

from __future__ import annotations

from dataclasses import dataclass

STATISTICS_BYTES = 6 * 4 + 8
"""Per row and head: six float32 numbers and the int64 key of the largest weight."""


@dataclass(frozen=True)
class Estimate:
    """Bytes at a length of N tokens, one sequence.

    map_fp16, map_fp32   one head's map
    eager_fp16, eager_fp32   the maps of all heads of all layers, which output_attentions=True returns
    attnviz   query, key, logsumexp and statistics of all layers, float32
    """

    length: int
    map_fp16: int
    map_fp32: int
    eager_fp16: int
    eager_fp32: int
    attnviz: int


def estimate(*, layers: int, heads: int, groups: int, head_size: int, length: int) -> Estimate:
    """The `Estimate` of L layers with H query heads, G key/value heads of size D, at N = length."""
    cells = length * length
    row = heads * (head_size * 4 + 4 + STATISTICS_BYTES) + groups * head_size * 4
    return Estimate(
        length=length,
        map_fp16=2 * cells,
        map_fp32=4 * cells,
        eager_fp16=2 * cells * heads * layers,
        eager_fp32=4 * cells * heads * layers,
        attnviz=layers * length * row,
    )


def readable(amount: float) -> str:
    """Bytes in words: "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
