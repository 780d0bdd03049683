"""The tokenizer made from SmolLM2's GGUF file, against byte-level BPE written out by hand."""

import json
from itertools import pairwise
from typing import Any

import pytest
import regex
from tokenizers.pre_tokenizers import ByteLevel

TEXTS = (
    "The bank of the river was muddy.",
    "I'm sure it's 2024, isn't it?  They'll pay $1,234.56",
    "def f(x):\n    if x > 10:\n\t\treturn 'a' * 3\n\n\n    1",
    "naïve café — “quoted” …",
    "你好，世界。 こんにちは 🙂👩‍💻",
    "trailing spaces   \n ",
    "x²½Ⅻ٣",
)
SINGLE = r"\p{N}"
PIECES = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"


def cut(text: str) -> list[str]:
    """Digits first, one by one; then GPT-2's pieces within what lies between (llama.cpp's kind "smollm")."""
    parts = [part for part in regex.split(f"({SINGLE})", text) if part]
    return [piece for part in parts for piece in regex.findall(PIECES, part)]


def merge(piece: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """The lowest-ranked pair again and again."""
    symbols = list(bytes_as_text(piece))
    while pairs := [(ranks[pair], at) for at, pair in enumerate(pairwise(symbols)) if pair in ranks]:
        at = min(pairs)[1]
        symbols[at : at + 2] = [symbols[at] + symbols[at + 1]]
    return symbols


def bytes_as_text(piece: str) -> str:
    return ByteLevel(add_prefix_space=False, use_regex=False).pre_tokenize_str(piece)[0][0]


@pytest.mark.parametrize("text", TEXTS)
def test_tokens_are_those_of_the_file(smollm2: Any, text: str) -> None:
    _, tokenizer = smollm2
    described = json.loads(tokenizer.backend_tokenizer.to_str())["model"]
    ranks = {tuple(pair): rank for rank, pair in enumerate(described["merges"])}
    expected = [symbol for piece in cut(text) for symbol in merge(piece, ranks)]
    assert tokenizer.tokenize(text) == expected


@pytest.mark.parametrize("text", TEXTS)
def test_decoding_gives_the_text_back(smollm2: Any, text: str) -> None:
    _, tokenizer = smollm2
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


@pytest.mark.parametrize("text", TEXTS)
def test_offsets_cover_the_text_in_order(smollm2: Any, text: str) -> None:
    """Without gaps; they overlap only in a character whose bytes are in several tokens."""
    _, tokenizer = smollm2
    spans = tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
    assert (spans[0][0], spans[-1][1]) == (0, len(text))
    assert all(before[1] - 1 <= after[0] <= before[1] for before, after in pairwise(spans))


def test_special_tokens_are_one_token(smollm2: Any) -> None:
    _, tokenizer = smollm2
    assert tokenizer("<|im_start|>user")["input_ids"][0] == tokenizer.bos_token_id == 1
    assert tokenizer.model_max_length == 8192
