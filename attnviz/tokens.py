"""What stands on a map's axes: tokens with their surface text, and the words they make up.

A token's id, the tokenizer's own piece and the text it came from are kept apart, because the piece is often not
readable: byte-level tokenizers split one character over several tokens, and [UNK] hides its text. Where the tokenizer
gives offsets, the text is cut from the source.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import torch
from torch import Tensor

from .arguments import refuse
from .errors import UsageError

_VISIBLE = {" ": "·", "\n": "⏎", "\t": "⇥", "\r": "␍"}
WORD_RULES = {
    "punctuation": re.compile(r"\w+(?:['’]\w+)*|[^\w\s]"),
    "whitespace": re.compile(r"\S+"),
}
"""How text is cut into words: at white space, or there and around every punctuation mark."""

Cut = str | Sequence[str] | Sequence[tuple[int, int]]
"""Where words begin and end: a key of `WORD_RULES`, the words themselves in the order of the text, or their character
ranges (start, stop) in it."""


@dataclass(frozen=True)
class Token:
    """One position. `text` is the source between `start` and `end` (characters) where offsets are known.

    part is (k, n) for the k-th of n tokens that share the same characters, counting from 1.
    """

    id: int | None
    raw: str
    text: str
    start: int | None = None
    end: int | None = None
    part: tuple[int, int] | None = None
    special: bool = False

    @property
    def label(self) -> str:
        """What a person reads: the text without its leading space, white space and control characters made visible."""
        text = self.text[1:] if len(self.text) > 1 and self.text[0] == " " else self.text
        shown = printable(text) if text != "\u200d" else "<U+200D>"
        return f"{shown} {self.part[0]}/{self.part[1]}" if self.part else shown

    def __str__(self) -> str:
        """The label."""
        return self.label


@dataclass(frozen=True)
class Word:
    """A word and the contiguous tokens, start to stop, that it is made of."""

    text: str
    start: int
    stop: int
    special: bool = False


@dataclass(frozen=True)
class TokenAxis:
    """The labels along one axis of one sequence. `valid` is where its real tokens stand; the rest is padding.

    steps says for each token which forward pass took it in: 0 for the prompt, then one number a generated token.
    """

    tokens: tuple[Token, ...]
    valid: slice
    text: str | None = None
    grid: tuple[int, int] | None = None
    steps: tuple[int, ...] | None = None

    @property
    def real(self) -> tuple[Token, ...]:
        """The tokens without padding."""
        return self.tokens[self.valid]

    def after(self, start: int) -> TokenAxis:
        """The axis without its first `start` positions."""
        valid = slice(max(0, self.valid.start - start), max(0, self.valid.stop - start))
        steps = None if self.steps is None else self.steps[start:]
        return replace(self, tokens=self.tokens[start:], valid=valid, steps=steps)


def printable(text: str) -> str:
    """The text with white space and control characters replaced by visible signs; safe for a terminal.

    >>> printable("a\\n\\x1b[31m")
    'a⏎␛[31m'
    """
    return "".join(_VISIBLE.get(char, _visible_control(char)) for char in text)


def _visible_control(char: str) -> str:
    code = ord(char)
    if code < 0x20:
        return chr(0x2400 + code)
    if unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") and code != 0x200D:
        return f"<U+{code:04X}>"
    return char


def positions(count: int) -> tuple[Token, ...]:
    """Tokens for an axis nobody gave labels for: their positions."""
    return tuple(Token(None, str(index), str(index)) for index in range(count))


def named(labels: Sequence[str]) -> tuple[Token, ...]:
    """Tokens from labels a user gave."""
    return tuple(Token(None, str(label), str(label)) for label in labels)


def from_ids(tokenizer: Any, ids: Sequence[int], text: str | None = None) -> tuple[Token, ...]:
    """The tokens of one sequence of ids, padding included; see `read_ids`."""
    return read_ids(tokenizer, ids, text)[0]


def read_ids(tokenizer: Any, ids: Sequence[int], text: str | None = None) -> tuple[tuple[Token, ...], str | None]:
    """The tokens of one sequence of ids, padding included, and the text that their offsets count in.

    With the source `text`, or where that does not give these ids with text recovered by decoding, surface text comes
    from the tokenizer's offsets; where encoding neither gives the same ids, every token is decoded on its own instead
    and there is no text.
    """
    ids = [int(index) for index in ids]
    special = {int(index) for index in tokenizer.all_special_ids} - {tokenizer.unk_token_id}
    raw = [str(piece) for piece in tokenizer.convert_ids_to_tokens(ids)]
    spans = _offsets(tokenizer, ids, special, text)
    if spans is None:
        surfaces = [
            piece if index in special else tokenizer.decode([index]) for index, piece in zip(ids, raw, strict=True)
        ]
        return tuple(
            Token(index, piece, surface or piece, special=index in special)
            for index, piece, surface in zip(ids, raw, surfaces, strict=True)
        ), None
    source, offsets = spans
    tokens = []
    for index, piece, span in zip(ids, raw, offsets, strict=True):
        if index in special or span is None or span[0] == span[1]:
            tokens.append(Token(index, piece, piece, special=index in special))
        else:
            tokens.append(Token(index, piece, source[span[0] : span[1]], *span))
    return _with_parts(tokens), source


def _offsets(
    tokenizer: Any, ids: list[int], special: set[int], text: str | None
) -> tuple[str, list[tuple[int, int] | None]] | None:
    """(source, one span per id, None for added special tokens), or None where offsets cannot be had."""
    if not getattr(tokenizer, "is_fast", False):
        return None
    # special tokens are either added around the text or, in a chat template, written out in it
    for given, added in product(dict.fromkeys((text, None)), (special, set[int]())):
        plain = [index for index in ids if index not in added]
        source = tokenizer.decode(plain, clean_up_tokenization_spaces=False) if given is None else given
        encoded = tokenizer(source, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
        found = list(encoded["input_ids"])
        if found[: len(plain)] == plain and (given is not None or len(found) == len(plain)):
            spans = iter(encoded["offset_mapping"])
            return source, [None if index in added else tuple(next(spans)) for index in ids]
    return None


def _with_parts(tokens: list[Token]) -> tuple[Token, ...]:
    """Number the tokens that share the same characters: the bytes of one character."""
    result = list(tokens)
    start = 0
    while start < len(tokens):
        stop = start + 1
        characters = _characters(tokens[start])
        while stop < len(tokens) and characters is not None and _characters(tokens[stop]) == characters:
            stop += 1
        if stop - start > 1:
            for index in range(start, stop):
                result[index] = replace(tokens[index], part=(index - start + 1, stop - start))
        start = stop
    return tuple(result)


def _characters(token: Token) -> tuple[int, int] | None:
    """The characters of a token without white space before them, which the first of several tokens may hold as well."""
    if token.start is None or token.end is None:
        return None
    return token.end - len(token.text.lstrip()), token.end


def words(tokens: Sequence[Token], text: str | None, rule: Cut = "punctuation") -> tuple[Word, ...]:
    """The words that the tokens make up, in order; every token belongs to exactly one.

    rule is a `Cut`. Special tokens, and tokens without a place in the text or outside all words that were given, are
    words of their own. A token belongs to the word in which its first character that is not white space lies.
    """
    return group(tokens, text, word_spans(text, rule))


def word_spans(text: str | None, rule: Cut) -> list[tuple[int, int]]:
    """The character ranges of the words, or UsageError for an unknown rule and for words that are not in the text.

    >>> word_spans("in New York", ["in", "New York"])
    [(0, 2), (3, 11)]
    """
    if isinstance(rule, str):
        if rule not in WORD_RULES:
            raise UsageError(f"words can be cut at {' or '.join(WORD_RULES)}, not at {rule!r}")
        return [match.span() for match in WORD_RULES[rule].finditer(text or "")]
    if not isinstance(rule, Sequence):
        raise refuse("words", f"cut at {' or '.join(WORD_RULES)}, or listed in order", rule)
    if text is None:
        raise UsageError("these tokens have no place in a text, so no words of your own can be matched with them")
    spans: list[tuple[int, int]] = []
    for word in rule:
        after = spans[-1][1] if spans else 0
        spans.append(_found(text, word, after) if isinstance(word, str) else _checked(text, word, after))
    return spans


def _found(text: str, word: str, after: int) -> tuple[int, int]:
    start = text.find(word, after)
    if not word or start < 0:
        raise UsageError(
            f"the word {printable(word)!r} is not in the text from character {after} on: give words in order"
        )
    return start, start + len(word)


def _checked(text: str, span: tuple[int, int], after: int) -> tuple[int, int]:
    start, stop = span
    if not after <= start < stop <= len(text):
        raise UsageError(
            f"a word from character {start} to {stop} does not fit: ranges go from {after} on to {len(text)}, in order"
        )
    return start, stop


def group(tokens: Sequence[Token], text: str | None, spans: Sequence[tuple[int, int]]) -> tuple[Word, ...]:
    """The words given by character spans of the text, widened to all that their tokens hold; tokens outside all of them
    are words of their own."""
    owners = [word_of(token, text, spans) for token in tokens]
    result: list[Word] = []
    for index, (token, owner) in enumerate(zip(tokens, owners, strict=True)):
        if owner is not None and result and index > 0 and owners[index - 1] == owner:
            start = result[-1].start
            result[-1] = Word(_covered(tokens[start : index + 1], text or "", spans[owner]), start, index + 1)
        elif owner is not None and text is not None:
            result.append(Word(_covered([token], text, spans[owner]), index, index + 1))
        else:
            result.append(Word(token.text, index, index + 1, token.special))
    return tuple(result)


def _covered(tokens: Sequence[Token], text: str, span: tuple[int, int]) -> str:
    """A word's text with all that its tokens hold, which may reach beyond it: "</" is one token, "<" a word."""
    places = [place for token in tokens for place in _without_space(token, text)]
    return text[min(span[0], *places) : max(span[1], *places)]


def _without_space(token: Token, text: str) -> tuple[int, int]:
    """Where a token's characters begin and end, without the white space around them."""
    surface = text[token.start : token.end]
    start = (token.start or 0) + len(surface) - len(surface.lstrip())
    return start, start + len(surface.strip())


def word_of(token: Token, text: str | None, spans: Sequence[tuple[int, int]]) -> int | None:
    """Which of the ordered character spans holds a token's first character that is not a space."""
    if text is None or token.start is None or token.end is None or token.special:
        return None
    place = _without_space(token, text)[0]
    low, high = 0, len(spans)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if spans[middle][1] <= place else (low, middle)
    return low if low < len(spans) and spans[low][0] <= place else None


def to_words(weights: Tensor, rows: Sequence[Word], cols: Sequence[Word]) -> Tensor:
    """Word-level map [words, words] of a token-level one [M, N], after Clark et al. 2019 (arXiv 1906.04341, 4.1).

    Attention to a word is the sum over its tokens, attention from a word the mean over its tokens, so rows that
    summed to one still do.
    """
    summed = torch.stack([weights[:, word.start : word.stop].sum(1) for word in cols], dim=1)
    return torch.stack([summed[word.start : word.stop].mean(0) for word in rows])
