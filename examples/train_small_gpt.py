"""A small GPT learns two paragraphs by heart, and its heads are watched while it trains.

Attention that puts all its weight on one key has an entropy of zero. When that happens to many heads at once, the
scores have grown out of bounds and training is lost (entropy collapse, Zhai et al. 2023, arXiv 2303.06296). Recording
one batch now and then shows it coming. Takes about a minute on two cores.

    python examples/train_small_gpt.py [steps] [learning rate]      # try a learning rate of 0.3
"""

import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnviz

TEXT = """\
The lighthouse keeper wrote down the weather every evening, in the same blue book his mother had used. Wind from
the west, rain after four, one ship far out. He did not think that anyone would read it. But the book grew, and with it
a habit of looking: he began to notice that gulls sat lower on the wall before a storm, and that the old pump sounded
hollow when the tide was about to turn.

Years later a girl from the village found the books in a chest. She read about gulls and pumps and ships, and drew the
storms on squared paper, one line for every evening. On her paper the winters looked like mountains and the summers like
a quiet road. She hung the drawing in the school, and the children learned to say when it would rain.
"""
CHARACTERS = sorted(set(TEXT))
CONTEXT = 64
COLLAPSED = 0.02
"""A head's mean entropy below this share of the largest possible one counts as collapsed."""


class Block(nn.Module):
    """Causal self attention and a feed-forward part, both added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        parts = self.qkv(self.norms[0](x)).chunk(3, dim=-1)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        x = x + self.out(attnviz.attention(query, key, value, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.feed(self.norms[1](x))


class SmallGPT(nn.Module):
    """Characters [B, M] to scores of the next character [B, M, C]."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 3) -> None:
        super().__init__()
        self.characters, self.places = nn.Embedding(len(CHARACTERS), width), nn.Embedding(CONTEXT, width)
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, len(CHARACTERS))

    def forward(self, ids: Tensor) -> Tensor:
        x = self.characters(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.scores(self.norm(x))


@dataclass
class Report:
    """What a training run left: the last loss, the heads' mean entropy at each look, and where it was stopped."""

    loss: float = float("nan")
    entropies: list[float] = field(default_factory=list)
    stopped_at: int | None = None


def encode(text: str) -> Tensor:
    return torch.tensor([CHARACTERS.index(character) for character in text])


@torch.no_grad()
def entropies(model: SmallGPT, ids: Tensor) -> Tensor:
    """[layers, heads]: each head's mean entropy on one sequence, as a share of the largest possible."""
    with attnviz.record(model, keep="statistics") as trace:
        model(ids)
    places = torch.arange(1, ids.shape[1])  # the first character sees only itself
    limits = torch.log(places + 1.0)
    heads = [(head.entropy[places] / limits).mean() for head in trace.every_head()]
    return torch.stack(heads).reshape(len(trace.layers), -1)


def train(model: SmallGPT, steps: int, learning_rate: float, every: int = 50) -> Report:
    """Train until the steps are done or half of the heads have collapsed."""
    ids, report = encode(TEXT), Report()
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
    windows = ids.unfold(0, CONTEXT + 1, 1)
    for step in range(steps):
        batch = windows[torch.randint(len(windows), (16,))]
        loss = F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        report.loss = loss.item()
        if step % every == 0 or step == steps - 1:
            shares = entropies(model, windows[:1, :-1])
            report.entropies.append(shares.mean().item())
            collapsed = int((shares < COLLAPSED).sum())
            print(
                f"step {step:5d}   loss {report.loss:7.3f}   entropy {shares.mean():.2f}   collapsed heads {collapsed}"
            )
            if collapsed > shares.numel() / 2:
                print("half of the heads look at one key only: stopped; lower the learning rate")
                report.stopped_at = step
                break
    return report


@torch.no_grad()
def write(model: SmallGPT, start: str, count: int) -> str:
    """Continue a text with the likeliest characters."""
    ids = encode(start)[None]
    for _ in range(count):
        following = model(ids[:, -CONTEXT:])[:, -1].argmax(-1, keepdim=True)
        ids = torch.cat([ids, following], 1)
    return "".join(CHARACTERS[index] for index in ids[0])


def main(steps: int = 600, learning_rate: float = 2e-3) -> Report:
    torch.manual_seed(0)
    model = SmallGPT()
    report = train(model, steps, learning_rate)
    if report.stopped_at is None:
        print("\n" + write(model, "The lighthouse keeper ", 100))
    return report


if __name__ == "__main__":
    main(*(kind(word) for kind, word in zip((int, float), sys.argv[1:], strict=False)))
