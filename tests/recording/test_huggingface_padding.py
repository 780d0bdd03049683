"""Batches with padding: real rows are those of eager attention, padding is left out of maps, labels and means."""

import pytest
import torch
from recording.oracle import build, eager, inputs, names, whole

import attnviz

NO_TEXT = ("vit", "deit", "dinov2", "beit", "clip_vision_model", "siglip_vision_model", "whisper")
REFUSED = ("mamba", "nystromformer", "swin")


def padded(name, side):
    """Two sequences of 12 and 8 tokens, the short one filled up on a side; the mask says which tokens are real."""
    given = inputs(name)
    ids = given["input_ids"].repeat(2, 1)
    real = torch.ones_like(ids)
    hidden = slice(0, 4) if side == "left" else slice(ids.shape[1] - 4, None)
    ids[1, hidden], real[1, hidden] = 0, 0
    rest = {key: value.repeat(2, 1) for key, value in given.items() if key != "input_ids"}
    return {"input_ids": ids, "attention_mask": real, **rest}


@pytest.mark.parametrize("name", [name for name in names() if name not in NO_TEXT + REFUSED])
@pytest.mark.parametrize("side", ["left", "right"])
@torch.no_grad()
def test_real_tokens_are_those_of_eager_attention(name, side):
    given = padded(name, side)
    own, hidden = eager(name, given=given)
    model = build(name)
    with attnviz.record(model) as trace:
        out = model(**given)[0]
    real = given["attention_mask"][1].bool()
    for kind, layers in own.items():
        part = trace.only(kind).sequence(1)
        rows = real if kind in ("self", "encoder") else torch.ones(layers[0].shape[2], dtype=torch.bool)
        cols = rows if kind != "cross" else real
        for layer, weights in zip(part.layers, layers, strict=True):
            # T5's scores are in the hundreds: in float32 its eager weights are exact to 5e-4
            bound = 1e-3 if name == "t5" else 1e-5
            assert (whole(part, layer) - weights[1:2, :, rows][..., cols]).abs().max() < bound
    if "decoder" not in own:
        assert len(trace.sequence(1).tokens) == int(real.sum())
        assert (out[1][real] - hidden[1][real]).abs().max() < 2e-5 * hidden.abs().max()
        assert trace.sequence(1).heads()["largest"].notna().all()


@torch.no_grad()
def test_statistics_count_from_the_first_real_token():
    model = build("llama")
    with attnviz.record(model) as trace:
        model(**padded("llama", "left"))
    head = trace.sequence(1)[2, 1]
    weights = head.weights()
    assert torch.equal(head.statistics.largest_key, weights.argmax(-1))
    assert torch.allclose(head.statistics.first, weights[:, 0], atol=1e-6)
    assert torch.allclose(head.entropy, -torch.xlogy(weights, weights).sum(-1), atol=1e-5)


@torch.no_grad()
def test_packed_sequences_do_not_see_each_other():
    given = {**inputs("qwen3"), "position_ids": torch.tensor([[*range(5), *range(7)]]), "use_cache": False}
    own, _ = eager("qwen3", torch.float64, given)
    model = build("qwen3", torch.float64)
    with attnviz.record(model) as trace:
        model(**given)
    for layer, weights in zip(trace.layers, own["self"], strict=True):
        found = trace.record(layer).view
        assert (whole(trace, layer) - weights).abs().max() < 1e-6
        assert found.visible()[0, 0].tolist() == [1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 6, 7]
