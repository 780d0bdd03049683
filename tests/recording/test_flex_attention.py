"""Rung 2 in flex_attention: structure where there is some, dense weights where a function changes scores."""

import pytest
import torch
from recording.layers import Call, defined_weights, randn, weights_of
from torch.nn.attention import flex_attention as flex

import attnviz
from attnviz.errors import BudgetError

B, H, G, D = 2, 4, 2, 8

UNCOMPILED = pytest.mark.filterwarnings("ignore:flex_attention called without")


@UNCOMPILED
def test_flex_attention_with_mask_functions():
    query, key = randn(B, H, 40, D), randn(B, G, 40, D, seed=1)
    document = torch.arange(40) // 16

    def same_document(b, h, i, j):
        return (document[i] == document[j]) & (i >= j)

    model = Call(flex.flex_attention)
    masks = {
        "none": (None, torch.ones(40, 40, dtype=torch.bool)),
        "causal": (lambda b, h, i, j: i >= j, torch.ones(40, 40, dtype=torch.bool).tril()),
        "documents": (same_document, (document[:, None] == document) & torch.ones(40, 40, dtype=torch.bool).tril()),
        "head": (
            lambda b, h, i, j: (i >= j) | (h == 1),
            torch.stack([torch.ones(40, 40).tril(), torch.ones(40, 40)]).bool(),
        ),
    }
    for name, (function, seen) in masks.items():
        heads = 2 if name == "head" else None
        block = None if function is None else flex.create_block_mask(function, None, heads, 40, 40, device="cpu")
        queries = query[:, :heads]
        plain = model(queries, key, key, block_mask=block, enable_gqa=True)
        with attnviz.record(model) as trace:
            output = model(queries, key, key, block_mask=block, enable_gqa=True)
        torch.testing.assert_close(output, plain, atol=2e-6, rtol=0)
        torch.testing.assert_close(weights_of(trace).double(), defined_weights(queries, key, seen), atol=1e-6, rtol=0)
        if name in ("none", "causal"):
            assert trace.record(0).view.view.mask.dense is None


@UNCOMPILED
def test_flex_attention_with_a_score_function_and_more_outputs():
    query, slopes = randn(B, H, 20, D), torch.tensor([0.5, 0.2, 0.1, 0.0])

    def alibi(score, b, h, i, j):
        return score + slopes[h] * (j - i)

    model = Call(flex.flex_attention)
    plain, more = model(query, query, query, score_mod=alibi, return_aux=flex.AuxRequest(lse=True))
    with attnviz.record(model) as trace:
        output, heard = model(query, query, query, score_mod=alibi, return_aux=flex.AuxRequest(lse=True))
    torch.testing.assert_close((output, heard.lse), (plain, more.lse), atol=1e-6, rtol=0)
    place = torch.arange(20.0)
    want = defined_weights(query, query, slopes[:, None, None] * (place[None, :] - place[:, None]))
    torch.testing.assert_close(weights_of(trace).double(), want, atol=1e-6, rtol=0)
    with attnviz.record(model):
        output, heard = model(query, query, query, return_aux=flex.AuxRequest(lse=True))
    plain, more = model(query, query, query, return_aux=flex.AuxRequest(lse=True))
    torch.testing.assert_close((output, heard.lse), (plain, more.lse), atol=1e-6, rtol=0)


@UNCOMPILED
def test_flex_attention_beyond_the_budget():
    query = randn(1, 1, 500, D)
    model = Call(flex.flex_attention)
    with pytest.raises(BudgetError, match=r"the budget is 97\.7 KiB"), attnviz.record(model, budget=100_000):
        model(query, query, query, score_mod=lambda score, b, h, i, j: score * 2)
