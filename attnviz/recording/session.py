"""`record` and `inspect`: the two ways in."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import check_numbers, check_text, path_of, refuse
from ..errors import RecordingError, UsageError
from ..trace import Trace
from .active import leave, listen
from .assembly import finish
from .claims import claimed
from .generic import fill, generic, nothing_heard
from .interface import NAME, switched
from .modules import WINDOWS, Survey, inside, survey
from .options import Options
from .own_weights import ask
from .recorder import Recorder
from .revision import revision
from .stacks import follow
from .watch import Watch

GENERATED = 64
"""The most tokens that `inspect` lets an encoder-decoder model write."""


@contextmanager
def record(
    model: nn.Module,
    *,
    tokenizer: Any = None,
    text: str | None = None,
    tokens: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
    keep: str = "qk",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    budget: int | None = None,
    spill: str | Path | None = None,
) -> Iterator[Trace]:
    """Record every attention call of `model` inside the block; the trace is complete when the block ends.

        with attnviz.record(model, tokenizer=tokenizer) as trace:
            model(**inputs)

    The model computes what it computed before, and is afterwards as it was, also after an exception. Calls that
    continue one another through a cache, as in `model.generate`, are one map; of several unrelated calls the trace
    holds the last. While a model is recorded only one thread may use it.

    tokenizer or tokens (one label per position; {"encoder": ..., "decoder": ...} for both sides) name rows and
    columns; else they show ids or positions. text, beside a tokenizer, is what the ids of a single sequence were made
    from: its tokens are then shown as they are written there, also where the tokenizer drops case and accents. keep is
    "qk" (queries, keys and statistics: every weight on demand), "qkv", "statistics" or "weights"; layers and heads
    restrict what is kept; dtype stores queries and keys in another type, such as torch.float16; budget is the bytes of
    memory that the recording may take (default: what is free); spill is a folder for memory-mapped files instead.

    Raises UsageError for wrong arguments, RecordingError where attention cannot be recorded exactly, BudgetError
    before the budget is exceeded.
    """
    _check_model(model, tokenizer)
    _check_labels(tokens)
    _check_source(text, tokenizer)
    options = make_options(keep=keep, layers=layers, heads=heads, dtype=dtype, budget=budget, spill=spill)
    recorder = Recorder(Trace(model=type(model).__name__, revision=revision(model)), options, tokenizer, tokens)
    recorder.text = text
    with recording(model, recorder):
        yield recorder.trace


def inspect(model: Any, text: str, *, start: bool = False, **options: Any) -> Trace:
    """The trace of one forward pass over a text; of an encoder-decoder model, of what it generates from the text.

    model is a name that `load_model` takes, or (model, tokenizer); start puts the tokenizer's start token before the
    text where the tokenizer itself does not; options are those of `record`.
    """
    from ..models import load_model

    check_text(text)
    _check_names(options)
    if isinstance(model, nn.Module):
        raise UsageError("a model alone cannot read a text: give (model, tokenizer)")
    network, tokenizer = _two(model) if isinstance(model, tuple) else load_model(model)
    _check_model(network, tokenizer)
    if tokenizer is None:
        raise UsageError("this model has no tokenizer, which reads the text: give (model, tokenizer)")
    name = model if isinstance(model, str) else type(network).__name__
    labels = options.pop("tokens", None)
    _check_labels(labels)
    trace = Trace(model=name, revision=revision(network))
    recorder = Recorder(trace, make_options(**options), tokenizer, labels)
    recorder.text = text
    inputs = tokenizer(text, return_tensors="pt", verbose=False).to(network.device)
    if start:
        inputs = started(inputs, tokenizer)
    check_length(network, tokenizer, inputs["input_ids"].shape[1])
    with torch.no_grad(), recording(network, recorder):
        if network.config.is_encoder_decoder:
            network.generate(**inputs, max_new_tokens=GENERATED)
        else:
            network(**inputs, **_few_logits(network))
    return recorder.trace


def _two(pair: tuple[Any, ...]) -> tuple[Any, Any]:
    if len(pair) != 2:
        raise UsageError(f"a loaded model is given as (model, tokenizer), got a tuple of {len(pair)}")
    return pair[0], pair[1]


def _check_model(model: Any, tokenizer: Any) -> None:
    """UsageError unless both are what their names say; there may be no tokenizer."""
    if not isinstance(model, nn.Module):
        raise refuse("the model", "a loaded torch module (attnviz.load_model gives one, with its tokenizer)", model)
    if tokenizer is not None and not hasattr(tokenizer, "convert_ids_to_tokens"):
        raise refuse("the tokenizer", "one of transformers, such as AutoTokenizer gives", tokenizer)


def _check_labels(tokens: Any) -> None:
    if tokens is not None and (isinstance(tokens, str) or not isinstance(tokens, Sequence | Mapping)):
        raise refuse("tokens", "a list of labels, or one for each side by its name", tokens)


def _check_source(text: Any, tokenizer: Any) -> None:
    if text is None:
        return
    check_text(text)
    if tokenizer is None:
        raise UsageError("a text is matched with its tokens by the tokenizer: give tokenizer= beside text=")


def _check_names(options: Mapping[str, Any]) -> None:
    known = ("tokens", *signature(make_options).parameters)
    for name in options:
        if name not in known:
            raise UsageError(f"there is no option {name!r}: the options of inspect are start, {', '.join(known)}")


def _few_logits(model: nn.Module) -> dict[str, int]:
    """Nobody reads the logits here, and those of every token take more memory than the trace."""
    return {"logits_to_keep": 1} if "logits_to_keep" in signature(model.forward).parameters else {}


def started(inputs: Mapping[str, Tensor], tokenizer: Any) -> dict[str, Tensor]:
    """The inputs of one text with the start token in front, or as they are where it is there already."""
    first = tokenizer.bos_token_id
    if first is None:
        raise UsageError("this tokenizer has no start token: leave it out")
    if int(inputs["input_ids"][0, 0]) == first:
        return dict(inputs)
    fill = {"input_ids": first, "attention_mask": 1}
    return {name: torch.nn.functional.pad(given, (1, 0), value=fill.get(name, 0)) for name, given in inputs.items()}


def check_length(model: nn.Module, tokenizer: Any, count: int) -> None:
    """UsageError for a text of more tokens than the model has positions."""
    limit = longest(model, tokenizer)
    if limit is not None and count > limit:
        raise UsageError(f"the text has {count:,} tokens, this model reads {limit:,} at most: give a shorter text")


def longest(model: nn.Module, tokenizer: Any) -> int | None:
    """How many tokens a model reads at most, special ones included; None where neither it nor its tokenizer says."""
    config: Any = model.config
    known = (getattr(config, "max_position_embeddings", None), getattr(tokenizer, "model_max_length", None))
    return min((number for number in known if isinstance(number, int) and number > 0), default=None)


def make_options(
    *,
    keep: str = "qk",
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    dtype: torch.dtype | None = None,
    budget: int | None = None,
    spill: str | Path | None = None,
) -> Options:
    """Options as `record` takes them."""
    check_numbers("layers", layers)
    check_numbers("heads", heads)
    return Options(
        keep,
        None if layers is None else frozenset(layers),
        None if heads is None else tuple(sorted(set(heads))),
        dtype,
        budget,
        None if spill is None else path_of(spill),
    )


@contextmanager
def recording(model: nn.Module, recorder: Recorder) -> Iterator[None]:
    """Let a recorder hear a model; its trace is filled at the end."""
    found = survey(model)
    check(model, found, recorder.options)
    with claimed(model), ExitStack() as exits:
        watch = Watch(model, recorder.options, recorder.store, not found.interface or bool(found.unknown))
        exits.enter_context(generic(watch))
        asked = {name: found.stacks[name] for name in found.by_hand}
        recorder.places = {id(module): found.places[name] for name, module in found.interface.items()}
        exits.enter_context(switched(found.interface.values(), asked.values()))
        listen(recorder, found.interface.values())
        exits.callback(leave, recorder)
        follow(recorder, found.stacks, exits)
        for name, places in found.by_hand.items():
            ask(recorder, name, asked[name], places, exits)
        yield
        recorder.settle()
        if not recorder.calls and not watch.chains.found:
            raise nothing_heard(watch)
        finish(recorder, found)
        fill(recorder.trace, watch, recorder.tokenizer, recorder.labels)
        settle(recorder.trace, found, watch)


def settle(trace: Trace, found: Survey, watch: Watch) -> None:
    """Take back what torch's functions showed of attention inside windows, and name a pooling head for what it is."""
    windows = [name for name, why in found.unknown.items() if why == WINDOWS]
    trace.records[:] = [record for record in trace.records if not any(inside(record.name, name) for name in windows)]
    trace.unrecorded += [name for name in windows if name not in trace.unrecorded]
    reasons = {name: found.unknown[name] if watch.ran(name) else "was not called" for name in trace.unrecorded}
    trace.notes += [f"{name} was not recorded: it {reason}" for name, reason in reasons.items()]
    if found.places and "cross" not in {place.kind for place in found.attending}:
        _name_pooling(trace)


def _name_pooling(trace: Trace) -> None:
    heads = [record for record in trace.records if record.kind == "cross" and record.view is not None]
    for head in heads:
        trace.records[trace.records.index(head)] = replace(head, kind="pool")
    for side in ("encoder", "decoder") if heads else ():
        trace.axes.pop(side, None)
    for axes in [trace.axes[side] for side in ("vision", "self") if heads and side in trace.axes]:
        if heads[0].view is not None and len(axes[0].tokens) == heads[0].view.shape[3]:
            trace.axes["pooled"] = axes


def check(model: nn.Module, found: Survey, options: Options) -> None:
    """Refuse, before anything runs, a model without attention and layers it does not have."""
    by_functions = any(why != WINDOWS for why in found.unknown.values())
    if found.stacks and not (found.interface or found.by_hand or by_functions):
        seen = "".join(f"; {name} {reason}" for name, reason in list(found.unknown.items())[:1])
        if found.linear:
            seen = (
                f"; its {len(found.linear)} layers are linear attention or state space ({found.linear[0].name}):"
                " attnviz.analysis.implicit has the maps of Mamba's"
            )
        raise RecordingError(
            f"{type(model).__name__} has no attention to record: no module calls transformers' AttentionInterface"
            f" or returns attention weights{seen}"
        )
    for name in found.by_hand:
        config: Any = found.stacks[name].config
        if config._attn_implementation == NAME:
            raise RecordingError(
                f'{type(found.stacks[name]).__name__} was built with attn_implementation="{NAME}", which it does not'
                ' support and silently computes wrongly with: build it with "eager"'
            )
    known = sorted({place.layer for place in found.attending if not place.shared})
    if options.layers is not None and known and not any(place.shared for place in found.attending):
        missing = sorted(options.layers - set(known))
        if missing:
            raise UsageError(
                f"layer {missing[0]} does not attend: the layers of {type(model).__name__} that do are"
                f" {', '.join(map(str, known))}"
            )
