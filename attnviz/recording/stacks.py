"""What a model's stacks of layers are given: positions, ids and masks, the order of beams, the finished sequences."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn

from .masks import Carrier
from .recorder import Recorder
from .runs import GivenMask, Run
from .sequences import Returned

_CACHES = ("cache", "past_key_values", "cache_params")


def follow(recorder: Recorder, stacks: dict[str, nn.Module], exits: ExitStack) -> None:
    """Let a recorder follow the forward passes of a model's stacks, and its `generate`, until `exits` closes."""
    for name, stack in stacks.items():
        handle = stack.register_forward_pre_hook(_before(recorder, name, stack, exits), with_kwargs=True)
        exits.callback(handle.remove)
        if hasattr(stack, "generate") and not any(other != name and _above(other, name) for other in stacks):
            _watch_generate(recorder, stack, exits)


def parameters(stack: nn.Module) -> tuple[str, ...]:
    """The names of what a module's forward takes, in order."""
    return tuple(inspect.signature(stack.forward).parameters)


def _above(outer: str, inner: str) -> bool:
    return outer == "" or inner.startswith(outer + ".")


def _before(recorder: Recorder, name: str, stack: nn.Module, exits: ExitStack) -> Callable[..., None]:
    names = parameters(stack)

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        if torch._C._current_graph_task_id() != -1:  # a gradient checkpoint computes a part again
            return
        given = {**dict(zip(names, args, strict=False)), **kwargs}
        ids = _matrix(given.get("input_ids"))
        embeds = given.get("inputs_embeds")
        count = ids.shape[1] if ids is not None else embeds.shape[1] if isinstance(embeds, Tensor) else 0
        cache = next((given[key] for key in _CACHES if given.get(key) is not None), None)
        start = past_length(cache)
        recorder.begin(name, start, count, ids, _mask(given.get("attention_mask")))
        run = recorder.runs[name]
        run.grid = _grid(stack, given.get("pixel_values"))
        if cache is not None:
            _watch_order(cache, run, recorder, exits)

    return hook


def past_length(cache: Any) -> int:
    """How many tokens a cache holds already."""
    if cache is None or not hasattr(cache, "get_seq_length"):
        return 0
    try:
        return int(cache.get_seq_length())
    except ValueError:  # a cache of layers without attention does not know
        return 0


def _matrix(value: Any) -> Tensor | None:
    return value.detach() if isinstance(value, Tensor) and value.dim() == 2 else None


def _mask(value: Any) -> GivenMask | None:
    """Which tokens are real, from a mask of two axes or the structure behind one of four; the widest of several."""
    if isinstance(value, dict):
        found = [mask for mask in map(_mask, value.values()) if mask is not None]
        return max(found, key=lambda mask: mask[1].shape[1], default=None)
    if isinstance(value, Carrier):
        padding = value.placed.mask.key_padding
        return None if padding is None else (value.placed.key_start, padding)
    matrix = _matrix(value)
    return None if matrix is None else (0, matrix)


def _grid(stack: nn.Module, pixels: Any) -> tuple[int, int] | None:
    """Rows and columns of image patches, where the stack's configuration gives their size."""
    size = getattr(getattr(stack, "config", None), "patch_size", None)
    if not isinstance(pixels, Tensor) or pixels.dim() != 4 or size is None:
        return None
    height, width = (size, size) if isinstance(size, int) else size[-2:]
    return pixels.shape[2] // height, pixels.shape[3] // width


def _watch_order(cache: Any, run: Run, recorder: Recorder, exits: ExitStack) -> None:
    """Hear when the sequences of a cache are put into another order: what beam search does between steps."""
    runs = recorder.caches.setdefault(id(cache), [])
    if any(run is known for known in runs):
        return
    runs.append(run)
    for method in ("reorder_cache", "batch_select_indices"):
        if len(runs) == 1 and hasattr(cache, method):
            _replace(cache, method, _hearing(getattr(cache, method), runs), exits)


def _hearing(method: Callable[..., Any], runs: list[Run]) -> Callable[..., Any]:
    @wraps(method)
    def heard(*args: Any, **kwargs: Any) -> Any:
        for run in runs:
            run.reorder(next(iter((*args, *kwargs.values()))))
        return method(*args, **kwargs)

    return heard


def _watch_generate(recorder: Recorder, model: nn.Module, exits: ExitStack) -> None:
    """Hear which sequences `generate` returns."""
    generate = model.generate

    @wraps(generate)  # type: ignore[arg-type]
    def heard(*args: Any, **kwargs: Any) -> Any:
        result = generate(*args, **kwargs)  # type: ignore[operator]
        sequences = getattr(result, "sequences", result)
        if isinstance(sequences, Tensor):
            given = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor) and value.dim() > 1]
            config = kwargs.get("generation_config") or getattr(model, "generation_config", None)
            prompts = given[0].shape[0] if given else 1
            recorder.returned = Returned(sequences.detach(), prompts, _ends(config, kwargs))
        return result

    _replace(model, "generate", heard, exits)


def _ends(config: Any, given: dict[str, Any]) -> tuple[int, ...]:
    """The ids that end a sequence."""
    ends = given.get("eos_token_id", getattr(config, "eos_token_id", None))
    if ends is None:
        return ()
    return tuple(torch.as_tensor(ends).reshape(-1).tolist())


def _replace(owner: Any, name: str, value: Any, exits: ExitStack) -> None:
    """Shadow a method on one object, until `exits` closes; recorders that nest take their own away only."""
    own = vars(owner)
    before = own.get(name)
    own[name] = value
    if before is None:
        exits.callback(own.pop, name, None)
    else:
        exits.callback(own.__setitem__, name, before)
