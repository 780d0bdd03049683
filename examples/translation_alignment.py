"""An encoder-decoder learns to write numbers in digits, and its cross-attention shows which word each digit is from.

"seven hundred forty two" becomes 7 4 2. The digit 4 can only come from "forty", so we know where attention ought to
look, and can measure how often it does. Takes about a minute on two cores.

    python examples/translation_alignment.py [steps [numbers.attn]]

With a second argument the run is kept, for the dashboard's page Alignment: attnviz dashboard numbers.attn
"""

import random
import sys

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import attnviz

ONES = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
TENS = ["-", "-", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
WORDS = [*ONES, *TEENS, *TENS[2:], "hundred", "thousand", "<end>"]
START, END = 10, 11
LARGEST, LONGEST = 9999, 8


def spell(number: int) -> list[tuple[str, int]]:
    """The words of a number from 1 to 9999, each with the power of ten that it stands at."""
    parts = [(ONES[number // 1000], 3), ("thousand", 3)] if number >= 1000 else []
    rest = number % 1000
    if rest >= 100:
        parts += [(ONES[rest // 100], 2), ("hundred", 2)]
    rest %= 100
    if 10 <= rest < 20:
        return [*parts, (TEENS[rest - 10], 1)]
    if rest >= 20:
        parts.append((TENS[rest // 10], 1))
    return parts + [(ONES[rest % 10], 0)] * (rest % 10 > 0)


def source(number: int) -> list[int]:
    return [*(WORDS.index(word) for word, _ in spell(number)), WORDS.index("<end>")]


def digits(number: int) -> list[int]:
    return [int(digit) for digit in str(number)]


def gold(number: int) -> list[tuple[int, int]]:
    """(digit, word) for every digit that a word of its own stands for; zeros have none, "seventeen" has two."""
    words, links = spell(number), []
    for place, digit in enumerate(digits(number)):
        power = len(str(number)) - 1 - place
        teen = any(word in TEENS for word, _ in words) and power < 2
        for position, (word, at) in enumerate(words):
            if word not in ("hundred", "thousand") and at == (1 if teen else power) and (digit or teen):
                links.append((place, position))
    return links


class Attention(nn.Module):
    """Two heads from x [B, M, C] to memory [B, N, C]."""

    def __init__(self, width: int, heads: int = 2) -> None:
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))

    def forward(self, x: Tensor, memory: Tensor, seen: Tensor | None = None, causal: bool = False) -> Tensor:
        parts = self.query(x), self.key(memory), self.value(memory)
        query, key, value = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in parts)
        output = attnviz.attention(query, key, value, attn_mask=seen, is_causal=causal)
        return self.out(output.transpose(1, 2).flatten(2))


class Layer(nn.Module):
    """One layer of an encoder, or of a decoder when it is given a memory."""

    def __init__(self, width: int, decodes: bool) -> None:
        super().__init__()
        self.self_attention = Attention(width)
        self.cross_attention = Attention(width) if decodes else None
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))

    def forward(self, x: Tensor, seen: Tensor, memory: Tensor | None = None) -> Tensor:
        normed = self.norms[0](x)
        if self.cross_attention is None:
            x = x + self.self_attention(normed, normed, seen)
        else:
            x = x + self.self_attention(normed, normed, causal=True)
            x = x + self.cross_attention(self.norms[1](x), memory, seen)
        return x + self.feed(self.norms[2](x))


class Translator(nn.Module):
    """Words [B, N] and digits so far [B, M] to scores of the next digit [B, M, 12]."""

    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.words, self.digits = nn.Embedding(len(WORDS), width), nn.Embedding(12, width)
        self.places = nn.Embedding(LONGEST, width)
        self.encoder, self.decoder = Layer(width, decodes=False), Layer(width, decodes=True)
        self.norm, self.scores = nn.LayerNorm(width), nn.Linear(width, 12)

    def forward(self, words: Tensor, so_far: Tensor) -> Tensor:
        seen = (words >= 0)[:, None, None]
        memory = self.words(words.clamp(min=0)) + self.places.weight[: words.shape[1]]
        memory = self.encoder(memory, seen)
        x = self.digits(so_far) + self.places.weight[: so_far.shape[1]]
        return self.scores(self.norm(self.decoder(x, seen, memory)))


def batch_of(numbers: list[int]) -> tuple[Tensor, Tensor]:
    """Words [B, 8], -1 where there are none, and digits between start and end, [B, 6]."""
    words = [(source(number) + [-1] * LONGEST)[:LONGEST] for number in numbers]
    targets = [[START, *digits(number), *[END] * 5][:6] for number in numbers]
    return torch.tensor(words), torch.tensor(targets)


def train(model: Translator, steps: int, chance: random.Random) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, total_steps=steps)
    for step in range(steps):
        words, targets = batch_of([chance.randint(1, LARGEST) for _ in range(128)])
        loss = F.cross_entropy(model(words, targets[:, :-1]).flatten(0, 1), targets[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        if step % 200 == 0 or step == steps - 1:
            print(f"step {step:5d}   loss {loss.item():.4f}")


@torch.no_grad()
def evaluate(model: Translator, numbers: list[int]) -> tuple[float, float]:
    """How many numbers are written without a mistake, and how many digits attend most to their word.

    The weights are those of the row that chooses the digit, as the mean of both heads.
    """
    words, targets = batch_of(numbers)
    with attnviz.record(model) as trace:
        guesses = model(words, targets[:, :-1]).argmax(-1)
    right = (guesses == targets[:, 1:]).all(1).float().mean().item()
    hits = []
    for index, number in enumerate(numbers):
        cross = trace.sequence(index).cross
        best = (cross[0, 0].weights() + cross[0, 1].weights()).argmax(1)
        hits += [int(best[digit]) == word for digit, word in gold(number)]
    return right, sum(hits) / len(hits)


@torch.no_grad()
def show(model: Translator, number: int, path: str | None) -> None:
    """Print which share of the cross-attention each digit gives to each word, and keep the run if a path is given."""
    words, targets = batch_of([number])
    names = [word for word, _ in spell(number)] + ["<end>"]
    count = len(str(number))
    with attnviz.record(model, tokens={"encoder": names, "decoder": [*map(str, digits(number))]}) as trace:
        model(words[:, : len(names)], targets[:, :count])
    if path is not None:
        trace.save(path)
        links = " ".join(f"{word}-{digit}" for digit, word in gold(number))
        print(f'\nkept in {path}; its rows are named by the digit they choose ("Row of the word"), gold links {links}')
    weights = sum(head.weights() for head in trace.cross.every_head()) / 2
    print("\n" + " " * 6 + "".join(f"{name:>10}" for name in names))
    for row, token in enumerate(trace.cross[0, 0].rows):
        print(f"{token.text:>6}" + "".join(f"{share:>10.0%}" for share in weights[row]))


def main(steps: int = 1200, path: str | None = None) -> tuple[float, float]:
    torch.manual_seed(0)
    model, chance = Translator(), random.Random(0)
    train(model, steps, chance)
    right, aligned = evaluate(model.eval(), [chance.randint(1, LARGEST) for _ in range(300)])
    print(f"\nnumbers written right {right:.1%}, digits that attend most to their word {aligned:.1%}")
    show(model, 7342, path)
    return right, aligned


if __name__ == "__main__":
    steps, *path = sys.argv[1:] or ["1200"]
    right, aligned = main(int(steps), *path)
    assert right > 0.98, "the model did not learn to write numbers"
    assert aligned > 0.9, "its cross-attention does not point at the words"
