"""The implicit attention of state-space layers: Mamba's and Mamba-2's maps, to be looked at like any other.

A selective state-space layer multiplies the sequence that reaches its recurrence with a lower triangular matrix, one
for each channel (Mamba) or head (Mamba-2): Ali et al. 2024, The Hidden Attention of Mamba Models, arXiv 2403.01590.
Its weights may be negative and its rows do not sum to one. The map is that of the recurrence alone: the convolution
before it, the skip D beside it and the gate behind it are no part of it, so a large weight does not show that the
layer's output rests on that token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ..errors import RecordingError, UsageError
from ..head import Record
from ..numbers import percent
from ..recording.labels import Given, axis
from ..statespace import StateSpace
from ..trace import Trace

RUNG = "state space"
"""What `trace.coverage()` says of such a map."""

_MAMBA = ("in_proj", "x_proj", "dt_proj", "out_proj", "A_log", "D")
_MAMBA2 = ("in_proj", "conv1d", "act", "norm", "dt_bias", "A_log", "D")
_CHECKED = 4
"""Channels of each layer whose map is held against what the layer really computed."""


@dataclass(frozen=True)
class Mixed:
    """What one layer did: its map, what the map was applied to, [B, H, N, E], and how the layer goes on from there.

    seen [B, H, N, E] is what the model computed from it: (map @ value + skip * value) * gate.
    """

    view: StateSpace
    value: Tensor
    skip: Tensor
    gate: Tensor
    seen: Tensor

    def error(self) -> float:
        """How far the map is from explaining what the layer computed, relative to its largest output."""
        worst = 0.0
        heads = self.view.step.shape[1]
        for head in range(0, heads, max(1, heads // _CHECKED)):
            own = slice(head, head + 1)
            for batch in range(len(self.value)):
                value = self.value[batch : batch + 1, own]
                told = self.view.select(batch, head).push(value) + self.skip[own, None, None] * value
                error = told * self.gate[batch : batch + 1, own] - self.seen[batch : batch + 1, own]
                worst = max(worst, error.abs().max().item())
        return worst / max(self.seen.abs().max().item(), 1e-12)


def implicit_attention(
    model: nn.Module,
    inputs: Mapping[str, Any],
    *,
    tokenizer: Any = None,
    channels: Sequence[int] | None = None,
    layers: Sequence[int] | None = None,
) -> Trace:
    """The trace of one forward pass of a model with Mamba or Mamba-2 layers; every chart of a trace shows it.

    channels are the maps that are wanted, and become the heads of the trace, under their own numbers: channels of a
    Mamba layer, heads of a Mamba-2 layer. None gives all heads of Mamba-2, and of Mamba the mean of all channels, as
    head 0. With channels, `record.value` holds what the map is applied to: map @ value is the layer's recurrence.

    Each layer is checked while it runs: its maps must give what it computed. Raises RecordingError for a model without
    such layers and for variants that compute something else, UsageError for channels or layers that do not exist.
    """
    mixers = _mixers(model)
    if not mixers:
        raise RecordingError(
            f"{type(model).__name__} has no Mamba or Mamba-2 layer, so it has no implicit attention: use attnviz.record"
        )
    missing = sorted(set(layers or ()) - set(mixers))
    if missing:
        known = ", ".join(map(str, mixers))
        raise UsageError(f"layer {missing[0]} is no state-space layer: those of {type(model).__name__} are {known}")
    wanted = {number: found for number, found in mixers.items() if layers is None or number in layers}
    records = [_record(number, wanted[number], mixed, channels) for number, mixed in _run(model, inputs, wanted)]
    trace = Trace(type(model).__name__, records, notes=[f"{RUNG}: weights may be negative, rows do not sum to one"])
    trace.axes["self"] = tuple(_axes(inputs, tokenizer, records[0]))
    return trace


def _mixers(model: nn.Module) -> dict[int, tuple[str, Any]]:
    """Path and module of each layer that is built like Mamba's or Mamba-2's, by the model's own number."""
    found: dict[int, tuple[str, Any]] = {}
    for name, module in model.named_modules():
        if any(all(hasattr(module, part) for part in parts) for parts in (_MAMBA, _MAMBA2)):
            found[int(getattr(module, "layer_idx", len(found)))] = (name, module)
    return found


def _run(
    model: nn.Module, inputs: Mapping[str, Any], mixers: Mapping[int, tuple[str, Any]]
) -> Iterator[tuple[int, Mixed]]:
    """What each layer did in one forward pass."""
    heard: dict[int, dict[str, Tensor]] = {number: {} for number in mixers}
    with ExitStack() as exits, torch.no_grad():
        for number, (_, mixer) in mixers.items():
            for part, where in _listened(mixer).items():
                hook = getattr(mixer, part).register_forward_hook(_keeping(heard[number], part, where))
                exits.callback(hook.remove)
        model(**{**inputs, "use_cache": False})
        for number, (name, mixer) in mixers.items():
            if len(heard[number]) < len(_listened(mixer)):
                raise RecordingError(f"{name} did not run as torch modules: call model.eval() first")
            read = _mamba if hasattr(mixer, "x_proj") else _mamba2
            mixed = read(mixer, heard[number], inputs.get("attention_mask"))
            error = mixed.error()
            if error > max(1e-3, 16 * torch.finfo(mixer.in_proj.weight.dtype).eps):
                raise RecordingError(
                    f"{type(mixer).__name__} of layer {number} computes something else than Mamba's recurrence: its"
                    f" output differs from the map's by {percent(error)}, so its map is not known here"
                )
            yield number, mixed


def _listened(mixer: Any) -> dict[str, str]:
    """The parts of a layer whose input or output is needed."""
    if hasattr(mixer, "x_proj"):
        return {"in_proj": "output", "x_proj": "both", "out_proj": "input"}
    return {"in_proj": "output", "norm": "input"}


def _keeping(heard: dict[str, Tensor], part: str, where: str) -> Callable[..., None]:
    def keep(_: nn.Module, args: tuple[Any, ...], output: Tensor) -> None:
        if where in ("input", "both"):
            heard[f"{part} input" if where == "both" else part] = args[0].detach()
        if where in ("output", "both"):
            heard[part] = output.detach()

    return keep


def _mamba(mixer: Any, heard: Mapping[str, Tensor], mask: Tensor | None) -> Mixed:
    """Mamba (Gu and Dao 2023, arXiv 2312.00752): delta, B and C come from the input of the recurrence."""
    states = mixer.A_log.shape[1]
    value = _wide(heard["x_proj input"]).transpose(1, 2)  # [B, H, N]
    low, writer, reader = torch.split(_wide(heard["x_proj"]), [mixer.dt_proj.in_features, states, states], -1)
    step = F.softplus(F.linear(low, _wide(mixer.dt_proj.weight), _wide(mixer.dt_proj.bias))).transpose(1, 2)
    gate = F.silu(_wide(heard["in_proj"]).chunk(2, -1)[1]).transpose(1, 2)
    view = _view(-_wide(mixer.A_log).exp(), step, writer[:, None], reader[:, None])
    seen = _wide(heard["out_proj"]).transpose(1, 2)
    return Mixed(view, value[..., None], _wide(mixer.D), gate[..., None], seen[..., None])


def _mamba2(mixer: Any, heard: Mapping[str, Tensor], mask: Tensor | None) -> Mixed:
    """Mamba-2 (Dao and Gu 2024, arXiv 2405.21060): one scalar A a head, whose channels share the map."""
    heads, groups, states = mixer.num_heads, mixer.n_groups, mixer.ssm_state_size
    width = heads * mixer.head_dim
    _, mixed, low = torch.split(heard["in_proj"], [width, width + 2 * groups * states, heads], -1)
    count = mixed.shape[1]
    mixed = _wide(mixer.act(mixer.conv1d(mixed.transpose(1, 2))[..., :count]).transpose(1, 2))
    if mask is not None:
        mixed = mixed * mask[:, :, None]
    value, writer, reader = torch.split(mixed, [width, groups * states, groups * states], -1)
    step = F.softplus(_wide(low) + _wide(mixer.dt_bias)).clamp(*mixer.time_step_limit).transpose(1, 2)
    grouped = (_by_head(part, groups) for part in (writer, reader))
    shared = [part if groups == 1 else part.repeat_interleave(heads // groups, 1) for part in grouped]
    view = _view(-_wide(mixer.A_log).exp()[:, None].expand(heads, states), step, *shared)
    given, seen = _by_head(value, heads), _by_head(_wide(heard["norm"]), heads)
    return Mixed(view, given, _wide(mixer.D), torch.ones_like(given[..., :1]), seen)


def _by_head(tensor: Tensor, heads: int) -> Tensor:
    """[B, N, H * E] to [B, H, N, E]."""
    batch, count, width = tensor.shape
    return tensor.reshape(batch, count, heads, width // heads).transpose(1, 2)


def _view(decay: Tensor, step: Tensor, writer: Tensor, reader: Tensor) -> StateSpace:
    time = step.double().cumsum(-1)
    return StateSpace(decay, reader, time, writer, time, step)


def _wide(tensor: Tensor) -> Tensor:
    """At least float32."""
    return tensor.detach() if tensor.dtype == torch.float64 else tensor.detach().float()


def _record(number: int, place: tuple[str, Any], mixed: Mixed, channels: Sequence[int] | None) -> Record:
    view, value, numbers = mixed.view, mixed.value, None
    if channels is not None:
        count = view.step.shape[1]
        wrong = [channel for channel in channels if not 0 <= channel < count]
        if wrong or not channels:
            told = f"channel {wrong[0]} does not exist" if wrong else "channels names none"
            raise UsageError(f"{told}: layer {number} has {count} (0 to {count - 1})")
        numbers = tuple(sorted(set(channels)))
        view, value = view.only(numbers), value[:, list(numbers)].contiguous()
    averaged = channels is None and hasattr(place[1], "x_proj")
    notes = (f"the mean of {view.step.shape[1]} channels",) if averaged else ()
    shown = view.averaged() if averaged else view
    return Record(place[0], number, "self", RUNG, "", shown, None, None, None if averaged else value, notes, numbers)


def _axes(inputs: Mapping[str, Any], tokenizer: Any, record: Record) -> Iterator[Any]:
    assert record.view is not None
    batch, _, rows, _ = record.view.shape
    ids, mask = inputs.get("input_ids"), inputs.get("attention_mask")
    for index in range(batch):
        given = Given(
            rows, ids=None if ids is None else ids[index].cpu(), real=None if mask is None else mask[index].cpu()
        )
        yield axis(given, tokenizer, None, None)
