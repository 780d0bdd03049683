"""Models of several towers: each tower is a kind of its own, with its own labels, and nothing hides anything."""

import pytest
import torch
import transformers

import attnviz
from attnviz.errors import UsageError

TEXT = {
    "vocab_size": 99, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "max_position_embeddings": 128, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
VISION = {
    "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 3, "num_attention_heads": 4, "image_size": 32,
    "patch_size": 8,
}  # fmt: skip
IDS = torch.arange(5, 13)[None]
PIXELS = torch.randn(1, 3, 32, 32, generator=torch.Generator().manual_seed(0))


@torch.no_grad()
def recorded(model, **given):
    """(trace, first output with and without a recorder)"""
    model.eval()
    plain = model(**given)
    with attnviz.record(model) as trace:
        out = model(**given)
    return trace, out, plain


def build(kind, config):
    torch.manual_seed(0)
    return getattr(transformers, kind)(config)


@torch.no_grad()
def test_clip_has_two_towers():
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=16)
    model = build("CLIPModel", config)
    trace, out, plain = recorded(model, input_ids=IDS, pixel_values=PIXELS)
    assert (out.logits_per_image - plain.logits_per_image).abs().max() < 1e-5
    model.set_attn_implementation("eager")
    own = model(input_ids=IDS, pixel_values=PIXELS, output_attentions=True)
    for part, weights in ((trace, own.text_model_output), (trace.only("vision"), own.vision_model_output)):
        for layer, one in zip(part.layers, weights.attentions, strict=True):
            assert (part.view(layer).tile(slice(None), slice(None)) - one).abs().max() < 1e-5
    assert [str(token) for token in trace.tokens] == [str(n) for n in range(5, 13)]
    assert trace.only("vision").grid == (4, 4)


def test_llava_reads_an_image_into_its_text():
    config = transformers.LlavaConfig(
        text_config=transformers.LlamaConfig(**TEXT, num_key_value_heads=2),
        vision_config=transformers.CLIPVisionConfig(**VISION),
        image_token_index=98,
    )
    ids = torch.cat([torch.full((1, 16), 98), IDS], 1)
    model = build("LlavaForConditionalGeneration", config)
    trace, out, plain = recorded(model, input_ids=ids, pixel_values=PIXELS)
    assert (out.logits - plain.logits).abs().max() < 1e-5
    assert trace[1, 3].shape == (24, 24)
    assert trace.only("vision")[2, 3].shape == (17, 17)
    assert [token.id for token in trace.tokens] == ids[0].tolist()


def test_images_packed_into_one_sequence_do_not_see_each_other():
    config = transformers.Qwen2VLConfig(
        text_config={
            **TEXT,
            "num_key_value_heads": 2,
            "rope_parameters": {"rope_type": "default", "mrope_section": [1, 1, 2], "rope_theta": 1e4},
        },
        vision_config={
            "depth": 2, "embed_dim": 32, "hidden_size": 32, "num_heads": 4, "patch_size": 4, "spatial_merge_size": 2,
            "temporal_patch_size": 2, "mlp_ratio": 2,
        },
        image_token_id=98,
        video_token_id=97,
        vision_start_token_id=96,
        vision_end_token_id=95,
    )  # fmt: skip
    images = [torch.tensor([[96, *[98] * count, 95]]) for count in (4, 6)]
    ids = torch.cat([*images, IDS], 1)
    given = {
        "input_ids": ids,
        "pixel_values": torch.randn(16 + 24, 3 * 2 * 4 * 4),
        "image_grid_thw": torch.tensor([[1, 4, 4], [1, 4, 6]]),
        "mm_token_type_ids": (ids == 98).int(),
    }
    model = build("Qwen2VLForConditionalGeneration", config)
    trace, out, plain = recorded(model, **given)
    assert (out.logits - plain.logits).abs().max() < 1e-5
    vision = trace.only("vision")
    weights = vision.view(1).tile(slice(None), slice(None))
    assert weights.shape == (1, 4, 40, 40)
    assert (weights.sum(-1) - 1).abs().max() < 1e-5
    assert weights[..., :16, 16:].abs().max() == weights[..., 16:, :16].abs().max() == 0
    assert vision.record(1).notes == ("2 sequences that do not see each other, one after another",)


def test_two_models_joined_to_an_encoder_and_a_decoder():
    encoder = transformers.ViTConfig(**VISION)
    decoder = transformers.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=4, n_positions=64, add_cross_attention=True
    )
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)
    model = build("VisionEncoderDecoderModel", config)
    trace, _, _ = recorded(model, pixel_values=PIXELS, decoder_input_ids=IDS)
    assert trace.kinds == ("encoder", "decoder", "cross")
    head = trace.cross[1, 2]
    assert [str(token) for token in head.cols[:3]] == ["[CLS]", "0,0", "0,1"]
    assert [token.id for token in head.rows] == IDS[0].tolist()


def test_a_decoder_that_looks_at_states_from_outside():
    config = transformers.BertConfig(**TEXT, is_decoder=True, add_cross_attention=True)
    states = torch.randn(1, 6, 32)
    trace, _, _ = recorded(build("BertModel", config), input_ids=IDS, encoder_hidden_states=states)
    assert trace.cross[1, 0].shape == (8, 6)
    with pytest.raises(UsageError, match=r'choose one of trace\.only\("self"\), trace\.cross'):
        trace[1, 0]


def test_a_pooling_head_is_beside_the_layers():
    model = build("SiglipVisionModel", transformers.SiglipVisionConfig(**VISION))
    trace, _, _ = recorded(model, pixel_values=PIXELS)
    assert trace[2, 3].shape == (16, 16)
    assert trace.only("pool").record(trace.only("pool").layers[0]).view.shape == (1, 4, 1, 16)


def of_kind(trace, kind):
    part = trace.only(kind)
    return [part.view(layer).tile(slice(None), slice(None)) for layer in part.layers]


@torch.no_grad()
def test_two_towers_that_compute_by_hand_are_both_recorded():
    config = transformers.BlipConfig(text_config={**TEXT, "encoder_hidden_size": 32}, vision_config=VISION)
    trace, _, _ = recorded(build("BlipModel", config), input_ids=IDS, pixel_values=PIXELS)
    own = build("BlipModel", config).eval()(input_ids=IDS, pixel_values=PIXELS, output_attentions=True)
    towers = {"self": own.text_model_output, "vision": own.vision_model_output}
    for kind, out in towers.items():
        found = of_kind(trace, kind)
        assert len(found) == len(out.attentions) > 0
        assert all(torch.equal(one, other) for one, other in zip(found, out.attentions, strict=True))


def test_a_second_stack_that_computes_by_hand_hides_nothing():
    sizes = {name: TEXT[name] for name in ("hidden_size", "intermediate_size", "num_hidden_layers")}
    sizes |= {"num_attention_heads": 4, "image_size": 32, "patch_size": 8, "vocab_size": 99}
    parts = {f"{name}_config": sizes for name in ("text", "image", "multimodal")}
    model = build("FlavaModel", transformers.FlavaConfig(**parts, hidden_size=32, projection_dim=16))
    trace, _, _ = recorded(model, input_ids=IDS, pixel_values=PIXELS)
    assert [len(of_kind(trace, kind)) for kind in trace.kinds] == [2, 2]
    assert trace[1, 0].shape == (8, 8)
    assert [name.split(".")[0] for name in trace.unrecorded] == ["multimodal_model"] * 2


def test_a_pooling_head_with_torch_s_function_is_beside_the_layers_whatever_its_name():
    model = build("Aimv2VisionModel", transformers.Aimv2VisionConfig(**VISION, use_head=True))
    with torch.no_grad():
        model.head.cls_token.normal_()
    trace, out, plain = recorded(model, pixel_values=PIXELS)
    assert (out.pooler_output - plain.pooler_output).abs().max() < 1e-5
    assert trace.layers == (0, 1, 2)
    pooled = trace.only("pool").record(3)
    own = torch.softmax(pooling_scores(model, out.last_hidden_state), -1)
    assert (pooled.view.tile(slice(None), slice(None)) - own).abs().max() < 1e-5


def pooling_scores(model, states):
    """[1, H, 1, N] by the definition of its one query, with four heads of eight."""
    keys = model.head.k_proj(states).reshape(1, -1, 4, 8).transpose(1, 2)
    return model.head.cls_token.reshape(1, 1, 4, 8).transpose(1, 2) @ keys.mT / 8**0.5
