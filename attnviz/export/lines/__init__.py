"""The page of lines: all heads of all layers, one colour a head, from queries on the left to keys on the right."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from html import escape
from importlib import resources
from math import isqrt
from string import Template
from typing import Any

import torch
from torch import Tensor

from ...charts.labels import isolate
from ...charts.theme import FONT, theme_named
from ...errors import BudgetError, UsageError
from ...head import Head
from ...tokens import Token, printable
from ...trace import Trace

CELLS = 1 << 25
"""Weights that a page holds at most; one takes about half a byte."""


def lines_page(trace: Trace, *, theme: str = "screen") -> str:
    """HTML of the page; makes no request, and token text in it is never markup. It opens with one head where a layer
    has more than four.

    Weights are kept in 8 bits on a root scale: the root is right to within 0.002. Weights below
    zero (differential attention) are left out.
    Raises BudgetError for more than `CELLS` weights.
    """
    heads = [[trace[layer, number] for number in trace.record(layer).head_numbers] for layer in trace.layers]
    _check(heads)
    script = _asset("lines.js")
    look = theme_named(theme)
    name = printable(trace.model)
    return Template(_asset("lines.html")).substitute(
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=escape(f"Attention of {name}"),
        font=FONT,
        scheme="dark" if theme == "dark" else "light",
        **{key: getattr(look, key) for key in ("background", "text", "muted", "line", "masked", "accent")},
        data=json.dumps(_data(name, heads), ensure_ascii=False).replace("<", "\\u003c"),
        script=script,
    )


def _check(heads: list[list[Head]]) -> None:
    shapes = {head.shape for layer in heads for head in layer}
    if len(shapes) != 1:
        raise UsageError(f"the page of lines needs maps of one shape in all layers, got {len(shapes)} shapes")
    (rows, cols), count = shapes.pop(), sum(map(len, heads))
    if count * rows * cols > CELLS:
        raise BudgetError(
            f"the page of lines holds every weight of {count} heads, {count * rows * cols:,}, at most {CELLS:,}:"
            f" export a text of up to {isqrt(CELLS // count):,} tokens"
        )


def _data(name: str, heads: list[list[Head]]) -> dict[str, Any]:
    return {
        "model": name,
        "queries": _labels(heads[0][0].rows),
        "keys": _labels(heads[0][0].cols),
        "layers": [
            {"layer": layer[0].layer, "heads": [head.head for head in layer], "codes": _packed(layer)}
            for layer in heads
        ],
    }


def _labels(tokens: tuple[Token, ...]) -> list[str]:
    return [isolate(token.label) for token in tokens]


def _packed(layer: list[Head]) -> str:
    """Codes [heads, keys, queries]: in this order they are packed best."""
    codes = torch.stack([_codes(head.weights()).T for head in layer])
    return base64.b64encode(zlib.compress(codes.contiguous().numpy().tobytes(), 9)).decode()


def _codes(weights: Tensor) -> Tensor:
    return (weights.float().clamp(0, 1).sqrt() * 255).round().to(torch.uint8).cpu()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
