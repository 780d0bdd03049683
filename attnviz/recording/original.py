"""What a model's own attention gives besides what the kernel does: then its own function answers, and is only read."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from attnviz_kernels import Mask

from ..errors import RecordingError
from .intervene import changes
from .verify import eager_function

BEFORE: dict[int, str] = {}
"""The implementation that each configuration had before it was switched, by identity."""


def refuse_other(module: nn.Module, name: str | None) -> None:
    """RecordingError for attention that somebody registered: what it computes is not known, and would be replaced.

    Kernels of the hub ("owner/name") compute what transformers' own functions do.
    """
    function = None if name is None or name == "eager" or "/" in name else _registered(name)
    if function is not None and not function.__module__.startswith("transformers."):
        raise RecordingError(
            f'{type(module).__name__} runs with attn_implementation="{name}", a function of {function.__module__} that'
            ' may compute anything: set_attn_implementation("sdpa") before, or attnviz.tap its weights'
        )


def causal_by_flag(module: nn.Module, query: Tensor, keywords: dict[str, Any]) -> bool:
    """Whether transformers' "sdpa" would hide later keys from a call without a mask; eager attention never does."""
    if BEFORE.get(id(getattr(module, "config", None))) != "sdpa" or query.shape[2] == 1:
        return False
    given = keywords.get("is_causal")
    return bool(getattr(module, "is_causal", True) if given is None else given)


def own_function(module: nn.Module, mask: Mask, logsumexp: Tensor, keywords: dict[str, Any]) -> Any:
    """The module's attention as it was before, where it gives what the kernel does not; else None.

    That is weights, where the model is asked for them, and what queries that see no key get: zeros here, a mean where
    the lowest number is added to their scores.
    """
    name = BEFORE.get(id(getattr(module, "config", None)))
    if name is None or changes(module):
        return None
    if name == "eager":
        wanted = _asks_for_weights(module, keywords) or _blind(mask, logsumexp)
        return eager_function(type(module)) if wanted else None
    added = keywords.get("position_bias") is not None or (mask.dense is not None and mask.dense.is_floating_point())
    return _registered(name) if added and _blind(mask, logsumexp) else None


def _blind(mask: Mask, logsumexp: Tensor) -> bool:
    """Whether a query sees no key."""
    masked = mask.dense is not None or mask.key_padding is not None
    return masked and bool((logsumexp == -torch.inf).any())


def _registered(name: str) -> Any:
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    registry: Any = ALL_ATTENTION_FUNCTIONS
    return registry.get(name)


def _asks_for_weights(module: Any, keywords: dict[str, Any]) -> bool:
    from transformers.utils import output_capturing

    collector: Any = output_capturing._active_collector
    asked = keywords.get("output_attentions") or getattr(module.config, "output_attentions", False)
    return bool(asked) or any(name.endswith("attentions") for name in collector.get() or ())
