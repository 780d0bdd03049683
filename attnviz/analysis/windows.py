"""A document as windows that fit the model, and a head's weights between the document's own words.

Windows are whole sentences, as many as fit, and may repeat sentences of the window before; a sentence longer than the
window is cut and its rest is not read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ..errors import UsageError
from ..recording import inspect
from ..recording.session import longest
from ..tokens import Token, word_of
from ..trace import Trace
from ..views import WeightView
from .documents import Document

_BAND = 256
"""Rows of a map looked at together."""


@dataclass(frozen=True)
class Part:
    """Words of a document that are read together; the first `repeated` of them were read in the part before too."""

    document: Document
    repeated: int = 0


@dataclass(frozen=True)
class Window:
    """Part of a document and the trace of it. owners gives each token's word, -1 for special and other tokens."""

    document: Document
    trace: Trace
    owners: tuple[int, ...]
    repeated: int = 0

    def pieces(self, word: int) -> list[int]:
        """The positions of a word's tokens."""
        return [index for index, owner in enumerate(self.owners) if owner == word]


def windows(document: Document, model: Any, tokenizer: Any, size: int, *, start: bool = False) -> Iterator[Window]:
    """The windows of a document, each recorded; see `split`, with no more tokens than the model reads."""
    for part in split(document, tokenizer, fitting(model, tokenizer, size)):
        yield recorded(part, model, tokenizer, start)


def recorded(part: Part, model: Any, tokenizer: Any, start: bool = False) -> Window:
    """A part with the trace of it; start puts the tokenizer's start token in front.

    Raises UsageError for an encoder-decoder model.
    """
    if model.config.is_encoder_decoder:
        raise UsageError("an encoder-decoder model has several kinds of attention: give an encoder or a decoder")
    trace = inspect((model, tokenizer), part.document.text, start=start)
    return Window(part.document, trace, owners(trace.tokens, part.document), part.repeated)


def fitting(model: Any, tokenizer: Any, size: int) -> int:
    """size, or what the model reads beside special and start tokens where that is less."""
    limit = longest(model, tokenizer)
    return size if limit is None else min(size, limit - max(1, tokenizer.num_special_tokens_to_add()))


def split(document: Document, tokenizer: Any, size: int, overlap: int = 0) -> list[Part]:
    """The document in parts of whole sentences with at most `size` tokens each, special ones not counted.

    Every part but the first begins with the last `overlap` sentences of the one before, or as many of them as leave
    room for the next sentence. A sentence longer than `size` is cut to fit, and its rest is not read.
    """
    if size < 2:
        raise UsageError(f"a window needs at least 2 tokens, got {size}")
    if overlap < 0:
        raise UsageError(f"windows overlap by 0 or more sentences, got {overlap}")
    starts, stops = zip(*document.sentences, strict=True)
    parts: list[Part] = []
    fresh = 0
    while fresh < len(starts):
        first = max(0, fresh - overlap)
        while first < fresh and _length(document, tokenizer, starts[first], stops[fresh]) > size:
            first += 1
        after = fresh + 1
        while after < len(starts) and _length(document, tokenizer, starts[first], stops[after]) <= size:
            after += 1
        start, stop = starts[first], stops[after - 1]
        while stop - start > 1 and after == first + 1 and _length(document, tokenizer, start, stop) > size:
            stop -= 1
        parts.append(Part(document.part(start, stop), starts[fresh] - start))
        fresh = after
    return parts


def _length(document: Document, tokenizer: Any, start: int, stop: int) -> int:
    text = " ".join(document.words[start:stop])
    return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])


def owners(tokens: Sequence[Token], document: Document) -> tuple[int, ...]:
    """For each token the index of the document's word it belongs to, or -1."""
    spans, text = document.spans(), document.text
    found = [word_of(token, text, spans) for token in tokens]
    if all(owner is None for owner in found):
        raise UsageError(
            "this tokenizer gives no character offsets, so its tokens cannot be matched with words: use a fast one"
        )
    return tuple(-1 if owner is None else owner for owner in found)


def word_rows(view: WeightView, owners: Sequence[int], rows: Sequence[int], count: int) -> Tensor:
    """[H, rows, count]: every head's word-level weights from the given words to all `count` words of one sequence.

    After Clark et al. 2019 (arXiv 1906.04341, 4.1): mean over the pieces of the word that looks, sum over the pieces
    of the word looked at; tokens that belong to no word are left out, nothing is renormalised. view has B = 1.
    """
    place = {word: index for index, word in enumerate(rows)}
    target = torch.tensor([owner if owner >= 0 else count for owner in owners])
    result = torch.zeros(view.shape[1], len(rows), count + 1)
    pieces = torch.zeros(len(rows))
    for top in range(0, len(owners), _BAND):
        wanted = [(index, place[owner]) for index, owner in enumerate(owners[top : top + _BAND]) if owner in place]
        if not wanted:
            continue
        first, last = wanted[0][0], wanted[-1][0]
        band = view.tile(slice(top + first, top + last + 1), slice(None))[0].float()
        local = torch.tensor([index - first for index, _ in wanted])
        row = torch.tensor([index for _, index in wanted])
        summed = torch.zeros(*band.shape[:1], len(wanted), count + 1)
        summed.index_add_(2, target, band[:, local])
        result.index_add_(1, row, summed)
        pieces.index_add_(0, row, torch.ones(len(wanted)))
    return result[:, :, :count] / pieces.clamp(min=1)[:, None]


def randomised(model: Any, seed: int = 0) -> Any:
    """A copy of a transformers model with freshly drawn weights: what its shape alone would score."""
    generator = torch.random.get_rng_state()
    torch.manual_seed(seed)
    try:
        return type(model)(model.config).eval()
    finally:
        torch.random.set_rng_state(generator)
