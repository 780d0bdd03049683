"""Which modules of a model attend, by which means they can be recorded, and what to call them."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from typing import Any

from torch import nn

_CROSS = re.compile(r"cross_?att|encoder_attn|EncDecAttention", re.IGNORECASE)
_ATTENTION = re.compile(r"atte?n", re.IGNORECASE)


@dataclass(frozen=True)
class Place:
    """Where an attention module stands. stack is the path of the model part that embeds its tokens."""

    name: str
    layer: int
    kind: str
    stack: str


def uses_interface(kind: type[nn.Module]) -> bool:
    """Whether a module's class calls transformers' AttentionInterface anywhere in its own methods."""
    from transformers.modeling_utils import AttentionInterface

    for function in _methods(kind):
        known = function.__globals__
        if any(isinstance(known.get(name), AttentionInterface) for name in function.__code__.co_names):
            return True
    return False


def _methods(kind: type[nn.Module]) -> list[Any]:
    """The plain functions of a class and of its bases up to nn.Module, decorators taken off."""
    classes = [base for base in kind.__mro__ if issubclass(base, nn.Module) and base is not nn.Module]
    members = [inspect.unwrap(member) for base in classes for member in vars(base).values() if callable(member)]
    return [member for member in members if inspect.isfunction(member)]


def interface_modules(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that call AttentionInterface, by path, in the model's order."""
    known: dict[type[nn.Module], bool] = {}
    found = {}
    for name, module in model.named_modules():
        kind = type(module)
        if kind not in known:
            known[kind] = uses_interface(kind)
        if known[kind]:
            found[name] = module
    return found


def stacks(model: nn.Module) -> dict[str, nn.Module]:
    """The parts that are models of their own (transformers' PreTrainedModel), by path; the root is ""."""
    from transformers import PreTrainedModel

    return {name: module for name, module in model.named_modules() if isinstance(module, PreTrainedModel)}


def places(model: nn.Module, attending: dict[str, nn.Module]) -> dict[str, Place]:
    """The `Place` of every attending module."""
    parts = stacks(model)
    found, counts = {}, dict[tuple[str, str], int]()
    for name, module in attending.items():
        stack = max((path for path in parts if _inside(name, path)), key=len, default="")
        kind = _kind(name, module, parts.get(stack), parts.get(""))
        layer = _layer(name[len(stack) :], module, counts.get((stack, kind), 0))
        counts[stack, kind] = layer + 1
        found[name] = Place(name, layer, kind, stack)
    return found


def _inside(name: str, path: str) -> bool:
    return path == "" or name == path or name.startswith(path + ".")


def _kind(name: str, module: nn.Module, stack: Any, root: Any) -> str:
    if _CROSS.search(name) or getattr(module, "is_cross_attention", False):
        return "cross"
    paired = getattr(getattr(root, "config", None), "is_encoder_decoder", False)
    if not paired or stack is None:
        return "self"
    decoder = getattr(stack, "is_decoder", None)
    if decoder is None:
        decoder = "decoder" in f"{name} {type(stack).__name__}".lower()
    return "decoder" if decoder else "encoder"


def _layer(path: str, module: nn.Module, following: int) -> int:
    """The module's own number, else the first number in its path, unless a lower one than the layers before."""
    own = getattr(module, "layer_idx", None)
    if isinstance(own, int):
        return own
    numbers = re.findall(r"\.(\d+)(?=\.)", f".{path.strip('.')}.")
    return int(numbers[0]) if len(numbers) == 1 and int(numbers[0]) >= following else following
