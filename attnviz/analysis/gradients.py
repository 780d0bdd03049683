"""Gradient x attention and relevance at length: from d output and values, without an N x N map.

The gradient of a weight is d loss / d weight[i, j] = d output[i] . value[j]. Head importance is Michel et al. 2019
(arXiv 1905.10650), relevance Chefer et al. 2021 (arXiv 2103.15679, equations 5 and 6, for self-attention). Both are
first-order: they say what would change the measure locally, not what removing a head does (see ablation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnviz_kernels import weight_gradients

from ..errors import UsageError
from ..recording import record
from ..recording.intervene import intervene
from ..trace import Trace
from .flow import Flow, place_of
from .kinds import kind_of
from .measures import Measure, measured

if TYPE_CHECKING:
    import pandas as pd

    from ..recording.modules import Place

_CELLS = 1 << 22
"""Weights looked at together."""


@dataclass(frozen=True)
class Gradients:
    """A trace with values, and d measure / d output [B, H, M, E] of every layer."""

    trace: Trace
    outputs: dict[int, Tensor]
    gradients: dict[int, Tensor]
    measure: float

    def importance(self) -> pd.DataFrame:
        """One row per head: |sum over positions of output . gradient|, the largest first; O(N) memory."""
        import pandas as pd

        rows = []
        for layer, gradient in self.gradients.items():
            product = (self.outputs[layer] * gradient).sum((0, 2, 3)).abs()
            rows += [{"layer": layer, "head": head, "importance": value} for head, value in enumerate(product.tolist())]
        return pd.DataFrame(rows).sort_values("importance", ascending=False, kind="stable", ignore_index=True)

    def weight_gradient(self, layer: int, head: int, rows: slice = slice(None), cols: slice = slice(None)) -> Tensor:
        """[rows, cols]: d measure / d weight of one head of the first sequence."""
        gradient, value = self.gradients[layer][:1, head : head + 1], self._values(layer, head)
        return weight_gradients(gradient, value, rows, cols)[0, 0]

    def attention_gradient(self, layer: int, head: int, rows: slice = slice(None), cols: slice = slice(None)) -> Tensor:
        """[rows, cols]: gradient x attention, what each link adds to the measure to first order."""
        return self.trace[layer, head].weights(rows, cols) * self.weight_gradient(layer, head, rows, cols)

    def received(self, layer: int, head: int) -> Tensor:
        """[N]: the column sums of gradient x attention, (weights.T @ gradient) . value; O(N) memory."""
        gradient = self.gradients[layer][:1, head : head + 1]
        pulled = self.trace[layer, head].view.pull(gradient)
        return (pulled * self._values(layer, head)).sum(-1)[0, 0]

    def reads(self) -> Tensor:
        """[M] bool: the positions whose top state the measure depends on, as the last layer's gradient shows."""
        return self.gradients[max(self.gradients)][0].ne(0).any(-1).any(0)

    def relevance(self, token: int | None = None, layers: Sequence[int] | None = None) -> Flow:
        """What the top states that the measure reads owe to each input token, from Chefer et al.'s relevance matrix R.

        R = R + mean over heads of the positive part of (gradient x attention) @ R, from the identity, layer by layer.
        The scores are row `token` of R less the identity, which is what came through attention: the share that a
        state has in itself dwarfs it and says nothing. Without a token they are the mean of the rows that the measure
        reads: all of them for a mean of states, the last for the logits of the next token, [CLS] for what a pooler
        makes of it. What is sought of R is pulled down band by band, so memory is O(N) beside one band. Raises
        UsageError where no row is read.
        """
        for layer in self.trace.layers if layers is None else layers:
            queries, keys = self.trace.view(layer).shape[2:]
            if queries != keys:
                raise UsageError(f"relevance needs as many queries as keys, layer {layer} has {queries} and {keys}")
        place = None if token is None else place_of(self.trace, token)
        asked = vector = self._asked(place)
        for layer in reversed(self.trace.layers if layers is None else layers):
            vector = vector + self._pulled(layer, vector)
        return Flow(vector - asked, self.trace.tokens, "relevance", place)

    def _asked(self, place: int | None) -> Tensor:
        """[N]: the share that each row of R has in what is asked for."""
        if place is not None:
            return torch.zeros(len(self.trace.tokens)).index_fill(0, torch.tensor([place]), 1.0)
        read = self.reads()
        if not read.any():
            raise UsageError("relevance needs a measure that the last layer changes, its gradient is 0: give the token")
        return (read / read.sum()).float().cpu()

    def _pulled(self, layer: int, vector: Tensor) -> Tensor:
        """mean over heads of max(gradient x attention, 0).T @ vector, looking only at rows that the vector touches."""
        view, gradient = self.trace.view(layer), self.gradients[layer][:1]
        value = self.trace.record(layer).value
        assert value is not None
        count = len(vector)
        step = max(1, _CELLS // (count * view.shape[1]))
        pulled = torch.zeros_like(vector)
        for top in range(0, count, step):
            band = slice(top, min(top + step, count))
            if not vector[band].any():
                continue
            weighted = view.tile(band, slice(None)) * weight_gradients(gradient, value[:1], band)
            pulled += vector[band] @ weighted.clamp(min=0).mean(1)[0].to(vector.dtype)
        return pulled

    def _values(self, layer: int, head: int) -> Tensor:
        record = self.trace.record(layer)
        assert record.value is not None
        group = head // (record.heads // record.value.shape[1])
        return record.value[:1, group : group + 1]


def one_text(inputs: Mapping[str, Any]) -> None:
    """UsageError for several texts, or one with padding."""
    mask, ids = inputs.get("attention_mask"), inputs.get("input_ids")
    if (mask is not None and not bool(mask.all())) or (ids is not None and len(ids) > 1):
        raise UsageError("gradients take one text without padding: give the texts one by one")


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """No parameter of the model requires a gradient inside the block."""
    wanted = [parameter for parameter in model.parameters() if parameter.requires_grad]
    for parameter in wanted:
        parameter.requires_grad_(False)
    try:
        yield
    finally:
        for parameter in wanted:
            parameter.requires_grad_()


def gradients(
    model: nn.Module,
    inputs: Mapping[str, Any],
    measure: Measure,
    *,
    tokenizer: Any = None,
    text: str | None = None,
    kind: str | None = None,
) -> Gradients:
    """Run a model forward and backward once, from `measure` to the heads' outputs of every layer.

    inputs must hold one sequence without padding; tokenizer and text name its tokens as in `record`. Parameters are
    frozen meanwhile, so that the layers need not keep what their gradients would take; the graph begins at the first
    layer's heads. Memory is O(N) beside what is left of the model's own activations. kind is "encoder", "decoder" or
    "cross" for models with several kinds of attention.
    """
    one_text(inputs)
    kind = kind_of(model, kind)
    outputs: dict[int, Tensor] = {}

    def keep(place: Place, output: Tensor) -> Tensor:
        if place.kind != kind:
            return output
        outputs[place.layer] = output if output.requires_grad else output.detach().requires_grad_()
        return outputs[place.layer]

    recording = record(model, tokenizer=tokenizer, text=text, keep="qkv")
    with frozen(model), torch.enable_grad(), recording as trace, intervene(model, output=keep):
        score = measured(model, inputs, measure)
        found = torch.autograd.grad(score, list(outputs.values()), allow_unused=True)
    zeros = (torch.zeros_like(output) for output in outputs.values())
    grads = {
        layer: given if given is not None else zero for layer, given, zero in zip(outputs, found, zeros, strict=True)
    }
    return Gradients(
        trace.only(kind), {layer: output.detach() for layer, output in outputs.items()}, grads, score.item()
    )
