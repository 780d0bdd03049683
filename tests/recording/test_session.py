"""What `inspect` and `record` refuse before the model runs, and what they name tokens."""

import pytest

import attnviz
from attnviz.errors import UsageError
from attnviz.recording import record


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_empty_text(minilm, text):
    with pytest.raises(UsageError, match=r"^the text is empty: give at least one word$"):
        attnviz.inspect(minilm, text)


def test_text_longer_than_the_model(minilm):
    with pytest.raises(UsageError, match=r"^the text has 513 tokens, this model reads 512 at most: give"):
        attnviz.inspect(minilm, "word " * 511)
    assert len(attnviz.inspect(minilm, "word " * 510).tokens) == 512


def test_tokens_are_shown_as_the_text_has_them(minilm):
    model, tokenizer = minilm
    inputs = tokenizer("Café NAÏVE", return_tensors="pt")
    with record(model, tokenizer=tokenizer, text="Café NAÏVE") as trace:
        model(**inputs)
    assert [token.label for token in trace.tokens] == ["[CLS]", "Café", "NAÏVE", "[SEP]"]
    assert trace.text == "Café NAÏVE"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"text": "a"}, "a text is matched with its tokens by the tokenizer: give tokenizer= beside text="),
        ({"text": ["a"]}, "the text must be one string"),
        ({"text": " "}, "the text is empty"),
    ],
)
def test_a_text_that_names_no_tokens_is_refused(minilm, options, message):
    with pytest.raises(UsageError, match=f"^{message}"), record(minilm[0], **options):
        pass


def test_inspect_computes_the_logits_of_one_token_only(smollm2):
    shapes = []
    handle = smollm2[0].lm_head.register_forward_hook(lambda module, given, found: shapes.append(found.shape[1]))
    try:
        trace = attnviz.inspect(smollm2, "The bank of the river.")
    finally:
        handle.remove()
    assert shapes == [1]
    assert len(trace.tokens) == 6
