"""Rung 1: one attention function for transformers' AttentionInterface, and the switch that puts it in place."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from threading import Lock
from typing import Any

from attnviz_kernels import Emit, Mask, attend
from attnviz_kernels.spec import View
from torch import Tensor, nn

from ..errors import RecordingError
from .active import listening
from .masks import Carrier, Placed, carrier

NAME = "attnviz"
"""What transformers' registries and a recorded model's configuration call this implementation."""

IGNORED = frozenset(
    "sliding_window is_causal output_attentions output_hidden_states position_ids cache_position use_cache deterministic"
    " encoder_hidden_states return_dict token_type_ids".split()
)
"""Keywords that carry no maths here: what they say about the mask, the mask already says."""

_lock = Lock()
_users = 0


@contextmanager
def switched(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Let the modules call `attention`; their configurations and the registries are put back at the end."""
    configs = {id(module.config): module.config for module in modules if hasattr(module, "config")}
    before = {key: config._attn_implementation_internal for key, config in configs.items()}
    _register(1)
    try:
        for config in configs.values():
            config._attn_implementation_internal = NAME
        yield
    finally:
        for key, config in configs.items():
            config._attn_implementation_internal = before[key]
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
    softcap: float | None = None,
    position_bias: Tensor | None = None,
    s_aux: Tensor | None = None,
    sinks: Tensor | None = None,
    **others: Any,
) -> tuple[Tensor, None]:
    """Attention as transformers asks for it; output [B, M, H, E]. The recorders of the module keep the call."""
    refuse_unknown(module, others)
    placed = read_mask(attention_mask)
    recorders = listening(module)
    attended = attend(
        query,
        key,
        value,
        scale=scaling,
        mask=placed.mask,
        softcap=softcap,
        bias=position_bias,
        sinks=s_aux if sinks is None else sinks,
        emit=Emit(statistics=any(recorder.wants_statistics(module) for recorder in recorders)),
    )
    scale = query.shape[-1] ** -0.5 if scaling is None else float(scaling)
    view = View(query, key, attended.logsumexp, scale, placed.mask, softcap, position_bias, s_aux if sinks is None else sinks)
    for recorder in recorders:
        recorder.add(module, view, placed, attended, value)
    return attended.output.transpose(1, 2).contiguous(), None


def refuse_unknown(module: nn.Module, others: dict[str, Any]) -> None:
    """RecordingError for a keyword whose meaning is not known, because ignoring it could change the result."""
    unknown = [name for name, value in others.items() if value is not None and name not in IGNORED]
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
    return Placed(Mask(dense=attention_mask))


__all__ = ["IGNORED", "NAME", "attention", "replace", "switched"]
