"""Real pretrained models: every weight equals their own eager attention, and so does what the trace says about it."""

import pytest
import torch

import attnviz
from attnviz.errors import UsageError

TEXT = (
    "The harbour master kept a ledger of every ship that came in from the north, and on winter evenings he read the"
    " names aloud to his daughter. She knew which captains carried salt, and which carried letters nobody asked for."
)


@torch.no_grad()
def eager(model, inputs):
    """(weights of each layer, first output) of the model's own eager attention."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        out = model(**inputs, output_attentions=True)
    finally:
        model.set_attn_implementation(before)
    return out.attentions, out[0]


def worst(pairs):
    return max((one - other).abs().max().item() for one, other in pairs)


@pytest.mark.parametrize("length", [5, 17, 60])
@pytest.mark.parametrize("bundled", ["minilm", "smollm2"])
@torch.no_grad()
def test_as_exact_as_eager_attention(bundled, length, request):
    model, tokenizer = request.getfixturevalue(bundled)
    inputs = tokenizer(TEXT, return_tensors="pt", truncation=True, max_length=length)
    own, own_out = eager(model, inputs)
    with attnviz.record(model, tokenizer=tokenizer) as trace:
        out = model(**inputs)[0]
    exact, exact_out = eager(model.double(), inputs)
    model.float()
    found = [trace.view(layer).tile(slice(None), slice(None)) for layer in trace.layers]
    assert len(found) == len(own) == len(trace.layers)
    # float32 eager attention is itself about 1e-6 away from the exact weights
    assert worst(zip(found, exact, strict=True)) <= 1e-6 + 2 * worst(zip(own, exact, strict=True))
    assert worst(zip(found, own, strict=True)) <= (3e-6 if bundled == "minilm" else 1e-5)
    assert (out - exact_out).abs().max() <= 1e-6 + 2 * (own_out - exact_out).abs().max()


def test_the_configuration_is_put_back_after_an_exception(minilm):
    model, tokenizer = minilm
    before = str(model.config), model.config._attn_implementation
    seen = []

    def interrupted():
        with attnviz.record(model, tokenizer=tokenizer):
            seen.append(model.config._attn_implementation)
            raise KeyError

    with pytest.raises(KeyError):
        interrupted()
    assert seen == ["attnviz"]
    assert (str(model.config), model.config._attn_implementation) == before


def test_inspect_names_the_tokens(minilm):
    trace = attnviz.inspect(minilm, "The bank of the River was muddy.")
    assert [str(token) for token in trace.tokens] == [
        "[CLS]", "The", "bank", "of", "the", "River", "was", "muddy", ".", "[SEP]",
    ]  # fmt: skip
    assert trace.text == "The bank of the River was muddy."
    assert [token.start for token in trace.tokens][1:4] == [0, 4, 9]


def test_inspect_takes_a_name():
    trace = attnviz.inspect("minilm", "muddy", layers=[2], keep="statistics")
    assert (trace.model, trace.layers) == ("minilm", (2,))


def test_record_shows_ids_without_a_tokenizer_and_labels_where_given(minilm):
    model, tokenizer = minilm
    inputs = tokenizer("river bank", return_tensors="pt")
    with torch.no_grad(), attnviz.record(model) as plain:
        model(**inputs)
    assert [str(token) for token in plain.tokens] == [str(int(index)) for index in inputs["input_ids"][0]]
    with torch.no_grad(), attnviz.record(model, tokens=["a", "b", "c", "d"]) as named:
        model(**inputs)
    assert [str(token) for token in named.tokens] == ["a", "b", "c", "d"]


def test_labels_of_another_length_are_refused(minilm):
    model, tokenizer = minilm
    inputs = tokenizer("river bank", return_tensors="pt")

    def three_labels():
        with torch.no_grad(), attnviz.record(model, tokens=["a", "b", "c"]):
            model(**inputs)

    with pytest.raises(UsageError, match="tokens= must have one label for each of the 4 tokens, got 3"):
        three_labels()


def test_inspect_refuses_empty_text(minilm):
    with pytest.raises(UsageError, match="the text is empty: give at least one word"):
        attnviz.inspect(minilm, "  ")


@torch.no_grad()
def test_a_batch_of_texts(minilm):
    model, tokenizer = minilm
    texts = ["The bank of the river was muddy.", "A short one."]
    inputs = tokenizer(texts, return_tensors="pt", padding=True)
    with attnviz.record(model, tokenizer=tokenizer) as trace:
        model(**inputs)
    assert trace.batch_size == 2
    short = trace.sequence(1)
    assert [str(token) for token in short.tokens] == ["[CLS]", "a", "short", "one", ".", "[SEP]"]
    alone = attnviz.inspect(minilm, texts[1])
    for layer in trace.layers:
        pair = [one.view(layer).tile(slice(None), slice(None)) for one in (short, alone)]
        assert (pair[0] - pair[1]).abs().max() < 1e-5
    assert (short.heads()["entropy"] - alone.heads()["entropy"]).abs().max() < 1e-5


def test_inspect_lets_an_encoder_decoder_generate(minilm):
    import copy

    import transformers

    tokenizer = copy.deepcopy(minilm[1])
    tokenizer.model_input_names = ["input_ids", "attention_mask"]
    config = transformers.BartConfig(
        vocab_size=len(tokenizer), d_model=16, encoder_layers=2, decoder_layers=1, encoder_attention_heads=2,
        decoder_attention_heads=2, encoder_ffn_dim=16, decoder_ffn_dim=16, max_position_embeddings=64, pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    torch.manual_seed(0)
    model = transformers.BartForConditionalGeneration(config).eval()
    trace = attnviz.inspect((model, tokenizer), "Muddy banks of a river.")
    assert trace.kinds == ("encoder", "decoder", "cross")
    assert [str(token) for token in trace.encoder.tokens][1:3] == ["Muddy", "banks"]
    assert trace.cross[0, 1].shape == (len(trace.decoder.tokens), len(trace.encoder.tokens))
    assert len(trace.decoder.tokens) > 1
