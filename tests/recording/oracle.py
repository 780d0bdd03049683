"""Tiny models of many architectures, and what their own eager attention gives."""

import importlib.util
import os
import sys
from functools import cache
from pathlib import Path

import torch
from shared import ROOT, shared

DOZEN = (
    "albert", "bert", "deberta-v2", "diffllama", "gemma2", "gpt_oss", "llama4_text", "longformer", "modernbert",
    "qwen3_next", "t5", "vit",
)  # fmt: skip
"""One of each kind of trap; all the others run where CI is set."""

KINDS = {
    "attentions": "self",
    "encoder_attentions": "encoder",
    "decoder_attentions": "decoder",
    "cross_attentions": "cross",
}


BANDED = {"longformer": "self", "led": "encoder"}
"""Models that return the columns of a window around each token."""


@cache
def architectures():
    path = shared("oracle/architectures.py")
    spec = importlib.util.spec_from_file_location("architectures", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["architectures"] = module
    spec.loader.exec_module(module)
    import transformers

    transformers.logging.set_verbosity_error()
    return module


def names():
    """The architectures to run: a dozen, or all of them where CI is set."""
    if os.environ.get("CI") and Path(ROOT / "oracle/architectures.py").exists():
        return architectures().NAMES
    return DOZEN


def inputs(name, dtype=torch.float32):
    given = architectures().inputs(name)
    return {key: value.to(dtype) if value.is_floating_point() else value for key, value in given.items()}


def build(name, dtype=torch.float32, attention=None, **overrides):
    """A tiny model; mixtures of experts by the plain loop, which works in every dtype."""
    model = architectures().build(name, attention, **overrides).to(dtype)
    if model._can_set_experts_implementation():
        model.set_experts_implementation("eager")
    return model


@torch.no_grad()
def eager(name, dtype=torch.float32, given=None, **overrides):
    """({kind: [weights of each layer that has some]}, last hidden state) of the model's own eager attention."""
    model = build(name, dtype, "eager", **overrides)
    out = model(**(inputs(name, dtype) if given is None else given), output_attentions=True)
    kinds = {}
    for key, kind in KINDS.items():
        found = [one[0] if isinstance(one, tuple) else one for one in out.get(key) or () if one is not None]
        if found:
            kinds[kind] = found
    if "encoder" in kinds:
        kinds.pop("self", None)
    banded = BANDED.get(name)
    if banded:
        kinds[banded] = [from_band(weights) for weights in kinds[banded]]
    return kinds, out[0]


def whole(trace, layer):
    """The recorded map of a layer as eager attention would give it, all heads."""
    names = ("first", "second") if trace.branches(layer) else (None,)
    views = [trace.view(layer, branch) for branch in names]
    return torch.cat([view.tile(slice(None), slice(None)) for view in views], 1)


def from_band(band):
    """[B, H, N, N] from weights [B, H, N, 2 W + 1] of a window around each token, cell by cell."""
    batch, heads, count, width = band.shape
    dense = band.new_zeros(batch, heads, count, count)
    for row in range(count):
        for place in range(width):
            column = row - width // 2 + place
            if 0 <= column < count:
                dense[:, :, row, column] = band[:, :, row, place]
    return dense
