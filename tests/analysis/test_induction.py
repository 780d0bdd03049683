"""Induction heads: the score worked out by hand, and that SmolLM2 copies with the heads that it finds."""

import random

import pytest
import torch
from traces import trace_of

from attnviz.analysis.ablation import ablate
from attnviz.analysis.measures import loss
from attnviz.analysis.roles import _matches, prefix_matching, repeated_tokens
from attnviz.analysis.windows import randomised

LENGTH = 25


def test_prefix_matching_on_the_worked_case():
    """Tokens 5 6 7 5 6 7. Row 3 (the second 5) has its copy at 0, followed by 1; row 4 at 1, row 5 at 2.

    After the copies: 0.7, 0.4 and 0.1, in the mean 0.4; on the copies: 0.1, 0.5 and 0.3, in the mean 0.3.
    """
    rows = [[1.0, 0, 0, 0, 0, 0], [0.5, 0.5, 0, 0, 0, 0], [1.0, 0, 0, 0, 0, 0]]
    rows += [[0.1, 0.7, 0.2, 0, 0, 0], [0.0, 0.5, 0.4, 0.1, 0, 0], [0.0, 0, 0.3, 0.1, 0.6, 0]]
    found = _matches(trace_of([[rows]]), 0, [5, 6, 7, 5, 6, 7], 3)
    assert torch.allclose(found, torch.tensor([[0.4, 0.3]]))


def test_weight_after_every_earlier_copy_is_summed():
    """Row 4 (the third 5) has copies at 0 and 2, followed by columns 1 and 3."""
    rows = [[0.0] * 5 for _ in range(4)] + [[0.1, 0.3, 0.2, 0.4, 0.0]]
    found = _matches(trace_of([[rows]]), 0, [5, 6, 5, 6, 5], 4)
    assert torch.allclose(found, torch.tensor([[0.7, 0.3]]))


@pytest.mark.slow
def test_silencing_the_strongest_induction_heads_stops_the_copying(smollm2):
    """The loss on the second repeat rises far more than without five other heads, drawn ten times; one draw may hold a
    head that all others build on. On the first repeat, where there is nothing to copy, it does not.
    """
    model, tokenizer = smollm2
    table = prefix_matching(model, tokenizer, examples=3).sort_values("prefix_matching", ascending=False)
    assert table["prefix_matching"].iloc[4] > 0.5
    assert prefix_matching(randomised(model), tokenizer, examples=1)["prefix_matching"].max() < 0.1
    heads = [(int(layer), int(head)) for layer, head in zip(table["layer"], table["head"], strict=True)]
    ids = torch.tensor([repeated_tokens(tokenizer, length=LENGTH, repeats=2, seed=seed) for seed in range(90, 94)])
    edge = ids.shape[1] - LENGTH
    second = loss(ids, start=edge + 1)
    strongest = ablate(model, {"input_ids": ids}, heads[:5], second)
    start = ids[:, :edge]
    first = ablate(model, {"input_ids": start}, heads[:5], loss(start))
    draw = random.Random(0)
    others = sorted(ablate(model, {"input_ids": ids}, draw.sample(heads[5:], 5), second).change for _ in range(10))
    print(table.head(5).to_string(index=False), strongest, first, others, sep="\n")
    assert first.before > 2 * strongest.before
    assert first.change < strongest.change / 5
    assert others[8] < strongest.change / 3
