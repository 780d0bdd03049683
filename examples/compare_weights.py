"""What did fine-tuning change? Compare every head of a model before and after a few steps of training.

python examples/compare_weights.py [steps]
"""

import copy
import sys

import pandas as pd
import torch

import attnviz
from attnviz.analysis.compare import compare_heads, compare_traces

PAIRS = [
    ("a muddy bank", "the side of a river"),
    ("a savings bank", "a house for money"),
    ("a loud crane", "a tall bird"),
]
TEXT = "The crane stood on the bank of the river."


def tune(model: torch.nn.Module, tokenizer, steps: int) -> torch.nn.Module:
    """A copy trained to give each pair of texts the same mean state."""
    tuned = copy.deepcopy(model).train()
    optimizer = torch.optim.AdamW(tuned.parameters(), lr=5e-5)
    for step in range(steps):
        states = tuned(**tokenizer(list(PAIRS[step % len(PAIRS)]), return_tensors="pt", padding=True)).last_hidden_state
        loss = 1 - torch.cosine_similarity(states[0].mean(0), states[1].mean(0), dim=0)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return tuned.eval()


def main(steps: int = 12) -> pd.DataFrame:
    model, tokenizer = attnviz.load_model("minilm")
    before = attnviz.inspect((model, tokenizer), TEXT)
    after = attnviz.inspect((tune(model, tokenizer, steps), tokenizer), TEXT)
    table = compare_traces(before, after)
    print("The heads whose maps moved most (Jensen-Shannon distance, 0 to 1):")
    print(table.head(5).to_string())
    layer, head = int(table["layer"][0]), int(table["head"][0])
    print(f"\nRow by row for layer {layer}, head {head}:")
    print(compare_heads(before[layer, head], after[layer, head]).table().head(3).to_string())
    return table


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
