"""Rung 1: one attention function for transformers' AttentionInterface, and the switch that puts it in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from attnviz_kernels import ArgumentError, Emit, Mask, View, attend, reference

from ..errors import RecordingError
from .active import listening
from .heard import Heard
from .intervene import changed_mask, changed_output
from .masks import Carrier, Placed, carrier
from .original import BEFORE, causal_by_flag, own_function, refuse_other
from .verify import verify

NAME = "attnviz"
"""What transformers' registries and a recorded model's configuration call this implementation."""

IGNORED = frozenset(
    [
        "cache_position",
        "deterministic",
        "encoder_hidden_states",
        "is_causal",
        "output_attentions",
        "output_hidden_states",
        "position_ids",
        "return_dict",
        "sliding_window",
        "token_type_ids",
        "use_cache",
    ]
)
"""Keywords that carry no maths here: what they say about the mask, the mask already says."""

KNOWN = IGNORED | {"softcap", "position_bias", "s_aux", "sinks"}
"""Those and the ones that do."""

BEFORE_DROPOUT = "training mode: the weights are those before dropout"

_lock = Lock()
_users = 0


@contextmanager
def switched(listening: Iterable[nn.Module], by_hand: Iterable[nn.Module]) -> Iterator[None]:
    """Let modules call `attention`, and those that compute by hand do so eagerly; all is put back at the end."""
    configs: dict[int, tuple[Any, str]] = {}
    for modules, name in ((by_hand, "eager"), (listening, NAME)):
        configs |= {id(module.config): (module.config, name) for module in modules if hasattr(module, "config")}
    before = {key: config._attn_implementation_internal for key, (config, _) in configs.items()}
    first = {key: name for key, name in before.items() if name != NAME}
    for module in listening:
        refuse_other(module, first.get(id(getattr(module, "config", None))))
    BEFORE.update(first)
    _register(1)
    try:
        for config, name in configs.values():
            config._attn_implementation_internal = name
        yield
    finally:
        for key, (config, _) in configs.items():
            config._attn_implementation_internal = before[key]
            if key in first:
                BEFORE.pop(key, None)
        _register(-1)


def _register(change: int) -> None:
    """Count who needs the registry entries; the first puts them in, the last takes them out."""
    from transformers import AttentionInterface, AttentionMaskInterface

    global _users
    with _lock:
        _users += change
        for registry, function in ((AttentionInterface, attention), (AttentionMaskInterface, carrier)):
            if _users:
                registry._global_mapping[NAME] = function
            else:
                registry._global_mapping.pop(NAME, None)


def attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **keywords: Any,
) -> tuple[Tensor, Tensor | None]:
    """Attention as transformers asks for it; output [B, M, H, E]. Recorders keep the call, interventions change it."""
    refuse_unknown(module, keywords)
    causal = attention_mask is None and causal_by_flag(module, query, keywords)
    placed = Placed(Mask(causal=True)) if causal else read_mask(attention_mask)
    query, key, value = as_autocast(query, key, value)
    recorders = () if torch._C._current_graph_task_id() != -1 else listening(module)
    maths: dict[str, Any] = {
        "scale": query.shape[-1] ** -0.5 if scaling is None else float(scaling),
        "mask": changed_mask(module, placed.mask, (*query.shape[:3], key.shape[2])),
        "softcap": keywords.get("softcap"),
        "bias": four_axes(keywords.get("position_bias")),
        "sinks": keywords.get("s_aux") if keywords.get("sinks") is None else keywords["sinks"],
    }
    dropped = dropout > 0 and module.training
    emit = merged([recorder.emit(module, query, key) for recorder in recorders])
    try:
        tensors = (query.detach(), key.detach(), value.detach()) if dropped else (query, key, value)
        attended = attend(*tensors, emit=emit, **maths)
    except ArgumentError as error:
        raise RecordingError(f"{type(module).__name__} attends in a way that is not known here: {error}") from error
    view = View(query, key, attended.logsumexp, **maths)
    notes = (BEFORE_DROPOUT,) if dropped else ()
    heard = Heard(view, placed, value, notes, attended.statistics, attended.weights)
    if any(recorder.sees_first(type(module), tuple(keywords)) for recorder in recorders):
        verify(module, heard, attended.output, {"scaling": maths["scale"], **keywords})
    for recorder in recorders:
        recorder.add(module, heard)
    own = own_function(module, placed.mask, attended.logsumexp, keywords)
    if own is not None:
        mask = attention_mask.build() if isinstance(attention_mask, Carrier) else attention_mask
        answer: tuple[Tensor, Tensor | None] = own(
            module, query, key, value, mask, scaling=maths["scale"], dropout=dropout, **keywords
        )
        return answer
    output = changed_output(module, dropped_out(view, value, dropout) if dropped else attended.output)
    return output.transpose(1, 2).contiguous(), None


def as_autocast(*tensors: Tensor) -> tuple[Tensor, ...]:
    """The tensors in the type that torch's own attention would compute in under autocast."""
    device = tensors[0].device.type
    if not torch.is_autocast_enabled(device):
        return tensors
    dtype = torch.get_autocast_dtype(device)
    return tuple(tensor.to(dtype) if tensor.dtype != torch.float64 else tensor for tensor in tensors)


def dropped_out(view: View, value: Tensor, dropout: float) -> Tensor:
    """[B, H, M, E]: attention with dropout of weights, as eager attention does it, from the whole map."""
    score = reference.scores(view)
    if view.sinks is not None:
        sinks = view.sinks.to(score.dtype)[None, :, None, None].expand(*score.shape[:3], 1)
        score = torch.cat([score, sinks], -1)
    weights = torch.softmax(score, -1)[..., : view.shape[3]].nan_to_num()
    weights = F.dropout(weights.to(value.dtype), dropout)
    return weights @ value.repeat_interleave(view.shape[1] // value.shape[1], 1)


def merged(wanted: list[Emit]) -> Emit:
    """All that several recorders ask for."""
    if len(wanted) == 1:
        return wanted[0]
    return Emit(statistics=any(emit.statistics for emit in wanted), weights=any(emit.weights for emit in wanted))


def four_axes(tensor: Tensor | None) -> Tensor | None:
    """A tensor that broadcasts to [B, H, M, N], with all four axes."""
    return None if tensor is None else tensor[(None,) * (4 - tensor.dim())]


def refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    """RecordingError for numbers whose meaning is not known, because ignoring them could change the result.

    Flags are let through: what they change shows in `verify`.
    """
    unknown = [name for name, value in others.items() if name not in KNOWN and isinstance(value, (Tensor, float))]
    if unknown:
        raise RecordingError(
            f"{type(module).__name__} passes {', '.join(unknown)} to its attention, whose meaning is not known here:"
            " record this model with eager attention and attnviz.tap"
        )


def read_mask(attention_mask: Tensor | None) -> Placed:
    """The mask as structure where it is known, else as the dense tensor that the model made."""
    if isinstance(attention_mask, Carrier):
        return attention_mask.placed
    if attention_mask is None:
        return Placed(Mask())
    return Placed(Mask(dense=four_axes(attention_mask)))
