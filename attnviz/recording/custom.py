"""`attention`: scaled_dot_product_attention on our kernels, for models that want to be seen."""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn import functional as F

from attnviz_kernels import ArgumentError, Mask, attend

from ..errors import UsageError
from .reading import read
from .torch_arguments import Inputs, dot_product_inputs, output_shape
from .torch_functions import DROPOUT
from .watch import watching

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

    Torch's own function computes the output with dropout_p > 0, which the kernels do not have (the recorded weights
    are those before dropout), and inside torch.compile, which is off during a recording.

    Raises UsageError for arguments that do not fit together.
    """
    extra = mask is not None or softcap is not None or sinks is not None
    if torch.compiler.is_compiling() and not extra:
        return _by_torch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if dropout_p > 0 and extra:
        raise UsageError("dropout_p goes with attn_mask or is_causal: torch's dropout has no mask, softcap or sinks")
    inputs = _inputs(query, key, value, attn_mask, is_causal, scale, enable_gqa, mask)
    inputs = replace(inputs, softcap=softcap, sinks=sinks)
    shape = output_shape(query, key, value)
    if dropout_p == 0:
        return _by_kernel(inputs, shape, kind, name, ())
    if watching():
        with torch.no_grad():
            _by_kernel(inputs, shape, kind, name, (DROPOUT,))
    with torch._C.DisableTorchFunction():  # it is recorded already
        return _by_torch(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _by_torch(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    dropout_p: float,
    is_causal: bool,
    scale: float | None,
    enable_gqa: bool,
) -> Tensor:
    return F.scaled_dot_product_attention(
        query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
    )


def _by_kernel(
    inputs: Inputs, shape: tuple[int, ...], kind: str | None, name: str | None, notes: tuple[str, ...]
) -> Tensor:
    """The kernel's output; every watch keeps the call."""
    try:
        watches = watching()
        if watches:
            with torch._C.DisableTorchFunction():  # the kernel's own operations need not be heard
                return read(watches, inputs, RUNG, kind, name, notes).output.reshape(shape)
        inputs = inputs.autocast()
        return attend(inputs.query, inputs.key, inputs.value, **inputs.options()).output.reshape(shape)
    except ArgumentError as error:
        raise UsageError(str(error)) from None


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
