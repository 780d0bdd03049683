"""Traces of random queries, keys and values, padded and batched as asked, for what must not change a score."""

import torch

from attnviz.head import Record
from attnviz.tokens import Token, TokenAxis
from attnviz.trace import Trace
from attnviz.views import QueryKey
from attnviz_kernels import Emit, Mask, attend, check, view_of

HEADS, SIZE = 2, 4
WORDS = ("Ann", "met", "Bo", ".", "She", "smiled", ",", "he", "too")


def numbers(seed, count):
    """Two layers of (query, key, value), each [H, N, D] in float64."""
    generator = torch.Generator().manual_seed(seed)
    return [
        tuple(torch.randn(HEADS, count, SIZE, generator=generator, dtype=torch.float64) * 1.5 for _ in range(3))
        for _ in range(2)
    ]


def tokens_of(count):
    """Labels with offsets into the words joined by spaces, between two special tokens."""
    inside, place = [], 0
    for index, word in enumerate(WORDS[: count - 2]):
        inside.append(Token(index, word, word, place, place + len(word)))
        place += len(word) + 1
    edges = [Token(None, name, name, special=True) for name in ("[CLS]", "[SEP]")]
    return (edges[0], *inside, edges[1])


def trace_of(texts, causal=False, dtype=torch.float64, left=0, right=0):
    """A trace of a batch: texts are (layers, tokens), padded to one length and by left and right columns of noise."""
    width = max(len(tokens) for _, tokens in texts)
    axes, real = [], torch.zeros(len(texts), left + width + right, dtype=torch.bool)
    for index, (_, tokens) in enumerate(texts):
        valid = slice(left + width - len(tokens), left + width)
        real[index, valid] = True
        pad = Token(None, "[PAD]", "[PAD]", special=True)
        text = " ".join(token.text for token in tokens if not token.special)
        axes.append(TokenAxis((pad,) * valid.start + tokens + (pad,) * right, valid, text))
    mask = Mask(causal=causal, key_padding=None if bool(real.all()) else real)
    records = [record(layer, [layers[layer] for layers, _ in texts], axes, mask, dtype) for layer in range(2)]
    return Trace("random", records, {"self": tuple(axes)})


def record(layer, given, axes, mask, dtype):
    padded = [
        torch.stack([around(parts[side], axis) for parts, axis in zip(given, axes, strict=True)]).to(dtype)
        for side in range(3)
    ]
    call = check(*padded, None, mask, None, None, None, Emit())
    found = attend(*padded, mask=mask, emit=Emit(statistics=True))
    name = f"layers.{layer}.attention"
    view = QueryKey(view_of(call, found))
    return Record(name, layer, "self", "interface", "", view, statistics=found.statistics, value=padded[2])


def around(part, axis):
    """[H, N, D] with noise where the axis has padding."""
    whole = torch.full((HEADS, len(axis.tokens), SIZE), 7.0, dtype=part.dtype)
    whole[:, axis.valid] = part
    return whole
