"""Which modules of a model attend, by which means they can be recorded, and what to call them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from types import FunctionType
from typing import Any

from torch import nn

WINDOWS = "attends inside windows cut from the image, so its rows and columns are not those of the image"
SECOND = "belongs to a second stack of the same kind: record that part of the model on its own"
BY_HAND = "computes attention by hand and does not return weights"
_TORCH = ("scaled_dot_product_attention", "multi_head_attention_forward", "flex_attention")
_CROSS = re.compile(r"cross_?att|encoder_attn|EncDecAttention", re.IGNORECASE)
_ATTENTION = re.compile(r"Attention(?!Output|Pool)|SelfAttn", re.IGNORECASE)
_LINEAR = re.compile(
    r"((Linear\w*|Delta|Lightning|Rwkv\w*)Attention|Mixer|Mamba2?(Layer)?|DeltaNet|RecurrentBlock|ShortConv|Retention)$"
)


@dataclass(frozen=True)
class Place:
    """Where an attention module stands. stack is the path of the model part that its tokens are given to.

    shared: the module may serve several layers, one call after another.
    """

    name: str
    layer: int
    kind: str
    stack: str
    shared: bool = False


@dataclass(frozen=True)
class Survey:
    """A model's attention: modules to listen to, stacks to ask for their own weights, and what else there is.

    interface and by_hand map paths to modules and to places; linear are layers without weights; `unknown` says of
    modules that look like attention, by path, why they are not recorded.
    """

    stacks: dict[str, nn.Module]
    interface: dict[str, nn.Module]
    places: dict[str, Place]
    by_hand: dict[str, list[Place]] = field(default_factory=dict)
    linear: list[Place] = field(default_factory=list)
    unknown: dict[str, str] = field(default_factory=dict)

    @property
    def attending(self) -> list[Place]:
        """All places with weights."""
        return [*self.places.values(), *(place for asked in self.by_hand.values() for place in asked)]

    @property
    def order(self) -> list[str]:
        """The paths of all places with weights, in the model's order within each rung."""
        return [place.name for place in self.attending]


def survey(model: nn.Module) -> Survey:
    """Look through a model before it runs."""
    parts = stacks(model)
    attending, unknown = interface_modules(model), {}
    windowed = [name for name, part in parts.items() if _cuts_windows(name, parts)]
    linear = {name: part for name, part in _outermost(model, _LINEAR).items() if not _within(name, attending)}
    by_hand: dict[str, nn.Module] = {}
    for name in [name for name in attending if owner(name, parts) in windowed]:
        unknown[name] = WINDOWS
        del attending[name]
    direct = _calling_torch(model)
    for name, module in {**_outermost(model, _ATTENTION), **direct}.items():
        if _within(name, (*attending, *linear, *unknown, *by_hand)):
            continue
        stack = owner(name, parts)
        heard = any(inside(other, name) for other in direct)
        around = [other for other in attending if heard and stack is not None and inside(other, stack)]
        if stack is None or around or any(owner(other, parts) == stack for other in attending):
            unknown[name] = BY_HAND
        elif stack in windowed:
            unknown[name] = WINDOWS
        else:
            by_hand[name] = module
    standing, linears = places(parts, {**attending, **by_hand}), places(parts, linear)
    for name in _second_stacks(standing):
        unknown[name] = SECOND
        del standing[name]
        attending.pop(name, None)
    found = {name: place for name, place in standing.items() if name in attending}
    asked: dict[str, list[Place]] = {}
    for place in standing.values():
        if place.name not in attending:
            asked.setdefault(place.stack, []).append(place)
    taking_turns = _taking_turns(parts, [*found.values(), *linears.values()])
    found = {name: replace(place, shared=place.stack in taking_turns) for name, place in found.items()}
    others = [replace(place, kind="linear") for place in linears.values()]
    return Survey(parts, attending, found, asked, others, unknown)


def _calling_torch(model: nn.Module) -> dict[str, nn.Module]:
    """The modules that call one of torch's attention functions themselves, whatever they are called."""
    known: dict[type[nn.Module], bool] = {}
    for module in model.modules():
        kind = type(module)
        if kind not in known:
            called = {name for function in methods(kind) for name in function.__code__.co_names}
            known[kind] = not called.isdisjoint(_TORCH)
    return {name: module for name, module in model.named_modules() if known[type(module)]}


def _cuts_windows(name: str, parts: dict[str, nn.Module]) -> bool:
    """Whether a stack cuts its sequence into windows before its attention is called (Swin)."""
    own = [part for path, part in parts[name].named_modules(prefix=name) if owner(path, parts) == name]
    functions = [function for kind in {type(part) for part in own} for function in methods(kind)]
    return any("window_partition" in function.__code__.co_names for function in functions)


def _taking_turns(parts: dict[str, nn.Module], known: list[Place]) -> set[str]:
    """The stacks with fewer modules than layers: ALBERT's serve several layers each."""
    turns = set()
    for name, stack in parts.items():
        layers = getattr(getattr(stack, "config", None), "num_hidden_layers", None)
        count = len({place.layer for place in known if place.stack == name and place.kind != "cross"})
        if isinstance(layers, int) and 0 < count < layers:
            turns.add(name)
    return turns


def is_differential(module: nn.Module | None) -> bool:
    """Whether a module subtracts the attention of half of its heads from that of the others (DiffLlama)."""
    # the subtraction is done on outputs, by a lambda of the module's own: nothing more general than its names tells
    return all(hasattr(module, name) for name in ("lambda_q1", "lambda_k1", "lambda_q2", "lambda_k2", "lambda_init"))


def takes_packed(module: nn.Module | None) -> bool:
    """Whether a module cuts its tokens into sequences by their lengths and attends in each of them (Qwen2-VL)."""
    return module is not None and "cu_seqlens" in inspect.signature(module.forward).parameters


def uses_interface(kind: type[nn.Module]) -> bool:
    """Whether a module's class calls transformers' AttentionInterface in its own methods."""
    from transformers.modeling_utils import AttentionInterface

    for function in methods(kind):
        known = function.__globals__
        if any(isinstance(known.get(name), AttentionInterface) for name in function.__code__.co_names):
            return True
    return False


def methods(kind: type[nn.Module]) -> list[FunctionType]:
    """The plain functions of a class and its bases below transformers' and torch's own, decorators taken off."""
    from transformers import PreTrainedModel

    classes = [base for base in kind.__mro__ if base not in (*PreTrainedModel.__mro__, nn.Module)]
    members = [inspect.unwrap(member) for base in classes for member in vars(base).values() if callable(member)]
    return [member for member in members if isinstance(member, FunctionType)]


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


def owner(name: str, parts: dict[str, nn.Module]) -> str | None:
    """The innermost stack that a path lies in."""
    return max((path for path in parts if inside(name, path)), key=len, default=None)


def inside(name: str, path: str) -> bool:
    """Whether a module's path is that of another or lies below it."""
    return path == "" or name == path or name.startswith(path + ".")


def places(parts: dict[str, nn.Module], attending: dict[str, nn.Module]) -> dict[str, Place]:
    """The `Place` of every attending module."""
    found: dict[str, Place] = {}
    counts: dict[tuple[str, str], int] = {}
    for name, module in attending.items():
        stack = owner(name, parts) or ""
        kind = _kind(name, module, parts.get(stack), parts.get(""))
        layer = _layer(name[len(stack) :], module, counts.get((stack, kind), 0))
        counts[stack, kind] = layer + 1
        found[name] = Place(name, layer, kind, stack)
    return _towers(found, parts)


def _towers(found: dict[str, Place], parts: dict[str, nn.Module]) -> dict[str, Place]:
    """The places of a model of several stacks, with those that read images or sound named for it."""
    own = {place.stack for place in found.values() if place.kind == "self"}
    if len(own) < 2:
        return found
    kinds = {stack: _reads(stack, parts[stack]) for stack in own if stack in parts}
    return {
        name: replace(place, kind=kinds.get(place.stack, "self")) if place.kind == "self" else place
        for name, place in found.items()
    }


def _reads(path: str, stack: nn.Module) -> str:
    name = f"{path} {type(stack).__name__}".lower()
    if re.search(r"text|language", name):
        return "self"
    if re.search(r"vision|visual|image|vit", name):
        return "vision"
    return "audio" if re.search(r"audio|speech|wav", name) else "self"


def _second_stacks(found: dict[str, Place]) -> list[str]:
    """The modules whose kind and layer another stack has already: they would hide one another."""
    first: dict[str, str] = {}
    for place in found.values():
        first.setdefault(place.kind, place.stack)
    return [name for name, place in found.items() if place.stack != first[place.kind]]


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
    """The module's own number (-1 is none), else the only number in its path, else its place in the order."""
    own = getattr(module, "layer_idx", None)
    if isinstance(own, int) and own >= 0:
        return own
    numbers = re.findall(r"(?<=\.)\d+(?=\.)", f".{path.strip('.')}.")
    return int(numbers[0]) if len(numbers) == 1 and int(numbers[0]) >= following else following


def _outermost(model: nn.Module, pattern: re.Pattern[str]) -> dict[str, nn.Module]:
    """The modules whose class name matches, without those inside another one."""
    parts = stacks(model)
    found: dict[str, nn.Module] = {}
    for name, module in model.named_modules():
        attends = pattern.search(type(module).__name__) and any(True for _ in module.parameters())
        if attends and name not in parts and not any(inside(name, other) for other in found):
            found[name] = module
    return found


def _within(name: str, others: Iterable[str]) -> bool:
    """Whether a module is, holds or lies in one of the others."""
    return any(inside(name, other) or inside(other, name) for other in others)
