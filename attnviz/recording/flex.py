"""flex_attention in the terms of the kernels: its mask function evaluated once, its score function left to torch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from attnviz_kernels import Mask

from .torch_arguments import Inputs, mask_structure


@dataclass(frozen=True)
class FlexCall:
    """The arguments of the operator behind flex_attention."""

    query: Tensor
    key: Tensor
    value: Tensor
    score_mod: Callable[..., Tensor]
    block_mask: tuple[Any, ...]
    scale: float
    kernel_options: dict[str, Any]
    score_buffers: tuple[Any, ...] = ()
    mask_buffers: tuple[Any, ...] = ()

    @property
    def changes_scores(self) -> bool:
        """Whether there is a score function."""
        from torch.nn.attention import flex_attention

        return self.score_mod is not flex_attention._identity

    @property
    def wants_more(self) -> bool:
        """Whether the caller asked for more than the output."""
        return any(self.kernel_options.get(name) for name in ("OUTPUT_LOGSUMEXP", "OUTPUT_MAX"))

    def mask_shape(self) -> tuple[int, int, int, int]:
        """The mask's axes [B, H, M, N], B and H being 1 where it does not depend on them."""
        batch, heads = self.block_mask[2].shape[:2]
        return batch, heads, self.query.shape[2], self.key.shape[2]

    def inputs(self) -> Inputs:
        """The call without its score function; the mask function is evaluated at every pair of positions."""
        from torch.nn.attention import flex_attention

        batch = self.query.shape[0]
        key, value = (tensor.expand(batch, -1, -1, -1) for tensor in (self.key, self.value))
        mask_mod = self.block_mask[-1]
        if mask_mod is flex_attention.noop_mask:
            return Inputs(self.query, key, value, self.scale, Mask())
        seen = flex_attention.create_mask(mask_mod, *self.mask_shape(), device=self.query.device)
        return Inputs(self.query, key, value, self.scale, mask_structure(seen, batch))

    def weights(self, operator: Callable[..., Any]) -> Tensor:
        """[B, H, M, N]: what torch's own operator gives for values that name each key (one-hot)."""
        groups, keys = self.key.shape[1:3]
        names = torch.eye(keys, dtype=self.query.dtype, device=self.query.device)
        value = names.expand(self.key.shape[0], groups, keys, keys)
        found: tuple[Tensor, ...] = operator(
            self.query,
            self.key,
            value,
            self.score_mod,
            self.block_mask,
            self.scale,
            self.kernel_options,
            self.score_buffers,
            self.mask_buffers,
        )
        return found[0]
