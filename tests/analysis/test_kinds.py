"""Causes in an encoder-decoder model, whose layers have three kinds of attention."""

import pytest
import torch

from attnviz.analysis.ablation import ablate, ablate_each, every_head, knock_out
from attnviz.analysis.attention_paths import attention_conductance, integrated_attention
from attnviz.analysis.attribution import attribute_tokens, layer_conductance
from attnviz.analysis.cases import case
from attnviz.analysis.continuation import attribute_continuation
from attnviz.analysis.gradients import gradients
from attnviz.analysis.kinds import kind_of
from attnviz.errors import UsageError
from tests.tiny_models import WORDS, save_bert

TEXT = "the cat sat ."


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    """A tiny Bart with large weights, and a tokenizer."""
    from transformers import AutoTokenizer, BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=len(WORDS),
        d_model=16,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        init_std=0.4,
        pad_token_id=0,
        decoder_start_token_id=2,
    )
    return BartForConditionalGeneration(config).eval(), AutoTokenizer.from_pretrained(
        save_bert(tmp_path_factory.mktemp("bert"))
    )


@pytest.fixture(scope="module")
def asked(pair):
    """The logit of a first token, and one of several that are there already."""
    found = case(*pair, TEXT, target="cat")
    return found.model, {**found.inputs, "decoder_input_ids": torch.tensor([[2, 5, 6]])}, found.measure


def without(model, part, head, size):
    """The model whose projection of one kind of attention in layer 1 is not given what a head writes."""

    def silence(_, args):
        states = args[0].clone()
        states[..., head * size : (head + 1) * size] = 0
        return (states,)

    return model.get_submodule(part).out_proj.register_forward_pre_hook(silence)


@pytest.mark.parametrize(
    ("kind", "part", "size"),
    [
        ("encoder", "model.encoder.layers.1.self_attn", 4),
        ("decoder", "model.decoder.layers.1.self_attn", 8),
        ("cross", "model.decoder.layers.1.encoder_attn", 8),
    ],
)
def test_only_the_kind_that_is_named_is_silenced(asked, kind, part, size):
    model, inputs, measure = asked
    handle = without(model, part, 1, size)
    with torch.inference_mode():
        wanted = measure(model(**inputs)).item()
    handle.remove()
    found = ablate(model, inputs, [(1, 1)], measure, kind=kind)
    assert found.after == pytest.approx(wanted, abs=1e-5)
    assert abs(found.change) > 1e-4
    assert len(ablate_each(model, inputs, measure, kind=kind)) == len(every_head(model, inputs, kind))
    assert len(every_head(model, inputs, kind)) == {"encoder": 8}.get(kind, 4)


def test_a_decoder_that_sees_nothing_of_the_text(asked):
    model, inputs, measure = asked
    count = inputs["input_ids"].shape[1]
    cut = knock_out(model, inputs, [0, 1, 2], range(count), measure, kind="cross")
    silent = ablate(model, inputs, every_head(model, inputs, "cross"), measure, kind="cross")
    assert cut.after == pytest.approx(silent.after, abs=1e-5)


def test_gradients_of_cross_attention_equal_eager_autograd(asked):
    model, inputs, measure = asked
    found = gradients(model, inputs, measure, kind="cross")
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    output = model(**inputs, output_attentions=True)
    given = torch.autograd.grad(measure(output), output.cross_attentions)
    model.set_attn_implementation(before)
    for layer, (weights, gradient) in enumerate(zip(output.cross_attentions, given, strict=True)):
        for head in range(2):
            wanted = (weights * gradient)[0, head].detach()
            assert torch.allclose(found.attention_gradient(layer, head), wanted, atol=1e-5)


def test_tokens_of_the_text_are_attributed(pair):
    found = case(*pair, TEXT)
    whole = attribute_tokens(found.model, found.tokenizer, found.inputs, found.measure)
    assert whole.method == "ablation"
    assert whole.scores[1:-1].all()
    path = attribute_tokens(
        found.model, found.tokenizer, found.inputs, found.measure, method="integrated gradients", steps=200
    )
    assert path.converged


def test_paths_follow_the_kind_that_is_named(pair, asked):
    model, inputs, measure = asked
    carried = integrated_attention(model, inputs, measure, kind="cross", layers=[1]).layers[1]
    silent = ablate(model, inputs, [(1, 0), (1, 1)], measure, kind="cross")
    assert carried.effect == pytest.approx(-silent.change, abs=1e-5)
    assert carried.converged
    found = case(*pair, TEXT)
    given = (found.model, found.tokenizer, found.inputs, found.measure)
    passed = attention_conductance(*given, kind="cross", layers=[0])
    assert passed.converged
    assert layer_conductance(*given, 1, kind="encoder").converged


def test_what_is_meant_must_be_said(asked, pair):
    model, inputs, measure = asked
    several = "this model has several kinds of attention: name one of encoder, decoder, cross as kind"
    for work in (
        lambda: ablate(model, inputs, [(0, 0)], measure),
        lambda: knock_out(model, inputs, [0], [0], measure),
        lambda: gradients(model, inputs, measure),
        lambda: integrated_attention(model, inputs, measure),
    ):
        with pytest.raises(UsageError, match=several):
            work()
    with pytest.raises(UsageError, match="this model has no vision attention: it has encoder, decoder, cross"):
        kind_of(model, "vision")
    with pytest.raises(UsageError, match="an encoder-decoder model does not continue its text"):
        attribute_continuation(*pair, TEXT, "cat")


def test_relevance_needs_a_square_map(asked):
    model, inputs, measure = asked
    with pytest.raises(UsageError, match="relevance needs as many queries as keys, layer 0 has 3 and 6"):
        gradients(model, inputs, measure, kind="cross").relevance()
