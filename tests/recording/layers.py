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
