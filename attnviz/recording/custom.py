"""`attention`: scaled_dot_product_attention on our kernels, for models that want to be seen."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from attnviz_kernels import ArgumentError, Mask, attend

from ..errors import UsageError
from .reading import exact, read
from .torch_arguments import Inputs, dot_product_inputs, output_shape
from .torch_functions import DROPOUT
from .watch import Watch, watching

RUNG = "attention"


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
    *,
    name: str | None = None,
    kind: str | None = None,
    mask: Mask | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
) -> Tensor:
    """Attention of query [B, H, M, D] to key [B, H, N, D] and value [B, H, N, E], as [B, H, M, E], differentiable.

    A drop-in for `torch.nn.functional.scaled_dot_product_attention` with the same arguments (any rank from two;
    key and value with fewer heads under enable_gqa), recorded inside `record` and free of cost elsewhere. A query
    that may see no key gives zeros. mask, softcap and sinks are those of the kernels (`attnviz_kernels.attend`).
    name tells several calls in one module apart; kind ("self", "cross", ...) is told by the module when None.

    With dropout_p > 0, which the kernels do not have, torch computes the output, and the recorded weights are those
    before dropout.

    Raises UsageError for arguments that do not fit together.
    """
    inputs = _inputs(query, key, value, attn_mask, is_causal, scale, enable_gqa, mask)
    inputs = replace(inputs, softcap=softcap, sinks=sinks)
    watches = watching()
    if dropout_p > 0:
        if mask is not None or softcap is not None or sinks is not None:
            raise UsageError("dropout_p goes with attn_mask or is_causal only: torch has no mask, softcap or sinks")
        if watches:
            with torch.no_grad():
                _recorded(watches, inputs, kind, name, (DROPOUT,))
        with torch._C.DisableTorchFunction():
            return F.scaled_dot_product_attention(
                query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )
    output = _recorded(watches, inputs, kind, name) if watches else _plain(inputs)
    return output.reshape(output_shape(query, key, value))


def _inputs(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
    mask: Mask | None,
) -> Inputs:
    if (attn_mask is not None) + is_causal + (mask is not None) > 1:
        raise UsageError("attn_mask, is_causal and mask are three ways to say one thing: give one of them")
    try:
        inputs = dot_product_inputs(query, key, value, attn_mask, is_causal, scale)
    except RuntimeError as error:
        raise UsageError(f"query, key, value and attn_mask must broadcast: {error}") from None
    heads, groups = inputs.query.shape[1], inputs.key.shape[1]
    if groups not in (1, heads) and not enable_gqa:
        raise UsageError(f"key has {groups} heads and query {heads}: pass enable_gqa=True to share each among several")
    return inputs if mask is None else replace(inputs, mask=mask)


def _plain(inputs: Inputs) -> Tensor:
    inputs = inputs.autocast()
    with exact(inputs):
        try:
            return attend(inputs.query, inputs.key, inputs.value, **inputs.options()).output
        except ArgumentError as error:
            raise UsageError(str(error)) from None


def _recorded(
    watches: tuple[Watch, ...], inputs: Inputs, kind: str | None, name: str | None, notes: tuple[str, ...] = ()
) -> Tensor:
    with torch._C.DisableTorchFunction():
        try:
            return read(watches, inputs, RUNG, kind, name, notes).output
        except ArgumentError as error:
            raise UsageError(str(error)) from None
