"""Captum's attributions of tokens, each with its convergence error told beside it.

Integrated gradients (Sundararajan et al. 2017, arXiv 1703.01365) over input embeddings sum to the difference between
the measure at the text and at a baseline when they have converged; so does the conductance of a layer's states
(Dhamdhere et al. 2018, arXiv 1805.12233), which says where that difference stands after the layer. The error of the
sum, relative to the difference, says whether it has converged. Steps are doubled until it is below 5 % or the budget
of steps ends, and the result says so. Feature ablation replaces one token at a time. None of them says how the tokens
were used together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..numbers import many, percent
from ..recording.modules import survey
from ..tokens import Token, from_ids
from .cases import predicts
from .gradients import frozen
from .kinds import kind_of
from .measures import Measure, measured
from .paths import CONVERGED, Progress, along, baseline, captum, counted, difference, doubled, layers_of, path
from .tables import Tabular, by_size

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("integrated gradients", "ablation")


@dataclass(frozen=True)
class Attribution(Tabular):
    """What each token of the first text adds to the measure. error is the sum's relative error, None where there is no
    such check; steps is how many points of the path were used."""

    tokens: tuple[Token, ...]
    scores: Tensor
    method: str
    error: float | None = None
    steps: int = 0

    @property
    def converged(self) -> bool:
        """Whether the check passed, or there is none."""
        return self.error is None or self.error < CONVERGED

    @property
    def remark(self) -> str:
        """One line on how far to trust it."""
        if self.error is None:
            return "each token replaced by the padding token, one at a time"
        told = f"error of the sum {percent(self.error)} after {many(self.steps, 'step')}"
        return told if self.converged else f"NOT converged: {told}; use ablation, or more steps"

    def table(self) -> pd.DataFrame:
        """One row per token, the largest effect first."""
        import pandas as pd

        rows = [
            {"position": index, "token": token.label, "score": score}
            for index, (token, score) in enumerate(zip(self.tokens, self.scores.tolist(), strict=True))
        ]
        return by_size(pd.DataFrame(rows), "score")


def attribute_tokens(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    *,
    text: str | None = None,
    method: str | None = None,
    steps: int = 50,
    most: int = 1600,
    progress: Progress = None,
) -> Attribution:
    """Attribute a measure to the tokens of the first sequence of `inputs`.

    method is one of `METHODS`; None takes ablation for a model that predicts tokens, where integrated gradients need
    about a thousand steps, and integrated gradients else. steps is where they begin, most where they stop doubling; the
    baseline is the padding token everywhere but at special tokens. text is the first sequence's, for its tokens to be
    named as they are written. progress(done, total) may raise to stop.
    """
    method = METHODS[predicts(model)] if method is None else method
    if method not in METHODS:
        raise UsageError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    tokens, count = _tokens(tokenizer, inputs, text)
    if method == "ablation":
        scores = _ablation(model, tokenizer, inputs, measure, progress)
        return Attribution(tokens[:count], scores[:count], method)
    compute = partial(_integrated, model, tokenizer, inputs, measure, progress)
    scores, error, steps = doubled(compute, steps, most)
    return Attribution(tokens[:count], scores[:count], method, error, steps)


def layer_conductance(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    layer: int,
    *,
    text: str | None = None,
    kind: str | None = None,
    steps: int = 50,
    most: int = 1600,
    progress: Progress = None,
) -> Attribution:
    """Attribute a measure to the states of one layer, position by position, on the way from the baseline to the text.

    inputs hold one text; text, steps, most and progress are those of `attribute_tokens`, kind that of `gradients`.
    Where all that reaches the output goes through the layer, the scores sum to the difference between text and
    baseline. Raises UsageError for a layer that does not exist.
    """
    block = _block(model, layer, kind_of(model, kind))
    tokens, count = _tokens(tokenizer, inputs, text)

    def compute(steps: int) -> tuple[Tensor, float]:
        with path(model, tokenizer, inputs, measure, steps, progress) as (forward, start, end), torch.enable_grad():
            given = along(forward, block, start, end, steps)
            scores = (given[0] if isinstance(given, tuple) else given)[0].sum(-1).detach()
            effect = difference(forward, start, end)
        return scores, abs(scores.sum().item() - effect) / max(abs(effect), 1e-12)

    scores, error, steps = doubled(compute, steps, most)
    return Attribution(tokens[:count], scores[:count], f"conductance of layer {layer}", error, steps)


def _integrated(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    progress: Progress,
    steps: int,
) -> tuple[Tensor, float]:
    """Scores [M] of the first sequence, and the relative error of their sum."""
    embed: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
    ids = inputs["input_ids"]
    others = {name: value for name, value in inputs.items() if name not in ("input_ids", "token_type_ids")}
    plain = torch.cat([baseline(tokenizer, ids[:1]), ids[1:]])

    def forward(points: Tensor) -> Tensor:
        whole = [torch.cat([point[None], embed(ids[1:])]) for point in points]
        return torch.stack([measured(model, {"inputs_embeds": part, **others}, measure) for part in whole])

    with torch.enable_grad(), frozen(model):
        start, end = embed(plain[:1]).detach(), embed(ids[:1]).detach()
        given, delta = (
            captum()
            .IntegratedGradients(counted(forward, progress, steps))
            .attribute(end, baselines=start, n_steps=steps, internal_batch_size=1, return_convergence_delta=True)
        )
    effect = abs(difference(forward, start, end))
    return given.sum(-1)[0].detach(), delta.abs().item() / max(effect, 1e-12)


def _ablation(
    model: nn.Module, tokenizer: Any, inputs: Mapping[str, Any], measure: Measure, progress: Progress
) -> Tensor:
    """[M]: the measure less what it is with each token of the first sequence replaced."""
    ids = inputs["input_ids"]
    others = {name: value for name, value in inputs.items() if name != "input_ids"}

    def forward(first: Tensor) -> Tensor:
        return measured(model, {"input_ids": torch.cat([first, ids[1:]]), **others}, measure)[None]

    rule = captum().FeatureAblation(counted(forward, progress, ids.shape[1] + 1))
    with torch.inference_mode():
        found = rule.attribute(ids[:1], baselines=baseline(tokenizer, ids[:1]))
    scores: Tensor = found[0].float()
    return scores


def _tokens(tokenizer: Any, inputs: Mapping[str, Any], text: str | None) -> tuple[tuple[Token, ...], int]:
    """The tokens of the first sequence, and how many of them are no padding."""
    count = int(inputs["attention_mask"][0].sum()) if "attention_mask" in inputs else inputs["input_ids"].shape[1]
    return from_ids(tokenizer, inputs["input_ids"][0].tolist(), text), count


def _block(model: nn.Module, layer: int, kind: str) -> nn.Module:
    """The part of a model that is one layer: the element of a list of layers that holds its attention."""
    layers_of(model, [layer], kind)
    place = next(place for place in survey(model).places.values() if (place.kind, place.layer) == (kind, layer))
    parts = place.name.split(".")
    for stop in range(len(parts), 0, -1):
        if isinstance(model.get_submodule(".".join(parts[: stop - 1])), nn.ModuleList):
            return model.get_submodule(".".join(parts[:stop]))
    raise UsageError(f"layer {layer} of {type(model).__name__} is no element of a list of layers")
