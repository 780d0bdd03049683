"""Every architecture: the trace equals the model's own eager attention, or the model is refused before it runs."""

import pytest
import torch
from recording.oracle import architectures, build, eager, inputs, names, whole

import attnviz
from attnviz.errors import RecordingError

REFUSED = {
    "mamba": "MambaModel has no attention to record: .* its 2 layers are linear attention or state space",
    "nystromformer": "attends to 4 landmarks instead of tokens, so its columns have no labels",
    "swin": "SwinModel has no attention to record: .* attends inside windows cut from the image",
}
RECORDED = [name for name in names() if name not in REFUSED]


@torch.no_grad()
def record(name, dtype=torch.float32, **options):
    model = build(name, dtype)
    with attnviz.record(model, **options) as trace:
        out = model(**inputs(name, dtype))[0]
    return trace, out


def differences(name, trace, own):
    """The largest difference of each kind; a kind or layer that is missing fails."""
    found = {}
    for kind, layers in own.items():
        part = trace.only(kind)
        assert len(part.layers) == len(layers)
        pairs = zip(part.layers, layers, strict=True)
        found[kind] = max((whole(part, layer) - weights).abs().max().item() for layer, weights in pairs)
    return found


@pytest.mark.parametrize("name", RECORDED)
def test_the_map_is_that_of_eager_attention(name):
    own, hidden = eager(name, torch.float64)
    trace, out = record(name, torch.float64)
    assert set(trace.kinds) - {"pool"} == set(own)
    # several models compute their softmax in float32 whatever their dtype, and random scores make the most of it
    assert max(differences(name, trace, own).values()) < 1e-4
    assert (out - hidden).abs().max() < 1e-5 * hidden.abs().max()


@pytest.mark.parametrize("name", RECORDED)
def test_float32_is_as_exact_as_eager_attention(name):
    own, hidden = eager(name)
    exact, exact_hidden = eager(name, torch.float64)
    trace, out = record(name)
    for kind, found in differences(name, trace, own).items():
        rounding = max((a - b).abs().max().item() for a, b in zip(own[kind], exact[kind], strict=True))
        assert found <= 1e-5 + 3 * rounding
    assert (out - hidden).abs().max() <= 1e-5 * hidden.abs().max() + 3 * (hidden - exact_hidden).abs().max()


@pytest.mark.parametrize("refused", REFUSED)
def test_refused_before_anything_ran(refused):
    model = architectures().build(refused)
    ran = []
    model.register_forward_pre_hook(lambda *_: ran.append(True))
    with pytest.raises(RecordingError, match=REFUSED[refused]), attnviz.record(model):
        model(**inputs(refused))
    assert not ran


@pytest.mark.parametrize("name", RECORDED)
def test_the_model_is_as_it_was(name):
    from transformers import AttentionInterface, AttentionMaskInterface

    model = build(name)
    with torch.no_grad():
        model(**inputs(name))  # transformers sets some class attributes at first use
    before = state(model, AttentionInterface, AttentionMaskInterface)
    with torch.no_grad(), attnviz.record(model):
        model(**inputs(name))
    assert state(model, AttentionInterface, AttentionMaskInterface) == before


def state(model, *registries):
    """All that a recording could leave behind: configuration, hooks, attributes of objects and classes, registries."""
    modules = list(model.modules())
    return {
        "configs": [str(part.config) for part in modules if hasattr(part, "config")],
        "implementations": [part.config._attn_implementation for part in modules if hasattr(part, "config")],
        "hooks": [(len(part._forward_hooks), len(part._forward_pre_hooks)) for part in modules],
        "attributes": [sorted(part.__dict__) for part in modules],
        "classes": [sorted(vars(kind)) for kind in {type(part) for part in modules}],
        "registries": [dict(registry._global_mapping) for registry in registries],
    }
