"""What a model's output is boiled down to: one number, differentiable, for gradients and ablations to explain.

A measure takes the output of `model(**inputs)` and gives a scalar tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError

Measure = Callable[[Any], Tensor]


def logit(token: int, position: int = -1) -> Measure:
    """The logit of a token at a position of the first sequence."""
    return lambda output: logits_of(output)[0, position, token]


def logit_difference(token: int, other: int, position: int = -1) -> Measure:
    """The logit of a token less that of another, at a position of the first sequence."""
    return lambda output: logits_of(output)[0, position, token] - logits_of(output)[0, position, other]


def loss(ids: Tensor, start: int = 1) -> Measure:
    """Mean cross entropy (nats) of predicting ids [B, M] from position `start` on, each from the tokens before it."""

    def measure(output: Any) -> Tensor:
        logits = logits_of(output)[:, start - 1 : -1]
        return torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), ids[:, start:].flatten())

    return measure


def cosine(attention_mask: Tensor) -> Measure:
    """Cosine similarity of the first two sequences of a batch, each the mean of its last hidden states."""

    def measure(output: Any) -> Tensor:
        states = getattr(output, "last_hidden_state", None)
        if states is None or states.shape[0] < 2:
            raise UsageError("cosine similarity needs an encoder's last hidden states of at least two texts")
        real = attention_mask[..., None].to(states.dtype)
        means = (states * real).sum(1) / real.sum(1)
        return torch.nn.functional.cosine_similarity(means[0], means[1], dim=0)

    return measure


def likeliest(output: Any, position: int = -1) -> int:
    """The token with the largest logit at a position of the first sequence."""
    return int(logits_of(output)[0, position].argmax())


def logits_of(output: Any) -> Tensor:
    """[B, M, vocabulary], or UsageError for a model without a language-model head."""
    found = getattr(output, "logits", None)
    if not isinstance(found, Tensor) or found.dim() != 3:
        raise UsageError("this model predicts no tokens: use cosine similarity, or a measure of your own")
    return found
