"""What is to be explained: a run of a model on a text, and one number of its output.

Models that predict tokens are asked about the logit of a next token; encoders about the cosine similarity of the text
with a second one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..arguments import check_text
from ..errors import UsageError
from ..tokens import printable
from . import measures
from .measures import Measure


@dataclass(frozen=True)
class Case:
    """inputs go into the model, measure makes one number of what comes out, about says in words which; text is the
    first text, whose tokens are explained."""

    model: nn.Module
    tokenizer: Any
    inputs: Mapping[str, Any]
    measure: Measure
    about: str
    text: str


def case(model: nn.Module, tokenizer: Any, text: str, *, target: str | None = None, second: str | None = None) -> Case:
    """The next token `target` (the likeliest if None), or the similarity with a `second` text.

    Of an encoder-decoder model the next token is the first that the decoder writes. Raises UsageError for an empty
    text, for a target that is not one token, for a model that predicts no tokens when there is no second text, and for
    one that does when there is.
    """
    check_text(text)
    if second is not None:
        _check_second(model, second, target)
        both = tokenizer([text, second], return_tensors="pt", padding=True)
        measure = measures.cosine(both["attention_mask"])
        return Case(model, tokenizer, dict(both), measure, "similarity of the two texts", text)
    if not predicts(model):
        raise UsageError("this model predicts no tokens: give a second text to compare with")
    inputs = _started(model, tokenizer(text, return_tensors="pt"))
    chosen = next_tokens(model, inputs, 1)[0][0] if target is None else only_token(tokenizer, target)
    about = f"logit of {tokenizer.decode([chosen])!r} as next token"
    return Case(model, tokenizer, inputs, measures.logit(chosen), about, text)


def alone(found: Case) -> Case:
    """The same number as a function of the first text only: a second one is read beforehand and stays as it is."""
    mask: Tensor = found.inputs["attention_mask"]
    if len(mask) == 1:
        return found
    with torch.inference_mode():
        states = found.model(**found.inputs).last_hidden_state[1]
        fixed = states[mask[1].bool()].mean(0).clone()
    count = int(mask[0].sum())
    first = {name: value[:1, :count] for name, value in found.inputs.items()}
    measure: Measure = lambda output: torch.cosine_similarity(output.last_hidden_state[0].mean(0), fixed, dim=0)  # noqa: E731
    return replace(found, inputs=first, measure=measure)


def predicts(model: nn.Module) -> bool:
    """Whether the model has a language-model head."""
    outputs = getattr(model, "get_output_embeddings", lambda: None)()
    return hasattr(model, "lm_head") or outputs is not None


def next_tokens(model: nn.Module, inputs: Mapping[str, Any], count: int = 10) -> list[tuple[int, float]]:
    """The likeliest next tokens of the first sequence with their probabilities, likeliest first."""
    with torch.inference_mode():
        logits = measures.logits_of(model(**_started(model, inputs)))[0, -1].float()
    best = torch.softmax(logits, -1).topk(min(count, len(logits)))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def only_token(tokenizer: Any, target: str) -> int:
    """The one token that a text is, or UsageError for one of none or of several."""
    found = tokenizer(target, add_special_tokens=False)["input_ids"]
    if not found:
        raise UsageError(f"the next token {printable(target)!r} is empty: give at least one character")
    if len(found) > 1:
        first = printable(tokenizer.decode(found[:1]))
        raise UsageError(
            f"the next token must be one token, {printable(target)!r} is {len(found)}:"
            f" give its first, {first!r}, or explain all with the method continuation"
        )
    return int(found[0])


def _check_second(model: nn.Module, second: str, target: str | None) -> None:
    if not second.strip():
        raise UsageError("the second text is empty: give at least one word")
    if target is not None:
        raise UsageError("similarity with a second text has no next token: give a target or a second text, not both")
    if predicts(model):
        raise UsageError(
            "similarity needs an encoder's last hidden states, this model predicts tokens: leave out the second text"
        )


def _started(model: nn.Module, inputs: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs, with the token from which a decoder starts where there is one of its own."""
    config: Any = model.config
    if not config.is_encoder_decoder:
        return dict(inputs)
    return {"decoder_input_ids": torch.tensor([[config.decoder_start_token_id]]), **inputs}
