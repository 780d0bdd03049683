"""Whatever else a model's own attention gives, it gives while it is recorded too: its weights, and rows of padding."""

import pytest
import torch
import transformers
from recording.test_huggingface_caches import PROMPT, REAL, build
from recording.test_huggingface_composites import TEXT

import attnviz
from attnviz.errors import RecordingError
from attnviz.recording.original import BEFORE


def llama(attention, **options):
    model = build(transformers.LlamaModel, transformers.LlamaConfig(**TEXT, num_key_value_heads=2, **options))
    model.set_attn_implementation(attention)
    return model


def gradients(model):
    """Gradients of a loss on the weights that the model returns, with dropout."""
    torch.manual_seed(0)
    model.train().zero_grad()
    weights = model(PROMPT, output_attentions=True).attentions
    torch.stack(weights).square().sum().backward()
    return weights, [parameter.grad for parameter in model.parameters() if parameter.grad is not None]


def test_a_model_that_returns_its_weights_returns_them_and_they_are_differentiable():
    model = llama("eager", attention_dropout=0.3)
    plain, slopes = gradients(model)
    with attnviz.record(model) as trace:
        during, found = gradients(model)
    assert all(torch.equal(one, other) for one, other in zip(plain, during, strict=True))
    assert len(found) == len(slopes) > 0
    assert all(torch.equal(one, other) for one, other in zip(slopes, found, strict=True))
    assert trace.layers == (0, 1)
    assert not BEFORE


def sharper(module, query, *rest, **keywords):
    return transformers.AttentionInterface._global_mapping["sdpa"](module, 3 * query, *rest, **keywords)


def test_an_attention_function_that_somebody_registered_is_not_replaced(monkeypatch):
    monkeypatch.setitem(transformers.AttentionInterface._global_mapping, "sharper", sharper)
    model, ran = llama("sharper"), []
    model.register_forward_pre_hook(lambda *_: ran.append(True))
    message = 'LlamaAttention runs with attn_implementation="sharper", a function of .* that may compute anything'
    with pytest.raises(RecordingError, match=message), attnviz.record(model):
        model(PROMPT)
    assert not ran
    assert model.config._attn_implementation == "sharper"


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("added", [False, True])
@torch.no_grad()
def test_rows_of_padding_come_out_as_before(attention, added):
    model = llama(attention)
    lowest = torch.finfo(torch.float32).min
    causal = torch.ones(8, 8).tril().bool() & REAL.bool()[:, None]
    mask = torch.zeros(2, 1, 8, 8).masked_fill(~causal[:, None], lowest) if added else REAL
    plain = model(PROMPT, attention_mask=mask).last_hidden_state
    with attnviz.record(model) as trace:
        during = model(PROMPT, attention_mask=mask).last_hidden_state
    assert (during - plain).abs().max() < 1e-5 * plain.abs().max()
    assert trace.record(0).view.visible()[1, 0].tolist() == [0, 0, 0, 1, 2, 3, 4, 5]


@torch.no_grad()
def test_a_call_without_a_mask_is_causal_where_torch_s_attention_makes_it_so():
    def without_mask(module, given, options):
        return given, {**options, "attention_mask": None}

    model = llama("sdpa")
    for layer in model.layers:
        layer.self_attn.register_forward_pre_hook(without_mask, with_kwargs=True)
    plain = model(PROMPT).last_hidden_state
    with attnviz.record(model) as trace:
        during = model(PROMPT).last_hidden_state
    assert (during - plain).abs().max() < 1e-5 * plain.abs().max()
    assert trace.record(1).view.visible()[0, 0].tolist() == list(range(1, 9))
