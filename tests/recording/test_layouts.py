"""Weights in the layouts of sparse models, in token coordinates."""

import pytest
import torch
from recording.oracle import build, eager, inputs, whole

import attnviz
from attnviz.errors import RecordingError
from attnviz.recording.layouts import banded_to_dense, without_padding


def test_a_band_becomes_a_diagonal():
    band = torch.tensor([[0.0, 0.4, 0.6], [0.2, 0.3, 0.5], [0.9, 0.1, 0.0]])[None, None]
    expected = torch.tensor([[0.4, 0.6, 0.0], [0.2, 0.3, 0.5], [0.0, 0.9, 0.1]])
    assert torch.equal(banded_to_dense(band, None, None)[0, 0], expected)


def test_tokens_attended_from_everywhere_come_first():
    """Token 0 attends, and is attended to, from everywhere; the others see one token on each side."""
    band = torch.tensor([[0.0, 0.0, 0.0, 0.0], [0.1, 0.0, 0.4, 0.5], [0.2, 0.3, 0.5, 0.0]])[None, None]
    rows = torch.tensor([[0.5], [0.3], [0.2]])[None, None]
    everywhere = torch.tensor([[True, False, False]])
    expected = torch.tensor([[0.5, 0.3, 0.2], [0.1, 0.4, 0.5], [0.2, 0.3, 0.5]])
    assert torch.equal(banded_to_dense(band, everywhere, rows)[0, 0], expected)


def test_padding_is_cut_off_where_nothing_looks_at_it():
    weights = torch.tensor([[0.5, 0.5, 0.0], [0.2, 0.8, 0.0], [0.0, 0.0, 1.0]])[None, None]
    assert torch.equal(without_padding(weights, 2, 2)[0, 0], weights[0, 0, :2, :2])
    assert without_padding(torch.full((1, 1, 3, 3), 1 / 3), 2, 2).shape == (1, 1, 3, 3)


@torch.no_grad()
def test_longformer_s_maps_are_what_is_applied_to_its_values():
    """With global attention: every row of the map, times the values, is what the module hands on."""
    model = build("longformer")
    module = model.encoder.layer[1].attention.self
    seen = {}
    module.register_forward_hook(lambda _, args, kwargs, out: seen.update(x=args[0], out=out[0]), with_kwargs=True)
    given = inputs("longformer")
    everywhere = torch.zeros_like(given["input_ids"])
    everywhere[0, [0, 7]] = 1
    with attnviz.record(model) as trace:
        model(**given, global_attention_mask=everywhere)
    weights = whole(trace, 1)
    assert (weights.sum(-1) - 1).abs().max() < 1e-5
    for rows, project in ((everywhere[0] == 0, module.value), (everywhere[0] == 1, module.value_global)):
        value = project(seen["x"]).reshape(1, -1, 4, 8).transpose(1, 2)
        expected = (weights @ value).transpose(1, 2).reshape(1, -1, 32)
        assert (seen["out"][0][rows] - expected[0][: len(rows)][rows]).abs().max() < 1e-4


@torch.no_grad()
def test_big_bird_s_filled_blocks_are_cut_off():
    given = {"input_ids": inputs("big_bird")["input_ids"][:, :58]}
    own, _ = eager("big_bird", given=given)
    model = build("big_bird")
    with attnviz.record(model) as trace:
        model(**given)
    assert own["self"][0].shape[-1] == 60
    assert len(trace.tokens) == 58
    for layer, weights in zip(trace.layers, own["self"], strict=True):
        assert torch.equal(whole(trace, layer), weights[:, :, :58, :58])


def test_a_model_s_own_weights_that_do_not_sum_to_one_are_noted():
    model = build("big_bird")
    with torch.no_grad(), attnviz.record(model) as trace:
        model(**inputs("big_bird"))
    assert trace.record(0).notes[0].startswith("the model's own weights sum to 0.")


def test_scores_that_a_model_returns_for_weights_are_refused():
    from transformers import SqueezeBertConfig, SqueezeBertModel

    sizes = {"hidden_size": 32, "embedding_size": 32, "num_attention_heads": 4, "num_hidden_layers": 1}
    model = SqueezeBertModel(SqueezeBertConfig(vocab_size=99, intermediate_size=64, **sizes)).eval()
    message = r"encoder.layers.0.attention returns scores instead of weights \(from -.*\): attnviz.tap\(weights"
    with pytest.raises(RecordingError, match=message), attnviz.record(model):
        model(torch.arange(5, 13)[None])


def test_a_model_built_with_our_name_although_it_cannot_is_refused():
    model = build("bloom")
    model.config._attn_implementation_internal = "attnviz"
    message = 'BloomModel was built with attn_implementation="attnviz", which it does not support'
    with pytest.raises(RecordingError, match=message), attnviz.record(model):
        pass
