"""What a model's output is boiled down to: one number, differentiable, for gradients and ablations to explain.

A measure takes the output of `model(**inputs)` and gives a scalar tensor; `measured` runs the model for it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import UsageError

Measure = Callable[[Any], Tensor]


@dataclass(frozen=True)
class AtPosition:
    """A measure of the logits at one position of the first sequence: that of `token`, less that of `other` if given."""

    token: int
    other: int | None = None
    position: int = -1

    def __call__(self, output: Any) -> Tensor:
        """The number, from an output that holds logits."""
        logits = logits_of(output)[0, self.position]
        return logits[self.token] if self.other is None else logits[self.token] - logits[self.other]


def logit(token: int, position: int = -1) -> Measure:
    """The logit of a token at a position of the first sequence."""
    return AtPosition(token, None, position)


def logit_difference(token: int, other: int, position: int = -1) -> Measure:
    """The logit of a token less that of another, at a position of the first sequence."""
    return AtPosition(token, other, position)


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


def measured(model: nn.Module, inputs: Mapping[str, Any], measure: Measure) -> Tensor:
    """The measure of one run; of the logits, where the model allows it, only those are computed that it reads."""
    output, read = _run(model, inputs, measure)
    return read(output)


def measured_each(model: nn.Module, inputs: Mapping[str, Any], measure: Measure) -> Tensor:
    """[B]: the measure of each sequence of a batch as if it had been run alone."""
    output, read = _run(model, inputs, measure)
    count = next(value for value in output.values() if isinstance(value, Tensor)).shape[0]
    return torch.stack([read(_one(output, index)) for index in range(count)])


def logits_of(output: Any) -> Tensor:
    """[B, M, vocabulary], or UsageError for a model without a language-model head."""
    found = getattr(output, "logits", None)
    if not isinstance(found, Tensor) or found.dim() != 3:
        raise UsageError("this model predicts no tokens: use cosine similarity, or a measure of your own")
    return found


def _run(model: nn.Module, inputs: Mapping[str, Any], measure: Measure) -> tuple[Any, Measure]:
    """The output, and the measure to apply to it: the logits of a whole text can take more memory than all layers."""
    spared = "logits_to_keep" in inspect.signature(model.forward).parameters and "logits_to_keep" not in inputs
    if not (spared and isinstance(measure, AtPosition)):
        return model(**inputs), measure
    return model(**inputs, logits_to_keep=torch.tensor([measure.position])), replace(measure, position=0)


def _one(output: Any, index: int) -> Any:
    """One sequence of a model's output."""
    return type(output)(
        **{name: value[index : index + 1] for name, value in output.items() if isinstance(value, Tensor)}
    )
