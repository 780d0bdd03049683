"""Rung 3: models that compute attention by hand are asked for their own weights, `output_attentions=True`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import RecordingError
from .layouts import banded_to_dense, without_padding
from .modules import Place
from .recorder import Recorder
from .runs import Run
from .stacks import parameters

_OUTPUTS = {
    "attentions": ("self", "encoder", "decoder", "vision", "audio"),
    "encoder_attentions": ("encoder",),
    "decoder_attentions": ("decoder",),
    "cross_attentions": ("cross",),
}
_GLOBAL = "global_attentions"
_MOST = 1.05
"""The sum of a row of weights at most: half precision rounds up."""


def ask(recorder: Recorder, name: str, stack: nn.Module, places: list[Place], exits: ExitStack) -> None:
    """Let a stack return its weights to the recorder, until `exits` closes; its caller gets what it asked for."""
    refuse(stack, name)
    exits.enter_context(_capturing(stack))
    asked: list[tuple[dict[str, Any], bool, bool]] = []

    names = parameters(stack)

    def before(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        config: Any = stack.config
        wanted = given.get("output_attentions")
        named = given.get("return_dict")
        asked.append(
            (
                given,
                bool(getattr(config, "output_attentions", False) if wanted is None else wanted),
                bool(getattr(config, "return_dict", True) if named is None else named),
            )
        )
        _check_size(recorder, name, config)
        return (), {**given, "output_attentions": True, "return_dict": True}

    def after(_: nn.Module, args: tuple[Any, ...], output: Any) -> Any:
        given, wanted, named = asked.pop()
        if torch._C._current_graph_task_id() == -1:
            keep(recorder, name, stack, places, given, output)
        if not wanted:
            names = {*_OUTPUTS, _GLOBAL}
            output = type(output)(**{key: value for key, value in output.items() if key not in names})
        return output if named else output.to_tuple()

    for handle in (
        stack.register_forward_pre_hook(before, with_kwargs=True),
        stack.register_forward_hook(after),
    ):
        exits.callback(handle.remove)


@contextmanager
def _capturing(stack: nn.Module) -> Iterator[None]:
    """Take away the hooks that transformers leaves behind when it is first asked for weights."""
    module_name, flag = "transformers.utils.output_capturing", "_output_capturing_hooks_installed"
    before = {part: set(part._forward_hooks) for part in stack.modules()}
    flagged = {part for part in stack.modules() if flag in part.__dict__}
    try:
        yield
    finally:
        for part in stack.modules():
            for key, hook in list(part._forward_hooks.items()):
                if key not in before.get(part, ()) and getattr(hook, "__module__", "") == module_name:
                    del part._forward_hooks[key]
            if part not in flagged:
                part.__dict__.pop(flag, None)


def refuse(stack: nn.Module, name: str) -> None:
    """RecordingError for weights that would not be those of tokens, or not those before dropout."""
    config: Any = stack.config
    landmarks = getattr(config, "num_landmarks", None)
    if landmarks is not None and landmarks != getattr(config, "segment_means_seq_len", landmarks):
        raise RecordingError(
            f"{type(stack).__name__} attends to {landmarks} landmarks instead of tokens, so its columns have no labels:"
            " set num_landmarks to segment_means_seq_len, or attnviz.tap a tensor of your own"
        )
    dropped = any(isinstance(part, nn.Dropout) and part.p > 0 for part in stack.modules())
    if stack.training and dropped:
        raise RecordingError(
            f"{type(stack).__name__} computes attention by hand and returns weights after dropout in training mode:"
            " call model.eval(), or set its dropout to 0"
        )


def keep(
    recorder: Recorder, name: str, stack: nn.Module, places: list[Place], given: dict[str, Any], output: Any
) -> None:
    """Hand the weights in a stack's output to the recorder."""
    run = recorder.runs[name]
    if not any(output.get(key) for key in _OUTPUTS):
        raise RecordingError(f"{type(stack).__name__} was asked for its attention weights and returned none")
    for key, kinds in _OUTPUTS.items():
        found = [weights for weights in output.get(key) or () if weights is not None]
        standing = [place for place in places if place.kind in kinds]
        if not found or not standing:
            continue
        if len(found) != len(standing):
            raise RecordingError(
                f"{type(stack).__name__} returned {len(found)} {key} for {len(standing)} attention modules, so they"
                " cannot be told apart"
            )
        for index, (place, weights) in enumerate(zip(standing, found, strict=True)):
            if recorder.wants(place):
                for branch, one in enumerate(_branches(weights)):
                    banded = hasattr(stack.config, "attention_window") and key != "cross_attentions"
                    exact = to_tokens(one, index, place, run, given, output if banded else None)
                    recorder.add_weights(place, exact, branch, _notes(exact, place))


def _branches(weights: Any) -> Iterator[Any]:
    """One tensor, or one for each of several streams."""
    yield from weights if isinstance(weights, tuple) else (weights,)


def to_tokens(weights: Any, index: int, place: Place, run: Run, given: dict[str, Any], banded: Any) -> Tensor:
    """[B, H, M, N] with a row and a column for each token, or RecordingError.

    banded is the output of a model whose columns are those of a window around each token, else None.
    """
    rows, cols = run.counts[-1], run.starts[-1] + run.counts[-1]
    target = given.get("decoder_input_ids")
    if place.kind in ("decoder", "cross") and target is not None:  # one stack that holds both sides
        rows = cols = target.shape[1]
    if not isinstance(weights, Tensor) or weights.dim() != 4:
        raise RecordingError(f"{place.name} does not return weights of queries and keys, [B, H, M, N]")
    weights = weights.detach()
    if banded is not None and place.kind in ("self", "encoder"):
        own_rows = banded.get(_GLOBAL)
        weights = banded_to_dense(weights, _everywhere(given), None if not own_rows else own_rows[index])
    if place.kind != "cross":
        weights = without_padding(weights, rows, cols)
    right = rows == 0 or weights.shape[2:] == (rows, cols) or (place.kind == "cross" and weights.shape[2] == rows)
    if not right:
        raise RecordingError(
            f"{place.name} returned weights of {weights.shape[2]} x {weights.shape[3]} for {rows} x {cols} tokens:"
            " its columns are not tokens"
        )
    _refuse_scores(weights, place)
    exact: Tensor = weights
    return exact


def _refuse_scores(weights: Tensor, place: Place) -> None:
    """RecordingError for what no softmax gives, such as SqueezeBERT's scores; rows may sum to less than one."""
    low, high = weights.min().item(), weights.sum(-1).max().item()
    if not (low >= 0 and high <= _MOST):
        raise RecordingError(
            f"{place.name} returns scores instead of weights (from {low:.2g} on, rows that sum to up to {high:.2g}):"
            " attnviz.tap(weights, name=...) where it computes its softmax"
        )


def _everywhere(given: dict[str, Any]) -> Tensor | None:
    """[B, N]: the real tokens that attend, and are attended to, from everywhere."""
    chosen: Tensor | None = given.get("global_attention_mask")
    real: Tensor | None = given.get("attention_mask")
    if chosen is None:
        return None
    return chosen > 0 if real is None else (chosen > 0) & (real > 0)


def _notes(weights: Tensor, place: Place) -> tuple[str, ...]:
    sums = weights.sum(-1)
    low, high = sums[sums > 0].min().item(), sums.max().item()
    if low > 0.99 and high < 1.01:
        return ()
    return (f"the model's own weights sum to {low:.2f} to {high:.2f} a row",)


def _check_size(recorder: Recorder, name: str, config: Any) -> None:
    """BudgetError before the model makes maps that will not fit."""
    run = recorder.runs[name]
    layers, heads = getattr(config, "num_hidden_layers", None), getattr(config, "num_attention_heads", None)
    if isinstance(layers, int) and isinstance(heads, int):
        cells = run.counts[-1] * (run.starts[-1] + run.counts[-1])
        recorder.store.check(layers * heads * cells * 4, f"the whole maps of {recorder.trace.model}")
