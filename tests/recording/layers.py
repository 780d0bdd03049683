"""Small models of torch's own functions, to be recorded."""

import torch
from torch import nn
from torch.nn import functional as F

import attnviz

B, M, D = 2, 5, 8


def randn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


class Layer(nn.Module):
    """Causal self attention with one head and as many calls as asked for."""

    def __init__(self, calls=1):
        super().__init__()
        self.qkv, self.calls = nn.Linear(D, 3 * D), calls

    def forward(self, x):
        query, key, value = (part[:, None] for part in self.qkv(x).chunk(3, -1))
        found = [F.scaled_dot_product_attention(query * (1 + n), key, value, is_causal=True) for n in range(self.calls)]
        return x + sum(found)[:, 0]


class Call(nn.Module):
    """One call of a function in a module of its own."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args, **kwargs):
        return self.function(*args, **kwargs)


def stack(depth=3, calls=1, shared=False):
    torch.manual_seed(0)
    layers = [Layer(calls)] * depth if shared else [Layer(calls) for _ in range(depth)]
    return nn.Sequential(nn.Linear(D, D), nn.Sequential(*layers), nn.LayerNorm(D))


def weights_of(trace, layer=0, branch=None):
    return trace.record(layer, branch).view.tile(slice(None), slice(None))


def recorded(model, *args, **options):
    with attnviz.record(model, **options) as trace:
        model(*args)
    return trace


def defined_weights(query, key, attn_mask=None, is_causal=False, scale=None):
    """What the documentation of scaled_dot_product_attention defines, in float64; queries that see nothing give 0."""
    query, key = query.double(), key.double()
    if query.dim() > 3 and query.shape[-3] != key.shape[-3] and key.shape[-3] > 1:
        key = key.repeat_interleave(query.shape[-3] // key.shape[-3], -3)
    score = query @ key.transpose(-1, -2) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if is_causal:
        attn_mask = torch.ones(score.shape[-2:], dtype=torch.bool).tril()
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        score = score.masked_fill(~attn_mask, -torch.inf)
    elif attn_mask is not None:
        score = score + attn_mask
    return torch.softmax(score, -1).nan_to_num(0)
