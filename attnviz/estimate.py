"""What recording attention takes: arithmetic on a model's numbers, nothing is loaded.

Eager attention holds the whole N x N map of every head; attnviz holds query, key, logsumexp and the statistics.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

STATISTICS_BYTES = 6 * 4 + 8
"""Per row and head: six float32 numbers, and the int64 key of the largest weight."""


@dataclass(frozen=True)
class AttentionShape:
    """Attention calls of one forward pass, and each one's H query heads, G key/value heads of size D."""

    calls: int
    heads: int
    groups: int
    head_size: int


@dataclass(frozen=True)
class Estimate:
    """Bytes for one sequence of N = length tokens.

    map_fp16, map_fp32       one head's map
    eager_fp16, eager_fp32   the maps of all heads of all calls, which output_attentions=True returns
    attnviz                  query, key, logsumexp and statistics of all calls, float32
    """

    length: int
    map_fp16: int
    map_fp32: int
    eager_fp16: int
    eager_fp32: int
    attnviz: int


def shape_of(config: Any) -> AttentionShape:
    """The numbers of a transformers configuration; of a model of several towers, those of its text.

    Layers that do not attend (linear attention, state spaces, convolutions) are left out where the configuration says
    so; a decoder with cross-attention counts twice.
    """
    text = config.get_text_config()
    heads = text.num_attention_heads
    calls = text.num_hidden_layers
    kinds = getattr(text, "layer_types", None)
    if kinds:
        calls = sum("attention" in kind and "linear" not in kind for kind in kinds)
    if config.is_encoder_decoder:
        decoder = getattr(text, "decoder_layers", None) or getattr(text, "num_decoder_layers", None) or calls
        calls += 2 * decoder
    size = getattr(text, "head_dim", None) or getattr(text, "d_kv", None) or text.hidden_size // heads
    return AttentionShape(calls, heads, getattr(text, "num_key_value_heads", None) or heads, size)


def estimate(shape: AttentionShape, length: int) -> Estimate:
    """The `Estimate` at N = length."""
    cells = length * length
    maps = cells * shape.heads * shape.calls
    row = shape.heads * (shape.head_size * 4 + 4 + STATISTICS_BYTES) + shape.groups * shape.head_size * 4
    return Estimate(
        length=length,
        map_fp16=2 * cells,
        map_fp32=4 * cells,
        eager_fp16=2 * maps,
        eager_fp32=4 * maps,
        attnviz=shape.calls * length * row,
    )


def most_tokens(config: Any) -> int | None:
    """How many positions a configuration has; None where positions are not counted (relative ones, state spaces)."""
    found = getattr(config.get_text_config(), "max_position_embeddings", None)
    return found if isinstance(found, int) and found > 0 else None


def readable(amount: float) -> str:
    """Bytes in words: "1.5 GiB"."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if amount < 1024:
            return f"{amount:.0f} {unit}" if unit == "bytes" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} TiB"
