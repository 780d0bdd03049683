"""Recording transformers models: every weight equals the model's own eager attention."""

import pytest
import torch

import attnviz
from attnviz.errors import UsageError

TEXTS = ["Hello", "The bank of the river was muddy.", "In the beginning there was a very long sentence. " * 12]
BOUND = {"minilm": 1e-6, "smollm2": 1e-5}


@pytest.fixture(scope="module", params=list(BOUND))
def loaded(request):
    return request.param, *attnviz.load_model(request.param)


@pytest.mark.parametrize("text", TEXTS)
@torch.no_grad()
def test_weights_are_those_of_eager_attention(loaded, text):
    name, model, tokenizer = loaded
    inputs = tokenizer(text, return_tensors="pt")
    with attnviz.record(model, tokenizer=tokenizer) as trace:
        model(**inputs)
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        own = model(**inputs, output_attentions=True).attentions
    finally:
        model.set_attn_implementation(before)
    assert trace.layers == tuple(range(len(own)))
    worst = max((head.weights() - own[head.layer][0, head.head]).abs().max() for head in trace.every_head())
    assert worst < BOUND[name]


def test_inspect_names_the_tokens():
    trace = attnviz.inspect("minilm", "The bank of the river was muddy.")
    assert [str(token) for token in trace.tokens][:4] == ["[CLS]", "The", "bank", "of"]
    assert trace.text == "The bank of the river was muddy."


def test_inspect_refuses_empty_text():
    with pytest.raises(UsageError, match="the text is empty"):
        attnviz.inspect("minilm", "  ")
