"""Attention itself as what is integrated over: how much of a measure the heads of a layer carry.

Integrated gradients scale the attention of one layer from nothing to what it is, all else computed as the model does
(Hao et al. 2021, arXiv 2004.11207): the scores of a layer's heads sum to the measure less what it is without that
layer's attention. A weight's share is weight x mean gradient along that path, found on demand, so that memory is O(N).
Conductance follows a path of the text instead, from padding tokens to its own (Dhamdhere et al. 2018, arXiv
1805.12233): what of the change passes through each head. The rest goes around the layer's attention, so there is no sum
to check: the error told is how far scores moved when steps were doubled. Neither says what the model would do without
a head, which is for ablation, and both treat one layer at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..recording.intervene import intervene
from ..recording.modules import Place
from .gradients import Gradients, frozen, gradients
from .kinds import kind_of
from .measures import Measure, measured
from .paths import CONVERGED, Progress, along, captum, counted, difference, doubled, layers_of, path
from .tables import Tabular, by_size

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Carried:
    """What the heads of one layer carry, [H]; error is relative to effect, the whole change along the path."""

    scores: Tensor
    effect: float
    error: float
    steps: int

    @property
    def converged(self) -> bool:
        """Whether the error is below `CONVERGED`."""
        return self.error < CONVERGED


@dataclass(frozen=True)
class HeadAttribution(Tabular):
    """What each head carries, by layer. links holds, of integrated gradients, the mean gradients along the path:
    links.attention_gradient(layer, head) is what each weight carries."""

    method: str
    layers: Mapping[int, Carried]
    links: Gradients | None = None

    @property
    def converged(self) -> bool:
        """Whether every layer converged."""
        return all(carried.converged for carried in self.layers.values())

    @property
    def remark(self) -> str:
        """One line on how far to trust it."""
        worst = max(carried.error for carried in self.layers.values())
        steps = max(carried.steps for carried in self.layers.values())
        told = f"largest error {100 * worst:.2g} % of the effect, after at most {steps} steps a layer"
        open_ended = ", ".join(str(layer) for layer, carried in self.layers.items() if not carried.converged)
        return f"NOT converged in layers {open_ended}: {told}; use ablation, or more steps" if open_ended else told

    def table(self) -> pd.DataFrame:
        """One row per head, the largest score first: layer, head, score, and its layer's effect, error and steps."""
        import pandas as pd

        rows = [
            {
                "layer": layer,
                "head": head,
                "score": score,
                "effect": carried.effect,
                "error": carried.error,
                "steps": carried.steps,
            }
            for layer, carried in self.layers.items()
            for head, score in enumerate(carried.scores.tolist())
        ]
        return by_size(pd.DataFrame(rows), "score")


def integrated_attention(
    model: nn.Module,
    inputs: Mapping[str, Any],
    measure: Measure,
    *,
    tokenizer: Any = None,
    text: str | None = None,
    layers: Sequence[int] | None = None,
    kind: str | None = None,
    steps: int = 50,
    most: int = 1600,
    progress: Progress = None,
) -> HeadAttribution:
    """Integrated gradients over the attention of each layer, one layer after another.

    inputs hold one text without padding; tokenizer, text and kind are as in `gradients`. Runs the model `steps` times
    a layer, doubled up to `most` where the scores do not sum to the effect within 5 %. progress(done, total) may raise
    to stop. Raises UsageError for layers that do not exist.
    """
    kind = kind_of(model, kind)
    chosen = layers_of(model, layers, kind)
    passed = gradients(model, inputs, measure, tokenizer=tokenizer, text=text, kind=kind)
    means, found = {}, {}
    for index, layer in enumerate(chosen):
        told = _part(progress, index, len(chosen))
        with _written(model, inputs, measure, kind, layer) as run, frozen(model):
            means[layer], found[layer] = _integrated(run, passed.outputs[layer], steps, most, told)
    return HeadAttribution("integrated gradients over attention", found, replace(passed, gradients=means))


def attention_conductance(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    *,
    layers: Sequence[int] | None = None,
    kind: str | None = None,
    steps: int = 25,
    most: int = 1600,
    progress: Progress = None,
) -> HeadAttribution:
    """The conductance of each head, on the way from the padding token everywhere to the text, layer after layer.

    inputs hold one text without padding; kind is as in `gradients`. steps are doubled, up to `most`, until that moves
    the scores of a layer by less than 5 % of the effect in sum. progress(done, total) may raise to stop. Raises
    UsageError for layers that do not exist.
    """
    kind = kind_of(model, kind)
    chosen = layers_of(model, layers, kind)
    found = {}
    for index, layer in enumerate(chosen):
        told = _part(progress, index, len(chosen))
        follow = partial(path, model, tokenizer, inputs, measure, progress=told)
        with _probed(model, kind, layer) as probe:
            found[layer] = _conducted(follow, probe, steps, most)
    return HeadAttribution("conductance of attention", found)


def _integrated(
    run: Callable[[Tensor], Tensor], output: Tensor, steps: int, most: int, progress: Progress
) -> tuple[Tensor, Carried]:
    """The mean gradient on the way from no output [B, H, M, E] of the heads to theirs, and what they carry."""

    def forward(points: Tensor) -> Tensor:
        return torch.stack([run(point) for point in points])

    effect = difference(forward, torch.zeros_like(output)[None], output[None])

    def compute(steps: int) -> tuple[Tensor, float]:
        rule = captum().IntegratedGradients(counted(forward, progress, steps), multiply_by_inputs=False)
        with torch.enable_grad():
            mean = rule.attribute(output[None], n_steps=steps, internal_batch_size=1)[0].detach()
        return mean, abs((mean * output).sum().item() - effect) / max(abs(effect), 1e-12)

    mean, error, used = doubled(compute, steps, most)
    return mean, Carried((mean * output).sum((0, 2, 3)), effect, error, used)


def _conducted(follow: Callable[..., Any], probe: nn.Module, steps: int, most: int) -> Carried:
    """What passes through the heads whose output goes through `probe`."""
    before: Tensor | None = None
    effect = 0.0

    def compute(steps: int) -> tuple[Tensor, float]:
        nonlocal before, effect
        with follow(steps=steps) as (forward, start, end), torch.enable_grad():
            scores = along(forward, probe, start, end, steps).sum((0, 2, 3)).detach()
            effect = difference(forward, start, end)
        moved = float("inf") if before is None else (scores - before).abs().sum().item()
        before = scores
        return scores, moved / max(abs(effect), 1e-12)

    scores, error, used = doubled(compute, steps, most)
    return Carried(scores, effect, error, used)


@contextmanager
def _written(
    model: nn.Module, inputs: Mapping[str, Any], measure: Measure, kind: str, layer: int
) -> Iterator[Callable[[Tensor], Tensor]]:
    """The measure as a function of what the heads of a layer write, [B, H, M, E]."""
    given: list[Tensor] = []

    def write(place: Place, output: Tensor) -> Tensor:
        return given[-1] if (place.kind, place.layer) == (kind, layer) else output

    def run(output: Tensor) -> Tensor:
        given[:] = [output]
        return measured(model, inputs, measure)

    with intervene(model, output=write):
        yield run


@contextmanager
def _probed(model: nn.Module, kind: str, layer: int) -> Iterator[nn.Module]:
    """A module through which goes what the heads of a layer write."""
    probe = nn.Identity()

    def through(place: Place, output: Tensor) -> Tensor:
        return probe(output) if (place.kind, place.layer) == (kind, layer) else output

    with intervene(model, output=through):
        yield probe


def _part(progress: Progress, index: int, count: int) -> Progress:
    """The progress of one of several equal parts."""
    return None if progress is None else lambda done, total: progress(index * total + done, count * total)
