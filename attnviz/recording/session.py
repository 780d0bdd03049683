"""`record` and `inspect`: the two ways in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import nn

from ..errors import RecordingError, UsageError
from ..trace import Trace
from .active import leave, listen
from .interface import switched
from .labels import Given
from .modules import interface_modules, places, stacks
from .recorder import KEEP, Options, Recorder


@contextmanager
def record(
    model: nn.Module,
    *,
    tokenizer: Any = None,
    tokens: Sequence[str] | None = None,
    keep: str = "qk",
    layers: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
) -> Iterator[Trace]:
    """Record every attention call of `model` inside the block; the trace is complete when the block ends.

        with attnviz.record(model, tokenizer=tokenizer) as trace:
            model(**inputs)

    The model computes what it computed before, and is afterwards as it was, also after an exception.
    tokenizer or tokens (one label per position) name rows and columns; else they show ids or positions.
    keep is "qk" (queries, keys and statistics: every weight on demand), "qkv", "statistics" or "weights"; layers
    restricts what is kept; dtype stores queries and keys in another dtype, such as torch.float16.

    Raises UsageError for wrong arguments, RecordingError where attention cannot be recorded exactly.
    """
    if keep not in KEEP:
        raise UsageError(f"keep must be one of {', '.join(KEEP)}, got {keep!r}")
    recorder = Recorder(
        Trace(model=type(model).__name__),
        Options(keep, None if layers is None else frozenset(layers), dtype),
        tokenizer,
        tokens,
    )
    with recording(model, recorder):
        yield recorder.trace


@contextmanager
def recording(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let a recorder hear a model; its trace is filled at the end."""
    attending = interface_modules(model)
    if not attending:
        raise RecordingError(f"{type(model).__name__} has no attention that can be recorded")
    found = places(model, attending)
    recorder.places = {id(module): found[name] for name, module in attending.items()}
    with ExitStack() as stack:
        stack.enter_context(switched(attending.values()))
        listen(recorder, attending.values())
        stack.callback(leave, recorder)
        for name, part in stacks(model).items():
            handle = part.register_forward_pre_hook(_hear(recorder, name, part), with_kwargs=True)
            stack.callback(handle.remove)
        yield
        recorder.finish()


def _hear(recorder: Recorder, name: str, part: nn.Module) -> Any:
    import inspect as signatures

    signature = signatures.signature(part.forward)

    def hook(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = signature.bind_partial(*args, **kwargs).arguments
        given = {**given.get("kwargs", {}), **given}
        ids, real = given.get("input_ids"), given.get("attention_mask")
        real = real if isinstance(real, torch.Tensor) and real.dim() == 2 else None
        recorder.hear(name, Given(ids, real))

    return hook


def inspect(model: Any, text: str, *, keep: str = "qk", **options: Any) -> Trace:
    """The trace of one forward pass over a text.

    model is a name that `load_model` takes, or (model, tokenizer). options go to `record`.
    """
    from ..models import load_model

    network, tokenizer = model if isinstance(model, tuple) else load_model(model)
    if not text.strip():
        raise UsageError("the text is empty: give at least one word")
    inputs = tokenizer(text, return_tensors="pt").to(network.device)
    name = model if isinstance(model, str) else type(network).__name__
    chosen = options.pop("layers", None)
    recorder = Recorder(
        Trace(model=name), Options(keep, None if chosen is None else frozenset(chosen)), tokenizer, None
    )
    recorder.text = text
    with torch.no_grad(), recording(network, recorder):
        network(**inputs)
    return recorder.trace
