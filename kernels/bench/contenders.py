"""What is compared: one set of inputs, and every way to attend with it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from measure import Run
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from attnviz_kernels import Emit, Mask, attend

TORCH, OURS, CEILING = "torch sdpa", "this kernel", "matrix product"
LARGEST_MAP = 2**30
"""Bytes of float32 weights of all heads above which nothing that holds them all is run."""


@dataclass(frozen=True)
class Setup:
    """Inputs of one length and one mask."""

    query: Tensor
    key: Tensor
    value: Tensor
    causal: bool
    backend: str | None

    @property
    def section(self) -> str:
        """What the table is headed by."""
        return f"{'causal' if self.causal else 'full'} N = {self.query.shape[2]}"

    @property
    def flops(self) -> float:
        """Floating point operations of the two products that cannot be left out."""
        batch, heads, length, size = self.query.shape
        pairs = length * (length + 1) / 2 if self.causal else length**2
        return 4.0 * batch * heads * size * pairs

    @property
    def map_bytes(self) -> int:
        """Bytes of the whole map in float32."""
        batch, heads, length, _ = self.query.shape
        return 4 * batch * heads * length**2

    @property
    def output_bytes(self) -> int:
        """Bytes of the output that every contender makes."""
        return self.query[..., 0].numel() * self.value.shape[3] * self.value.element_size()

    def ours(self, emit: Emit) -> Tensor:
        """This kernel."""
        mask = Mask(causal=self.causal)
        return attend(self.query, self.key, self.value, mask=mask, emit=emit, backend=self.backend).output

    def torch(self) -> Tensor:
        """Torch's own fused attention."""
        return scaled_dot_product_attention(
            self.query, self.key, self.value, is_causal=self.causal, enable_gqa=self.query.shape[1] != self.key.shape[1]
        )

    def eager(self) -> Tensor:
        """Matmul, mask, softmax, matmul."""
        repeat = self.query.shape[1] // self.key.shape[1]
        key, value = (part.repeat_interleave(repeat, dim=1) if repeat > 1 else part for part in (self.key, self.value))
        score = self.query @ key.transpose(-1, -2) * self.query.shape[-1] ** -0.5
        if self.causal:
            length = self.query.shape[2]
            hidden = torch.ones(length, length, dtype=torch.bool, device=score.device).triu(1)
            score = score.masked_fill(hidden, -torch.inf)
        return score.softmax(-1) @ value


def product(setup: Setup) -> Run:
    """A square matrix product of as many floating point operations."""
    side = max(1, round((setup.flops / 2) ** (1 / 3)))
    one, other = (torch.randn(side, side, device=setup.query.device).to(setup.query.dtype) for _ in range(2))
    return partial(torch.matmul, one, other)


def flex(setup: Setup) -> Run:
    """Torch's flex_attention, compiled and run once."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    torch.compiler.reset()  # else the limit of recompilations is met after a few lengths
    length, device = setup.query.shape[2], setup.query.device
    block_mask = None
    if setup.causal:
        block_mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, length, length, device=str(device))
    compiled = torch.compile(flex_attention, dynamic=False)
    grouped = setup.query.shape[1] != setup.key.shape[1]
    run = partial(compiled, setup.query, setup.key, setup.value, block_mask=block_mask, enable_gqa=grouped)
    run()
    return run
