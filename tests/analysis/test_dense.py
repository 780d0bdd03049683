"""Every score that reads a map in bands equals the one from the whole map at once.

The whole map is softmax(scale * q . k) in float64, written out here; bands are made a few rows high, so that scores are
put together from many of them.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close
from traces import make_trace

from attnviz.analysis import compare, gradients, heads, links, roles, sparsity, windows
from attnviz.analysis.compare import compare_heads, compare_traces, head_distances
from attnviz.analysis.flow import reach, received, rollout
from attnviz.analysis.gradients import gradients as gradients_of
from attnviz.analysis.heads import heads_table, is_punctuation
from attnviz.analysis.links import strongest_links
from attnviz.analysis.measures import logit
from attnviz.analysis.roles import positional
from attnviz.analysis.windows import word_rows
from tests.tiny_models import llama

COUNT, LAYERS, HEADS = 41, 2, 3
TEXTS = ["a", ",", "b", "c", "."] * 8 + ["d"]
ROW, COLUMN = torch.arange(COUNT)[:, None], torch.arange(COUNT)[None, :]


@pytest.fixture(autouse=True)
def low_bands(monkeypatch):
    for module in (sparsity, roles, windows):
        monkeypatch.setattr(module, "_BAND", 7)
    for module in (compare, links, gradients):
        monkeypatch.setattr(module, "_CELLS", 7 * COUNT)
    monkeypatch.setattr(heads, "_BLOCK", 7)


@pytest.fixture(params=[False, True], ids=["full", "causal"])
def trace(request):
    found = make_trace(TEXTS, LAYERS, HEADS, causal=request.param, dtype=torch.float64)
    axis = found.axes["self"][0]
    edges = [replace(token, special=place in (0, COUNT - 1)) for place, token in enumerate(axis.tokens)]
    generator = torch.Generator().manual_seed(7)
    value = torch.randn(1, HEADS, COUNT, 5, generator=generator, dtype=torch.float64)
    found.records = [replace(record, value=value) for record in found.records]
    found.axes = {"self": (replace(axis, tokens=tuple(edges)),)}
    return found


def whole(trace, layer):
    """[H, N, N]."""
    view = trace.record(layer).view.view
    scores = view.scale * view.query[0] @ view.key[0].mT
    if view.mask.causal:
        scores = scores.masked_fill(COLUMN > ROW, -math.inf)
    return torch.softmax(scores, -1)


def distance(one, other):
    """Square root of the Jensen-Shannon divergence in bits: the entropy of the middle less the mean entropy."""

    def entropy(p):
        return -torch.xlogy(p, p).sum(-1) / math.log(2)

    return (entropy((one + other) / 2) - (entropy(one) + entropy(other)) / 2).clamp(min=0).sqrt()


def test_heads(trace):
    table = heads_table(trace).set_index(["layer", "head"])
    visible = (ROW + 1 if trace.record(0).view.view.mask.causal else torch.full((COUNT, 1), COUNT))[:, 0].double()
    tokens = trace.tokens
    kinds = {
        "special": torch.tensor([token.special for token in tokens]),
        "punctuation": torch.tensor([is_punctuation(token) for token in tokens]),
    }
    for layer in range(LAYERS):
        for head, weights in enumerate(whole(trace, layer)):
            entropy = -torch.xlogy(weights, weights).sum(1)
            several = visible > 1
            wanted = {
                "entropy": entropy.mean(),
                "entropy_normalised": (entropy[several] / visible[several].log()).mean(),
                "largest": weights.max(1).values.mean(),
                "distance": (weights * (ROW - COLUMN).abs()).sum(1).mean(),
                "own": weights.diagonal().mean(),
                "previous": weights.diagonal(-1).sum() / COUNT,
                "next": weights.diagonal(1).sum() / COUNT,
                "first": weights[:, 0].mean(),
                "sink": torch.tensor(0.0),
            } | {name: weights[:, which].sum(1).mean() for name, which in kinds.items()}
            assert table.loc[(layer, head)].to_dict() == pytest.approx(
                {k: v.item() for k, v in wanted.items()}, abs=1e-9
            )


def test_offsets(trace):
    table = positional(trace).set_index(["layer", "head"])
    for (layer, head), row in table.iterrows():
        weights = whole(trace, layer)[head]
        means = {k: weights.diagonal(k).mean().item() for k in range(-4, 5) if k}
        best = max(means, key=means.__getitem__)
        assert row["offset"] == best
        assert row["weight"] == pytest.approx(means[best], abs=1e-9)
        places = [i for i in range(COUNT) if 0 <= i + best < COUNT]
        assert row["positional"] == pytest.approx(sum(weights[i].argmax() == i + best for i in places) / len(places))


def test_rollout_reach_and_received(trace):
    total = one = torch.eye(COUNT, dtype=torch.float64)
    for layer in range(LAYERS):
        total = (one + whole(trace, layer).mean(0)) / 2 @ total
    assert_close(rollout(trace, 20).scores.double(), total[20], atol=1e-6, rtol=0)
    assert_close(reach(trace, 3).scores.double(), total[:, 3], atol=1e-6, rtol=0)
    taken = torch.stack([whole(trace, layer).mean(0).sum(0) for layer in range(LAYERS)])
    found = torch.tensor(received(trace)["received"].tolist(), dtype=torch.float64).reshape(LAYERS, COUNT)
    assert_close(found, taken, atol=1e-9, rtol=0)


def test_distances(trace):
    one, other = whole(trace, 0)[1], whole(trace, 1)[2]
    assert_close(compare_heads(trace[0, 1], trace[1, 2]).distance, distance(one, other), atol=1e-6, rtol=0)
    maps = torch.cat([whole(trace, layer) for layer in range(LAYERS)])
    places, found = head_distances(trace)
    assert places == tuple((layer, head) for layer in range(LAYERS) for head in range(HEADS))
    wanted = torch.stack([distance(map_[None], maps).mean(1) for map_ in maps])
    assert_close(found, wanted, atol=1e-6, rtol=0)
    again = make_trace(TEXTS, LAYERS, HEADS, causal=trace.record(0).view.view.mask.causal, seed=1, dtype=torch.float64)
    table = compare_traces(trace, again).set_index(["layer", "head"])["distance"]
    assert table[(1, 0)] == pytest.approx(distance(whole(trace, 1)[0], whole(again, 1)[0]).mean().item(), abs=1e-6)


def kept(weights, name):
    """[N, N] bool: what a pattern keeps of a map."""
    apart = (ROW - COLUMN).abs()
    return {
        "local 4": apart < 4,
        "dilated 3": apart % 3 == 0,
        "first 2 + local 3": (COLUMN < 2) | (apart < 3),
        "blocks of 5": ((ROW // 5 - COLUMN // 5).abs() <= 1) | (COLUMN < 5),
        "top 6": weights >= weights.sort(1, descending=True).values[:, 5:6],
    }[name] & (weights > 0)


def test_sparsity(trace):
    patterns = [
        sparsity.local(4), sparsity.dilated(3), sparsity.streaming(2, 3), sparsity.blocks(5), sparsity.top(6)
    ]  # fmt: skip
    weights, value = whole(trace, 1)[2], trace.record(1).value[0, 2]
    exact = weights @ value
    table = sparsity.sparsity(trace[1, 2], patterns).set_index("pattern")
    for name in table.index[:-1]:
        chosen = kept(weights, name)
        left = weights * chosen
        output = left / left.sum(1, keepdim=True) @ value
        wanted = {
            "mass": (left.sum() / COUNT).item(),
            "keys": chosen.sum().item() / (weights > 0).sum().item(),
            "error": ((output - exact).norm() / exact.norm()).item(),
        }
        assert table.loc[name].to_dict() == pytest.approx(wanted, abs=1e-9), name
    view = trace.record(1).view.view
    query, key = (torch.nn.functional.elu(x[0, 2] * view.scale**0.5) + 1 for x in (view.query, view.key))
    linear = query @ key.T * (weights > 0)
    output = linear / linear.sum(1, keepdim=True) @ value
    wanted = ((output - exact).norm() / exact.norm()).item()
    assert table.loc["linear (elu + 1)", "error"] == pytest.approx(wanted, abs=1e-9)


def test_repeated_tokens(trace):
    ids = [token % 9 for token in range(COUNT)]
    found = roles._matches(trace, 1, ids, 9)
    for head, weights in enumerate(whole(trace, 1)):
        copies = [(row, col) for row in range(9, COUNT) for col in range(row) if ids[row] == ids[col]]
        after = sum(weights[row, col + 1] for row, col in copies).item() / (COUNT - 9)
        on = sum(weights[row, col] for row, col in copies).item() / (COUNT - 9)
        assert found[head].tolist() == pytest.approx([after, on], abs=1e-6)


def test_words(trace):
    # 13 words of three tokens, the first and the last token in none
    owners = (-1, *(place // 3 for place in range(COUNT - 2)), -1)
    asked = [12, 0, 5]
    found = word_rows(trace.view(0), owners, asked, 13)
    for head, weights in enumerate(whole(trace, 0)):
        for place, word in enumerate(asked):
            rows = weights[1 + 3 * word : 4 + 3 * word]
            wanted = [rows[:, 1 + 3 * other : 4 + 3 * other].sum(1).mean().item() for other in range(13)]
            assert found[head, place].tolist() == pytest.approx(wanted, abs=1e-6)


def test_links(trace):
    weights = whole(trace, 0)[1]
    found = strongest_links(trace[0, 1], 30)
    order = weights.flatten().argsort(descending=True, stable=True)[:30].tolist()
    assert found[["row", "column"]].values.tolist() == [list(divmod(place, COUNT)) for place in order]
    assert found["weight"].tolist() == pytest.approx(weights.flatten()[order].tolist(), abs=1e-9)


def test_gradients():
    model = llama().double()
    ids = torch.randint(0, 50, (1, COUNT), generator=torch.Generator().manual_seed(5))
    found = gradients_of(model, {"input_ids": ids}, logit(7))
    model.set_attn_implementation("eager")
    output = model(input_ids=ids, output_attentions=True)
    given = torch.autograd.grad(logit(7)(output), output.attentions)
    one = total = torch.eye(COUNT, dtype=torch.float64)
    for layer, (weights, gradient) in enumerate(zip(output.attentions, given, strict=True)):
        product = (weights * gradient)[0].detach()
        for head, link in enumerate(product):
            assert_close(found.attention_gradient(layer, head), link, atol=1e-9, rtol=0)
            assert_close(found.received(layer, head), link.sum(0), atol=1e-9, rtol=0)
        total = total + product.clamp(min=0).mean(0) @ total
    for token in (-1, 11):
        assert_close(found.relevance(token).scores.double(), (total - one)[token], atol=1e-6, rtol=1e-5)
