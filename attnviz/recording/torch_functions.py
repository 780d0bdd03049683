"""Rung 2: torch's own attention functions, heard while a watched model runs.

A `TorchFunctionMode` sees every call of scaled_dot_product_attention, multi_head_attention_forward and flex_attention
in its thread; nothing is patched. Where no gradient is asked for, the kernel's output is the model's. Else torch
computes the output, so that training, dropout and gradient checkpoints go their usual way, and the kernel only reads.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from inspect import signature
from types import FunctionType
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from attnviz_kernels import ArgumentError, Mask

from ..errors import RecordingError
from .chains import Origin
from .flex import FlexCall
from .frames import alike
from .reading import read
from .torch_arguments import Inputs, dot_product_inputs, multi_head_mask, output_shape
from .watch import Watch, listeners, watched, watching

RUNG = "torch function"
DROPOUT = "weights are those before dropout"


@dataclass(frozen=True)
class Around:
    """What multi_head_attention_forward knows of the scaled_dot_product_attention inside it."""

    attn_mask: Tensor | None
    key_padding_mask: Tensor | None
    extra: int
    kind: str | None
    notes: tuple[str, ...]

    def inputs(self, given: dict[str, Any]) -> Inputs:
        """The inner call, with the masks as they were before torch merged them into one."""
        query, key, value = given["query"], given["key"], given["value"]
        if given["is_causal"]:
            return Inputs(query, key, value, mask=Mask(causal=True), extra=self.extra)
        batch, heads = query.shape[:2]
        mask, bias = multi_head_mask(self.attn_mask, self.key_padding_mask, batch, heads, self.extra)
        return Inputs(query, key, value, mask=mask, bias=bias, extra=self.extra)


class TorchFunctions(TorchFunctionMode):
    """Hands attention calls of watched models to their handlers, and all other functions to torch."""

    def __init__(self) -> None:
        super().__init__()
        self.around: Around | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Called by torch in place of each of its functions."""
        handler = _handlers().get(func)
        if handler is None or not listeners():
            return func(*args, **(kwargs or {}))
        return handler(self, func, args, kwargs or {})

    @contextmanager
    def inside(self, around: Around) -> Iterator[None]:
        """Hear what is called in the block, as a part of multi_head_attention_forward."""
        before, self.around = self.around, around
        try:
            with self:
                yield
        finally:
            self.around = before


@contextmanager
def hearing(watch: Watch) -> Iterator[None]:
    """Follow a watch's model and hear torch's attention functions while the block runs, in this thread."""
    heard_already = any(other.functions for other in watching())
    with watched(watch), nullcontext() if heard_already or not watch.functions else TorchFunctions():
        yield


def dot_product(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> None:
    """The arguments of scaled_dot_product_attention, which as a builtin has no signature."""


def _dot_product(mode: TorchFunctions, func: Any, args: Any, kwargs: Any) -> Any:
    """scaled_dot_product_attention: torch's output where it is differentiated or dropped out, else the kernel's."""
    given = _arguments(dot_product, args, kwargs)
    dropped = given["dropout_p"] > 0
    output = func(*args, **kwargs) if dropped or _differentiated(given.values()) else None
    around = mode.around
    try:
        inputs = around.inputs(given) if around else _plain_inputs(given)
        notes = around.notes if around else (DROPOUT,) if dropped else ()
        with torch.no_grad():
            attended = read(listeners(), inputs, RUNG, around.kind if around else None, notes=notes)
    except (ArgumentError, RuntimeError) as error:
        func(*args, **kwargs)  # raises torch's own error where the call is wrong
        raise _refusal("scaled_dot_product_attention", error) from error
    if output is not None:
        return output
    if bool((attended.logsumexp == -torch.inf).any()):
        return func(*args, **kwargs)  # torch's kernels differ in what they give to queries that see no key
    return _laid_out(attended.output).reshape(output_shape(given["query"], given["key"], given["value"]))


def _multi_head(mode: TorchFunctions, func: Any, args: Any, kwargs: Any) -> Any:
    """multi_head_attention_forward: its own body, with the scaled_dot_product_attention inside it heard.

    Where weights are asked for, torch takes another way: then the body runs once more, only to be heard.
    """
    given = _arguments(func, args, kwargs)
    around = _around(given)
    if not given["need_weights"]:
        with mode.inside(around):
            return _body(func)(**given)
    output = func(**given)
    with torch.no_grad(), mode.inside(around):
        _body(func)(**{**given, "need_weights": False, "training": False, "is_causal": False})
    return output


def _around(given: dict[str, Any]) -> Around:
    extra = int(given["bias_k"] is not None) + int(given["add_zero_attn"])
    notes = [DROPOUT] if given["training"] and given["dropout_p"] > 0 else []
    if extra:
        notes.append(f"the last {extra} of the keys are the module's own (bias_k or a zero key), not positions")
    kind = None if alike(given["query"], given["key"]) else "cross"
    return Around(given["attn_mask"], given["key_padding_mask"], extra, kind, tuple(notes))


def _flex(mode: TorchFunctions, func: Any, args: Any, kwargs: Any) -> Any:
    """The operator behind flex_attention; a score function may do anything, so there torch gives dense weights."""
    call = FlexCall(*args, **kwargs)
    if call.changes_scores:
        return _flex_dense(func, call, args, kwargs)
    _afford(math.prod(call.mask_shape()), "the mask of flex_attention")
    attended = read(listeners(), call.inputs(), RUNG)
    blind = bool((attended.logsumexp == -torch.inf).any())
    if call.wants_more or blind:
        return func(*args, **kwargs)
    return _laid_out(attended.output), attended.logsumexp, attended.logsumexp


def _flex_dense(func: Any, call: FlexCall, args: Any, kwargs: Any) -> Any:
    if _differentiated(args):
        raise _refusal("flex_attention", "a score_mod that is trained; record under torch.no_grad()")
    batch, heads, rows = call.query.shape[:3]
    cols = call.key.shape[2]
    _afford(batch * heads * rows * cols * call.query.element_size(), "the weights of flex_attention with a score_mod")
    output = func(*args, **kwargs)
    weights = call.weights(func)
    for watch in listeners():
        kind = watch.here.kind(rows, cols)
        origin = Origin(RUNG, kind, backend="torch", notes=("dense: a score_mod has no structure",))
        watch.chains.add_weights(watch.here, origin, weights)
    return output


def _afford(needed: int, what: str) -> None:
    for watch in listeners():
        watch.chains.store.check(needed, what)


def _plain_inputs(given: dict[str, Any]) -> Inputs:
    query = given["query"]
    batch = listeners()[-1].here.batch(query.shape[-2]) if query.dim() == 3 else None
    names = ("query", "key", "value", "attn_mask", "is_causal", "scale")
    return dot_product_inputs(**{name: given[name] for name in names}, batch=batch)


def _laid_out(output: Tensor) -> Tensor:
    """[B, H, M, E] in the memory order of torch's fused kernels, which a later `view` may rely on."""
    return output.transpose(1, 2).contiguous().transpose(1, 2)


def _differentiated(values: Iterable[Any]) -> bool:
    return torch.is_grad_enabled() and any(isinstance(value, Tensor) and value.requires_grad for value in values)


def _arguments(function: Any, args: Any, kwargs: Any) -> dict[str, Any]:
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.arguments


def _refusal(function: str, reason: object) -> RecordingError:
    name = listeners()[-1].here.name or "the model"
    return RecordingError(f"{name} calls {function} in a way that cannot be recorded: {reason}")


_signature = cache(signature)


@cache
def _body(func: Any) -> Any:
    """A function of torch that does not ask again whether somebody wants to hear it."""
    body = FunctionType(func.__code__, {**func.__globals__, "has_torch_function": lambda _: False}, func.__name__)
    body.__defaults__, body.__kwdefaults__ = func.__defaults__, func.__kwdefaults__
    return body


@cache
def _handlers() -> dict[Any, Any]:
    from torch._higher_order_ops.flex_attention import flex_attention

    return {
        F.scaled_dot_product_attention: _dot_product,
        F.multi_head_attention_forward: _multi_head,
        flex_attention: _flex,
    }
