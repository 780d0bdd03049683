"""Captum's attributions of tokens, each with its convergence error told beside it.

Integrated gradients (Sundararajan et al. 2017, arXiv 1703.01365) over input embeddings sum to the difference between
the measure at the text and at a baseline when they have converged; the error of that sum, relative to the difference,
says whether they have. Steps are doubled until it is below 5 % or the budget of steps ends, and the result says so.
Feature ablation replaces one token at a time. Neither says how the tokens were used together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import AttnvizError, UsageError
from ..tokens import Token, from_ids
from .measures import Measure, measured
from .tables import Tabular

if TYPE_CHECKING:
    import pandas as pd

METHODS = ("integrated gradients", "ablation")
CONVERGED = 0.05
"""Relative error of the sum below which integrated gradients count as converged."""

_BATCH = 8
"""Points of the path evaluated together."""


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
        told = f"error of the sum {100 * self.error:.2g} % after {self.steps} steps"
        return told if self.converged else f"NOT converged: {told}; use ablation, or more steps"

    def table(self) -> pd.DataFrame:
        """One row per token, the largest effect first."""
        import pandas as pd

        rows = [
            {"position": index, "token": token.label, "score": score}
            for index, (token, score) in enumerate(zip(self.tokens, self.scores.tolist(), strict=True))
        ]
        return pd.DataFrame(rows).sort_values(
            "score", key=lambda column: -column.abs(), kind="stable", ignore_index=True
        )


def attribute_tokens(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    *,
    method: str = METHODS[0],
    steps: int = 50,
    most: int = 1600,
    progress: Callable[[int, int], None] | None = None,
) -> Attribution:
    """Attribute a measure to the tokens of the first sequence of `inputs`.

    steps is where integrated gradients begin, most where they stop doubling; the baseline is the padding token
    everywhere but at special tokens. progress(done, total) may raise to stop.
    """
    if method not in METHODS:
        raise UsageError(f"method must be one of {', '.join(METHODS)}, got {method!r}")
    count = int(inputs["attention_mask"][0].sum()) if "attention_mask" in inputs else inputs["input_ids"].shape[1]
    tokens = from_ids(tokenizer, inputs["input_ids"][0].tolist())
    if method == "ablation":
        scores = _ablation(model, tokenizer, inputs, measure, progress)
        return Attribution(tokens[:count], scores[:count], method)
    while True:
        scores, error = _integrated(model, tokenizer, inputs, measure, steps, progress)
        if error < CONVERGED or steps * 2 > most:
            return Attribution(tokens[:count], scores[:count], method, error, steps)
        steps *= 2


def baseline(tokenizer: Any, ids: Tensor) -> Tensor:
    """The ids with every ordinary token replaced by padding (or the end token, where there is no padding)."""
    filler = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if filler is None:
        raise UsageError("this tokenizer has neither a padding nor an end token to use as baseline")
    special = torch.tensor(sorted(set(tokenizer.all_special_ids)))
    return torch.where(torch.isin(ids, special), ids, filler)


def _integrated(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    steps: int,
    progress: Callable[[int, int], None] | None,
) -> tuple[Tensor, float]:
    """Scores [M] of the first sequence, and the relative error of their sum."""
    captum = _captum()
    embed: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
    ids = inputs["input_ids"]
    others = {name: value for name, value in inputs.items() if name not in ("input_ids", "token_type_ids")}
    plain = torch.cat([baseline(tokenizer, ids[:1]), ids[1:]])
    done = 0

    def forward(embeddings: Tensor) -> Tensor:
        nonlocal done
        results = []
        for part in torch.split(embeddings, 1):
            whole = torch.cat([part, embed(ids[1:])])
            results.append(measure(model(inputs_embeds=whole, **others)))
        done += len(results)
        if progress is not None:
            progress(min(done, steps), steps)
        return torch.stack(results)

    with torch.enable_grad():
        start, end = embed(plain[:1]).detach(), embed(ids[:1]).detach()
        given, delta = captum.IntegratedGradients(forward).attribute(
            end, baselines=start, n_steps=steps, internal_batch_size=_BATCH, return_convergence_delta=True
        )
    with torch.no_grad():
        effect = (forward(end) - forward(start)).abs().item()
    return given.sum(-1)[0].detach(), delta.abs().item() / max(effect, 1e-12)


def _ablation(
    model: nn.Module,
    tokenizer: Any,
    inputs: Mapping[str, Any],
    measure: Measure,
    progress: Callable[[int, int], None] | None,
) -> Tensor:
    """[M]: the measure less what it is with each token of the first sequence replaced."""
    captum = _captum()
    ids = inputs["input_ids"]
    others = {name: value for name, value in inputs.items() if name != "input_ids"}
    done = 0

    def forward(first: Tensor) -> Tensor:
        nonlocal done
        done += 1
        if progress is not None:
            progress(min(done, ids.shape[1] + 1), ids.shape[1] + 1)
        return measure(model(input_ids=torch.cat([first, ids[1:]]), **others))[None]

    with torch.inference_mode():
        found = captum.FeatureAblation(forward).attribute(ids[:1], baselines=baseline(tokenizer, ids[:1]))
    scores: Tensor = found[0].float()
    return scores


def _captum() -> Any:
    try:
        import captum.attr
    except ImportError:
        raise AttnvizError("attributions need captum: pip install 'attnviz[attribution]'") from None
    return captum.attr
