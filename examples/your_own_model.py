"""Three ways to see the attention of a model of your own, from no change at all to one line.

1. Calls of torch's own functions are recorded as they are: nn.MultiheadAttention, nn.TransformerEncoder,
   scaled_dot_product_attention, flex_attention.
2. `attnviz.attention` in place of scaled_dot_product_attention runs on our kernels, also while nothing is recorded.
3. `attnviz.tap` hands over weights that a module computes by hand.

    python examples/your_own_model.py
"""

import torch
from torch import Tensor, nn

import attnviz
from attnviz.trace import Trace

WIDTH, HEADS = 32, 4
SENTENCE = ["the", "small", "boat", "came", "back", "before", "the", "storm"]


class Unchanged(nn.Module):
    """Knows nothing of recording."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.attention(x, x, x, need_weights=False)[0]


class DropIn(nn.Module):
    """Causal attention on our kernels, with soft-capped scores."""

    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        query, key, value = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return x + attnviz.attention(query, key, value, is_causal=True, softcap=20.0).transpose(1, 2).flatten(2)


class ByHand(nn.Module):
    """Mixes positions by their distance alone: no queries, no keys, only weights."""

    def __init__(self) -> None:
        super().__init__()
        self.reach = nn.Parameter(torch.linspace(0.2, 2.0, HEADS))

    def forward(self, x: Tensor) -> Tensor:
        place = torch.arange(x.shape[1], dtype=x.dtype)
        distance = (place[:, None] - place).abs()
        weights = torch.softmax(-distance / self.reach[:, None, None], dim=-1)  # [H, M, N]
        weights = attnviz.tap(weights.expand(len(x), -1, -1, -1), name="mixing")
        return x + (weights @ x.unflatten(-1, (HEADS, -1)).transpose(1, 2)).transpose(1, 2).flatten(2)


def main() -> Trace:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(100, WIDTH), Unchanged(), DropIn(), ByHand())
    ids = torch.randint(100, (1, len(SENTENCE)))
    with torch.no_grad(), attnviz.record(model, tokens=SENTENCE) as trace:
        model(ids)
    print(trace.coverage().to_string(index=False))
    print(trace.heads().round(3).to_string(index=False))
    print("\nhead 0 of the last layer, the strongest links")
    print(trace[trace.layers[-1], 0].links(5).to_string(index=False))
    return trace


if __name__ == "__main__":
    main()
