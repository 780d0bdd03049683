"""nn.TransformerEncoder's fast path leaves zeros in padded rows; so does this when recording takes the slow path."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from inspect import signature
from typing import Any

import torch
from torch import Tensor, nn

_ARGUMENTS = signature(nn.TransformerEncoder.forward)


@contextmanager
def zeros_in_padding(model: nn.Module) -> Iterator[None]:
    """Give every nn.TransformerEncoder of the model the output its fast path would give, while the block runs."""
    with ExitStack() as stack:
        for module in model.modules():
            if isinstance(module, nn.TransformerEncoder):
                stack.callback(module.register_forward_hook(_fill, prepend=True, with_kwargs=True).remove)
        yield


def _fill(module: nn.Module, args: Any, kwargs: Any, output: Tensor) -> Tensor:
    assert isinstance(module, nn.TransformerEncoder)
    given = _ARGUMENTS.bind(module, *args, **kwargs).arguments
    padding = given.get("src_key_padding_mask")
    if padding is None or not _is_fast(module, given["src"], given.get("mask"), padding):
        return output
    empty = output.new_zeros(output.shape[-1])
    return torch.where(_hidden(padding)[..., None], empty if module.norm is None else module.norm(empty), output)


def _is_fast(module: nn.TransformerEncoder, source: Tensor, mask: Tensor | None, padding: Tensor) -> bool:
    """Whether torch would have packed the rows that are not padding; its conditions, in its order."""
    first: Any = module.layers[0]
    return (
        torch.backends.mha.get_fastpath_enabled()
        and module.use_nested_tensor
        and not first.training
        and source.dim() == 3
        and (not module.mask_check or _left_aligned(_hidden(padding)))
        and mask is None
        and not torch.is_autocast_enabled()
        and not (torch.is_grad_enabled() and any(p.requires_grad for p in (source, *first.parameters())))
    )


def _hidden(padding: Tensor) -> Tensor:
    return padding if padding.dtype == torch.bool else padding == -torch.inf


def _left_aligned(hidden: Tensor) -> bool:
    return bool((hidden.long().diff(dim=1) >= 0).all())
