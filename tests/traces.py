"""Small traces made without any model: random queries and keys through the blockwise kernel."""

import torch

from attnviz.head import Record
from attnviz.tokens import Token, TokenAxis
from attnviz.trace import Trace
from attnviz.views import Dense, QueryKey
from attnviz_kernels import Emit, Mask, attend, check, view_of


def make_trace(
    texts=("The", "bank", "of", "the", "river"), layers=2, heads=3, causal=False, batch=1, seed=0, dtype=torch.float32
):
    """A trace of `layers` x `heads` over the given token texts, joined by single spaces."""
    generator = torch.Generator().manual_seed(seed)
    count = len(texts)
    records = []
    for layer in range(layers):
        query, key, value = (torch.randn(batch, heads, count, 8, generator=generator).to(dtype) for _ in range(3))
        call = check(query * 3, key, value, None, Mask(causal=causal), None, None, None, Emit())
        attended = attend(call.query, key, value, mask=call.mask, emit=Emit(statistics=True), backend="reference")
        view = QueryKey(view_of(call, attended))
        records.append(
            Record(
                f"layers.{layer}.attention",
                layer,
                "self",
                "interface",
                "reference",
                view,
                statistics=attended.statistics,
            )
        )
    axis = make_axis(texts)
    return Trace("tiny", records, {"self": (axis,) * batch})


def make_axis(texts):
    """Labels with offsets into the texts joined by spaces."""
    tokens, place = [], 0
    for index, text in enumerate(texts):
        tokens.append(Token(index, text, text, place, place + len(text)))
        place += len(text) + 1
    return TokenAxis(tuple(tokens), slice(0, len(tokens)), " ".join(texts))


def trace_of(weights, texts=None):
    """A trace with the given weights [layers][heads][rows][cols] and labels."""
    layers = [torch.tensor(layer, dtype=torch.float32)[None] for layer in weights]
    records = [
        Record(f"layers.{index}", index, "self", "output_attentions", "", Dense(layer))
        for index, layer in enumerate(layers)
    ]
    texts = texts or [str(index) for index in range(layers[0].shape[-1])]
    return Trace("given", records, {"self": (make_axis(texts),)})
