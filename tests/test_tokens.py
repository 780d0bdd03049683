"""Labels and words: what a person reads for each token, and which tokens make up a word."""

import re

import pytest
import torch

from attnviz.errors import UsageError
from attnviz.tokens import (
    Token,
    TokenAxis,
    group,
    named,
    positions,
    printable,
    read_ids,
    to_words,
    words,
)


def read(loaded, text):
    _, tokenizer = loaded
    return read_ids(tokenizer, tokenizer(text).input_ids, text)[0]


def test_characters_split_over_several_tokens_are_numbered(smollm2):
    assert [token.label for token in read(smollm2, "你好")] == ["你 1/2", "你 2/2", "好 1/2", "好 2/2"]
    assert [token.label for token in read(smollm2, "a 👧")] == ["a", "👧 1/3", "👧 2/3", "👧 3/3"]


def test_white_space_and_control_characters_are_visible(smollm2):
    labels = [token.label for token in read(smollm2, "a\x1b[0m\n b  c\t")]
    assert labels[:2] == ["a", "␛"]
    assert "⏎" in labels
    assert all(label.isprintable() and label for label in labels)


def test_text_behind_unknown_tokens_is_recovered(minilm):
    tokens = read(minilm, "☃ snow")
    assert [(token.raw, token.label) for token in tokens[1:3]] == [("[UNK]", "☃"), ("snow", "snow")]


def test_case_and_accents_come_from_the_text(minilm):
    assert [token.label for token in read(minilm, "Café NAÏVE")] == ["[CLS]", "Café", "NAÏVE", "[SEP]"]


def test_without_the_text_ids_are_decoded(minilm):
    _, tokenizer = minilm
    ids = tokenizer("muddy banks").input_ids
    tokens, source = read_ids(tokenizer, ids)
    assert source == "muddy banks"
    assert [token.label for token in tokens] == ["[CLS]", "muddy", "banks", "[SEP]"]
    assert [token.special for token in tokens] == [True, False, False, True]


@pytest.mark.parametrize("text", ["Muddy", "Muddy waters", "Of banks"])
def test_where_the_text_gives_other_ids_they_are_decoded(minilm, text):
    """So it is when a model has written on: the text holds only the beginning."""
    _, tokenizer = minilm
    tokens, source = read_ids(tokenizer, tokenizer("muddy banks").input_ids, text)
    assert source == "muddy banks"
    assert [token.label for token in tokens] == ["[CLS]", "muddy", "banks", "[SEP]"]


def test_ids_that_no_text_gives_are_decoded_one_by_one(minilm):
    _, tokenizer = minilm
    ids = [tokenizer.convert_tokens_to_ids(piece) for piece in ("##ing", "river")]
    tokens, source = read_ids(tokenizer, ids)
    assert source is None
    assert [token.raw for token in tokens] == ["##ing", "river"]
    assert tokens[0].start is None


def test_words_of_your_own():
    text = "in New York"
    tokens = [Token(i, text[a:b], text[a:b], a, b) for i, (a, b) in enumerate([(0, 2), (3, 6), (7, 11)])]
    for rule in (["New York"], [(3, 11)], ["in", "New York"]):
        assert [(word.text, word.start, word.stop) for word in words(tokens, text, rule)] == [
            ("in", 0, 1),
            ("New York", 1, 3),
        ]
    assert [word.text for word in words(tokens, text, [])] == ["in", "New", "York"]


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ("lines", "words can be cut at punctuation or whitespace, not at 'lines'"),
        (["York", "New"], "the word 'New' is not in the text from character 11 on: give words in order"),
        ([""], "the word '' is not in the text from character 0 on: give words in order"),
        ([(0, 2), (1, 5)], "a word from character 1 to 5 does not fit: ranges go from 2 on to 11, in order"),
        ([(4, 4)], "a word from character 4 to 4 does not fit"),
        ([(4, 12)], "a word from character 4 to 12 does not fit"),
    ],
)
def test_words_that_do_not_fit_are_refused(rule, message):
    with pytest.raises(UsageError, match="^" + re.escape(message)):
        words([Token(0, "in", "in", 0, 2)], "in New York", rule)


def test_words_of_your_own_need_a_text():
    with pytest.raises(UsageError, match="these tokens have no place in a text"):
        words([Token(0, "in", "in")], None, ["in"])


def test_padding_is_special(minilm):
    _, tokenizer = minilm
    ids = tokenizer(["a b c", "a"], padding=True).input_ids[1]
    assert [token.label for token in read_ids(tokenizer, ids)[0]] == ["[CLS]", "a", "[SEP]", "[PAD]", "[PAD]"]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a b", "a·b"),
        ("\x00\x1b\x7f", "␀␛<U+007F>"),
        ("\u202eabc", "<U+202E>abc"),
        ("👩\u200d👧", "👩\u200d👧"),
        ("<script>", "<script>"),
    ],
)
def test_printable(text, shown):
    assert printable(text) == shown


def cut(text, *pieces, special=()):
    """Tokens that cover the text piece by piece."""
    tokens, place = [], 0
    for piece in pieces:
        start = text.index(piece, place)
        place = start + len(piece)
        tokens.append(Token(0, piece, piece, start, place))
    return [Token(0, name, name, special=True) for name in special[:1]] + tokens


def test_words_are_cut_at_spaces_and_punctuation():
    text = "The river's banks, muddy."
    tokens = cut(text, "The", " river", "'s", " ban", "ks", ",", " mud", "dy", ".", special=("[CLS]",))
    found = words(tokens, text)
    assert [word.text for word in found] == ["[CLS]", "The", "river's", "banks", ",", "muddy", "."]
    assert [(word.start, word.stop) for word in found] == [(0, 1), (1, 2), (2, 4), (4, 6), (6, 7), (7, 9), (9, 10)]
    assert [word.text for word in words(tokens, text, "whitespace")] == ["[CLS]", "The", "river's", "banks,", "muddy."]


def test_an_unknown_rule_for_words_is_refused():
    with pytest.raises(UsageError, match="words can be cut at punctuation or whitespace, not at 'bpe'"):
        words([], "", "bpe")


def test_tokens_outside_all_spans_are_words_of_their_own():
    text = "one two three"
    found = group(cut(text, "one", " two", " three"), text, [(4, 7)])
    assert [word.text for word in found] == ["one", "two", " three"]


def test_word_map_of_clark_et_al():
    """To a word the sum over its tokens, from a word their mean: rows that summed to one still do."""
    weights = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.2, 0.3, 0.5]])
    text = "a bc"
    found = words(cut(text, "a", " b", "c"), text)
    merged = to_words(weights, found, found)
    torch.testing.assert_close(merged, torch.tensor([[1.0, 0.0], [0.35, 0.65]]))


def test_labels_without_a_tokenizer():
    assert [str(token) for token in positions(3)] == ["0", "1", "2"]
    assert [str(token) for token in named(["x", 3])] == ["x", "3"]


def test_an_axis_without_its_first_positions():
    axis = TokenAxis(positions(6), slice(2, 5), steps=(0, 0, 0, 0, 1, 2))
    assert [str(token) for token in axis.real] == ["2", "3", "4"]
    rest = axis.after(3)
    assert [str(token) for token in rest.real] == ["3", "4"]
    assert rest.steps == (0, 1, 2)


@pytest.mark.parametrize(
    ("parts", "labels"),
    [
        (("</", "script", "><", "b", ">"), ["</", "script", "><", "b", ">"]),
        (("it", "'s", " 5", ".", "0", "0", "!!\n"), ["it's", "5", ".", "00", "!!"]),
    ],
)
def test_labels_of_words_hold_all_the_text_of_their_tokens(parts, labels):
    text = "".join(parts)
    assert [word.text for word in words(cut(text, *parts), text)] == labels
