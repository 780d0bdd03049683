"""Find induction heads, then show that they matter: silence them and watch the model stop copying.

An induction head looks from a token to what followed its earlier occurrence (Olsson et al. 2022). On random tokens that
repeat, nothing else can predict the second half.

    python examples/induction_heads.py [examples]
"""

import random
import sys

import torch

import attnviz
from attnviz.analysis.ablation import ablate
from attnviz.analysis.measures import loss
from attnviz.analysis.roles import prefix_matching, repeated_tokens


def main(examples: int = 4) -> dict[str, float]:
    model, tokenizer = attnviz.load_model("smollm2")
    table = prefix_matching(model, tokenizer, examples=examples).sort_values("prefix_matching", ascending=False)
    print("Prefix matching, the strongest heads:")
    print(table.head(5).to_string(index=False))

    heads = list(zip(table["layer"], table["head"], strict=True))
    strongest = heads[:5]
    others = random.Random(0).sample(heads[5:], 5)
    ids = torch.tensor([repeated_tokens(tokenizer, length=25, repeats=2, seed=99)])
    second = loss(ids, start=ids.shape[1] - 25 + 1)
    effects = {
        "five strongest": ablate(model, {"input_ids": ids}, strongest, second).change,
        "five others": ablate(model, {"input_ids": ids}, others, second).change,
    }
    for name, change in effects.items():
        print(f"silencing the {name}: loss on the second repeat {change:+.2f} nats")
    return effects


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
