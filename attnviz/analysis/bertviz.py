"""Weights and tokens as BertViz takes them (Vig 2019, arXiv 1906.05714)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..errors import BudgetError
from ..head import BUDGET
from ..tokens import Token
from ..trace import Trace

_KINDS = ("encoder", "decoder", "cross")


def bertviz_arguments(trace: Trace, layers: Sequence[int] | None = None, *, budget: int = BUDGET) -> dict[str, Any]:
    """Keyword arguments for bertviz.head_view and bertviz.model_view: one tensor [1, H, M, N] a layer, and the tokens.

    layers chooses some by the model's own numbers; BertViz counts what it gets from zero. Of an encoder-decoder model
    all three kinds of attention are given. Raises BudgetError when the weights take more than `budget` bytes.
    """
    parts = {kind: trace.only(kind) for kind in trace.kinds if kind != "pool"}
    need = sum(_bytes(part, layers) for part in parts.values())
    if need > budget:
        raise BudgetError(f"BertViz needs {need:,} bytes of weights, the budget is {budget:,}: give layers= or budget=")
    if not set(parts) & set(_KINDS):
        (part,) = parts.values()
        return {"attention": _weights(part, layers), "tokens": _pieces(part.tokens)}
    found: dict[str, Any] = {f"{kind}_attention": _weights(part, layers) for kind, part in parts.items()}
    head = {kind: part.every_head()[0] for kind, part in parts.items()}
    sides = {"encoder": [("encoder", 0), ("cross", 1)], "decoder": [("decoder", 0), ("cross", 0)]}
    for name, places in sides.items():
        axes = [(head[kind].rows, head[kind].cols)[side] for kind, side in places if kind in head]
        found |= {f"{name}_tokens": _pieces(tokens) for tokens in axes[:1]}
    return found


def _bytes(trace: Trace, layers: Sequence[int] | None) -> int:
    heads = [trace[layer, number] for layer in _chosen(trace, layers) for number in trace.record(layer).head_numbers]
    return sum(4 * head.shape[0] * head.shape[1] for head in heads)


def _chosen(trace: Trace, layers: Sequence[int] | None) -> Sequence[int]:
    return trace.layers if layers is None else layers


def _weights(trace: Trace, layers: Sequence[int] | None) -> list[Tensor]:
    return [
        torch.stack([trace[layer, number].weights() for number in trace.record(layer).head_numbers])[None].cpu()
        for layer in _chosen(trace, layers)
    ]


def _pieces(tokens: Sequence[Token]) -> list[str]:
    """The tokenizer's own pieces, from which BertViz itself makes readable text."""
    return [token.raw for token in tokens]
