"""Caches that keep less than the mask says, and generation by a model inside another one, which gets no ids itself."""

import pytest
import torch
import transformers
from recording.test_huggingface_composites import TEXT, VISION
from recording.test_huggingface_generation import cached

import attnviz

PROMPT = torch.randint(5, 90, (2, 8), generator=torch.Generator().manual_seed(0))
REAL = torch.ones_like(PROMPT).index_fill(1, torch.arange(3), 0)
REAL[0] = 1
WINDOWED = {"sliding_window": 4, "head_dim": 8, "query_pre_attn_scalar": 8}


def scaled(model):
    """Weights far from uniform, so that a wrong one shows."""
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.mul_(5)
    return model.eval()


def build(kind, config):
    torch.manual_seed(0)
    return scaled(kind(config))


def reader_of_images():
    """Gemma 3, whose text model is given embedded tokens and a mask for each kind of layer."""
    text = transformers.Gemma3TextConfig(**TEXT, **WINDOWED, num_key_value_heads=2, sliding_window_pattern=2)
    vision = transformers.SiglipVisionConfig(**VISION)
    config = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    return build(transformers.Gemma3ForConditionalGeneration, config)


def weights(trace, layer):
    return trace.view(layer).tile(slice(None), slice(None))


@torch.no_grad()
def test_a_cache_that_forgets_what_the_mask_would_show():
    grouped = {**TEXT, "num_key_value_heads": 2}
    model = build(transformers.LlamaForCausalLM, transformers.LlamaConfig(**grouped))
    model.set_attn_implementation("eager")
    forgetful = transformers.MistralConfig(**grouped, sliding_window=4)

    def run():
        cache = transformers.DynamicCache(config=forgetful)
        steps = [model(PROMPT[:1, part], **cached(model, cache), output_attentions=True) for part in PARTS]
        return [step.attentions for step in steps]

    own = run()
    with attnviz.record(model) as trace:
        run()
    for layer in trace.layers:
        found = weights(trace, layer)
        for part, step in zip(PARTS, own, strict=True):
            seen = step[layer].shape[3]
            assert (found[:, :, part, part.stop - seen : part.stop] - step[layer]).abs().max() < 1e-5
            assert found[:, :, part, : part.stop - seen].sum() == 0
            assert found[:, :, part, part.stop :].sum() == 0


PARTS = (slice(0, 5), slice(5, 6), slice(6, 7), slice(7, 8))


@pytest.mark.parametrize("cache", [None, "static"])
@pytest.mark.parametrize("kind", ["text", "images"])
@torch.no_grad()
def test_padding_is_known_where_only_masks_of_windows_are_given(kind, cache):
    text = transformers.MistralConfig(**TEXT, num_key_value_heads=2, sliding_window=4)
    model = build(transformers.MistralForCausalLM, text) if kind == "text" else reader_of_images()
    with attnviz.record(model) as trace:
        out = model.generate(
            PROMPT, attention_mask=REAL, max_new_tokens=6, do_sample=False, cache_implementation=cache, eos_token_id=98
        )
    for sequence, first in ((0, 0), (1, 3)):
        ids = [str(int(number)) for number in out[sequence, first:-1]]
        assert [str(token) for token in trace.sequence(sequence).tokens] == ids


@torch.no_grad()
def test_beams_of_a_model_inside_another_are_those_of_the_returned_sequences():
    model = reader_of_images()
    with attnviz.record(model) as trace:
        out = model.generate(PROMPT, max_new_tokens=6, num_beams=3, num_return_sequences=2, eos_token_id=98)
    assert trace.batch_size == len(out) == 4
    model.set_attn_implementation("eager")
    for index, sequence in enumerate(out):
        one = trace.sequence(index)
        assert [str(token) for token in one.tokens] == [str(int(number)) for number in sequence[:-1]]
        own = model(sequence[None], output_attentions=True).attentions
        for layer in trace.layers:
            found, count = weights(one, layer)[0], len(sequence) - 1
            assert (found - own[layer][0, :, :count, :count]).abs().max() < 1e-4


@pytest.mark.parametrize("generated", [0, 5])
@torch.no_grad()
def test_layers_that_attend_for_the_last_tokens_only_have_their_rows_where_they_stand(generated):
    """Gemma 4 drops the queries of a prompt that nothing needs from the layers that share keys."""
    layers = {"num_hidden_layers": 4, "num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8}
    kinds = ["sliding_attention", "full_attention"] * 2
    sizes = {**TEXT, **WINDOWED, **layers, "num_key_value_heads": 2, "vocab_size_per_layer_input": 99}
    config = transformers.Gemma4TextConfig(**sizes, layer_types=kinds)
    model = build(transformers.Gemma4ForCausalLM, config)
    with attnviz.record(model) as trace:
        if generated:
            ids = model.generate(PROMPT[:1], max_new_tokens=generated, do_sample=False, eos_token_id=98)[:, :-1]
        else:
            ids = PROMPT[:1]
            model(ids, logits_to_keep=1)
    model.set_attn_implementation("eager")
    own = model(ids, output_attentions=True, use_cache=False).attentions
    for layer, start in zip(trace.layers, (0, 0, 7, 7), strict=True):
        assert trace.record(layer).row_start == start
        assert [str(token) for token in trace[layer, 0].rows] == [str(int(number)) for number in ids[0, start:]]
        assert (weights(trace, layer) - own[layer][:, :, start:]).abs().max() < 1e-4
        assert (trace[layer, 0].statistics.own - own[layer][0, 0].diagonal()[start:]).abs().max() < 1e-4


@torch.no_grad()
def test_beams_of_a_model_that_returns_what_follows_the_prompt_only():
    sizes = {"d_model": 32, "encoder_layers": 1, "decoder_layers": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64}
    sizes |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "num_mel_bins": 8, "max_source_positions": 10}
    ends = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 98, "decoder_start_token_id": 2}
    config = transformers.WhisperConfig(vocab_size=99, max_target_positions=40, **sizes, **ends)
    model = build(transformers.WhisperForConditionalGeneration, config)
    model.generation_config.suppress_tokens = model.generation_config.begin_suppress_tokens = None
    sound = torch.randn(2, 8, 20, generator=torch.Generator().manual_seed(0))
    with attnviz.record(model) as trace:
        out = model.generate(sound, max_new_tokens=6, num_beams=3)
    assert trace.batch_size == len(out) == 2
    model.set_attn_implementation("eager")
    for index, sequence in enumerate(out):
        ids = torch.cat([torch.tensor([2]), sequence])[None]
        own = model(sound[index : index + 1], decoder_input_ids=ids, output_attentions=True)
        one = trace.sequence(index)
        count = len(one.decoder.tokens)
        assert [str(token) for token in one.decoder.tokens] == [str(int(number)) for number in ids[0, :count]]
        for layer in (0, 1):
            found = one.decoder[layer, 3].weights()
            assert (found - own.decoder_attentions[layer][0, 3, :count, :count]).abs().max() < 1e-4
            found = one.cross[layer, 3].weights()
            assert (found - own.cross_attentions[layer][0, 3, :count]).abs().max() < 1e-4


@torch.no_grad()
def test_beams_that_cannot_be_told_from_what_is_returned_are_said_to_be_beams(monkeypatch):
    config = transformers.LlamaConfig(**TEXT, num_key_value_heads=2)
    model = build(transformers.LlamaForCausalLM, config)
    plain = model.generate
    monkeypatch.setattr(model, "generate", lambda *given, **options: plain(*given, **options) + 1, raising=False)
    with attnviz.record(model) as trace:
        model.generate(PROMPT, max_new_tokens=4, num_beams=3, eos_token_id=98)
    assert trace.batch_size == 6
    assert trace.notes == ["the sequences are the search's last beams: those that generate returned are not among them"]
