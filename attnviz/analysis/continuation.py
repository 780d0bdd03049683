"""What each token of a text does for each token that follows: Captum's attribution for language models.

Each token of the text is replaced by the padding token, one at a time (Captum's `LLMAttribution` over
`FeatureAblation`; Miglani et al. 2023, arXiv 2312.05491). It does not show what two tokens do only together, or only in
place of each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ..errors import UsageError
from ..tokens import Token, from_ids
from .cases import predicts
from .paths import Progress, captum, filler
from .tables import Tabular, by_size

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class Continuation(Tabular):
    """scores [T, M]: by how much the log probability (nats) of each next token sinks without each token of the text."""

    tokens: tuple[Token, ...]
    following: tuple[Token, ...]
    scores: Tensor

    @property
    def totals(self) -> Tensor:
        """[M]: the same for the whole continuation."""
        return self.scores.sum(0)

    def table(self) -> pd.DataFrame:
        """One row per token and next token, the largest effect first: position, token, next_position, next, score."""
        import pandas as pd

        rows = [
            {"position": place, "token": token.label, "next_position": step, "next": after.label, "score": score}
            for step, after in enumerate(self.following)
            for place, (token, score) in enumerate(zip(self.tokens, self.scores[step].tolist(), strict=True))
        ]
        return by_size(pd.DataFrame(rows), "score")


def attribute_continuation(
    model: nn.Module, tokenizer: Any, text: str, target: str | None = None, *, count: int = 8, progress: Progress = None
) -> Continuation:
    """Attribute each token of `target` to the tokens of `text`; without one, of what the model itself writes, greedily.

    Runs the model once a token of the text, after writing at most `count` tokens where there is no target. Special
    tokens stay and score 0. progress(done, total) may raise to stop. Raises UsageError for a model that predicts no
    tokens, an empty text or target.
    """
    if getattr(model.config, "is_encoder_decoder", False):
        raise UsageError("an encoder-decoder model does not continue its text: attribute its next token instead")
    if not predicts(model):
        raise UsageError("this model predicts no tokens: attribute the similarity of two texts instead")
    inputs = tokenizer(text, return_tensors="pt")
    ids = inputs["input_ids"][0]
    special = set(tokenizer.all_special_ids)
    ordinary = [place for place, index in enumerate(ids.tolist()) if index not in special]
    if not ordinary:
        raise UsageError("the text is empty: give at least one word")
    rules = captum()
    told = _Told(model, progress, len(ordinary) + 1 + (count if target is None else 0))
    following = told.written(inputs, count) if target is None else _encoded(tokenizer, target)
    given = _inputs(text, tokenizer, sorted(special & set(ids.tolist())))
    with torch.inference_mode():
        found = rules.LLMAttribution(rules.FeatureAblation(told), tokenizer).attribute(
            given, target=following, forward_in_tokens=False
        )
    scores = torch.zeros(len(following), len(ids))
    scores[:, ordinary] = found.token_attr.cpu().float()
    tokens, after = from_ids(tokenizer, ids.tolist(), text), from_ids(tokenizer, following.tolist(), target)
    return Continuation(tokens, after, scores)


class _Told(nn.Module):
    """The model, telling how many times it has run."""

    def __init__(self, model: nn.Module, progress: Progress, total: int) -> None:
        super().__init__()
        self.model, self.progress, self.total, self.done = model, progress, total, 0
        self.device: Any = model.device

    def forward(self, **inputs: Any) -> Any:
        found = self.model(**inputs)
        self.tell()
        return found

    def tell(self) -> None:
        self.done += 1
        if self.progress is not None:
            self.progress(min(self.done, self.total), self.total)

    def written(self, inputs: Any, count: int) -> Tensor:
        """The ids that the model itself writes after the text."""
        from transformers import StoppingCriteriaList

        def goes_on(ids: Tensor, scores: Any, **_: Any) -> Tensor:
            self.tell()
            return torch.zeros(len(ids), dtype=torch.bool, device=ids.device)

        model: Any = self.model
        with torch.inference_mode():
            written = model.generate(
                **inputs, max_new_tokens=count, do_sample=False, stopping_criteria=StoppingCriteriaList([goes_on])
            )
        found: Tensor = written[0, inputs["input_ids"].shape[1] :]
        return found


def _inputs(text: str, tokenizer: Any, special: list[int]) -> Any:
    from captum.attr import TextTokenInput

    return TextTokenInput(text, tokenizer, baselines=filler(tokenizer), skip_tokens=special or None)


def _encoded(tokenizer: Any, target: str) -> Tensor:
    found = tokenizer(target, add_special_tokens=False)["input_ids"]
    if not found:
        raise UsageError("the target is empty: give at least one character")
    return torch.tensor(found)
