"""What `inspect` refuses before the model runs."""

import pytest

import attnviz
from attnviz.errors import UsageError


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_empty_text(minilm, text):
    with pytest.raises(UsageError, match=r"^the text is empty: give at least one word$"):
        attnviz.inspect(minilm, text)


def test_text_longer_than_the_model(minilm):
    with pytest.raises(UsageError, match=r"^the text has 513 tokens, this model reads 512 at most: give"):
        attnviz.inspect(minilm, "word " * 511)
    assert len(attnviz.inspect(minilm, "word " * 510).tokens) == 512


def test_inspect_computes_the_logits_of_one_token_only(smollm2):
    shapes = []
    handle = smollm2[0].lm_head.register_forward_hook(lambda module, given, found: shapes.append(found.shape[1]))
    try:
        trace = attnviz.inspect(smollm2, "The bank of the river.")
    finally:
        handle.remove()
    assert shapes == [1]
    assert len(trace.tokens) == 6
