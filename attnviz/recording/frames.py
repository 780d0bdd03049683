"""A running module, and what its inputs say about the attention that it computes."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

_CROSS_NAME = re.compile(r"cross|multihead_attn|encoder_attn|enc_?dec|src_attn|memory", re.IGNORECASE)
_CROSS_INPUT = re.compile(r"memory|context|encoder|enc_|source|src|^key|kv|cond", re.IGNORECASE)


@dataclass
class Frame:
    """One running module. visit counts its earlier runs in the same forward pass of the model."""

    name: str
    module: nn.Module
    visit: int = 0
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)

    def sequences(self) -> dict[str, Tensor]:
        """The inputs that look like sequences of vectors, [B, M, C], by parameter name, in order."""
        names = inspect.signature(self.module.forward).parameters
        given = {**dict(zip(names, self.args, strict=False)), **self.kwargs}
        return {name: value for name, value in given.items() if _is_sequence(value)}

    def batch(self, rows: int) -> int | None:
        """How many sequences the module's first input of so many positions holds, [B, M, C] or [M, B, C]."""
        shape = next((tensor.shape for tensor in self.sequences().values()), None)
        if shape is None or rows not in shape[:2]:
            return None
        return shape[0] if shape[1] == rows else shape[1]

    def kind(self, rows: int, cols: int, batch: int | None = None) -> str:
        """ "cross" where the module's keys come from another sequence than its queries, else "self".

        Told by the module's name, else by its first two inputs: another length, or a name that says so. "pool" where
        the only input is what the keys are made of, and the queries, of another number, are the module's own.
        """
        if _CROSS_NAME.search(".".join(self.name.split(".")[-2:])):
            return "cross"
        inputs = list(self.sequences().items())
        if len(inputs) == 1 and rows != cols and tuple(inputs[0][1].shape[:2]) in ((batch, cols), (cols, batch)):
            return "pool"
        if len(inputs) < 2 or alike(inputs[0][1], inputs[1][1]):
            return "self"
        (_, first), (name, second) = inputs[:2]
        longer = rows != cols and cols in second.shape[:2] and cols not in first.shape[:2]
        return "cross" if longer or _CROSS_INPUT.search(name) else "self"


def alike(one: Tensor, other: Tensor) -> bool:
    """Whether two inputs are the same numbers: `attend(norm(x), norm(x))` computes its one sequence twice."""
    return one is other or (one.shape == other.shape and one.dtype == other.dtype and torch.equal(one, other))


def _is_sequence(value: Any) -> bool:
    return isinstance(value, Tensor) and value.dim() == 3 and value.is_floating_point()
