from dataclasses import replace

import pytest
import torch
from shared import shared
from torch import nn
from traces import trace_of

from attnviz.analysis.norms import norms_table, output_projection, value_norms, weighted_norms
from attnviz.errors import RecordingError, UsageError
from attnviz.recording import inspect, record


@pytest.fixture(scope="module")
def traced(minilm):
    return inspect(minilm, "The bank of the river was muddy.", keep="qkv"), minilm[0]


def test_norms_are_those_of_what_a_head_adds(traced):
    """The sum over keys of weight * f(x) is the head's part of the output projection; each f(x) by hand here."""
    trace, model = traced
    dense = model.encoder.layer[3].attention.output.dense.weight
    value = trace.record(3).value[0, 5]
    parts = value @ dense[:, 5 * 32 : 6 * 32].T
    assert torch.allclose(value_norms(trace, model, 3)[5], parts.norm(dim=1), atol=1e-5)
    weights = trace[3, 5].weights()
    wanted = torch.stack([(weights[2, j] * parts[j]).norm() for j in range(len(parts))])
    assert torch.allclose(weighted_norms(trace, model, 3, 5, slice(2, 3), slice(None))[0], wanted, atol=1e-5)


def test_grouped_heads_read_their_group(smollm2):
    model, tokenizer = smollm2
    trace = inspect((model, tokenizer), "The bank of the river", keep="qkv")
    value = trace.record(4).value[0, 2]
    projection = model.model.layers[4].self_attn.o_proj.weight
    assert torch.allclose(
        value_norms(trace, model, 4)[7], (value @ projection[:, 7 * 64 : 8 * 64].T).norm(dim=1), atol=1e-4
    )


def test_special_tokens_take_weight_but_add_little(traced):
    """The finding of Kobayashi et al. for BERT's separator holds for MiniLM's special tokens."""
    table = norms_table(*traced)
    heavy = table[table["special, weight"] > 0.6]
    assert len(heavy) > 10
    assert (heavy["special, norm"] < heavy["special, weight"]).mean() > 0.9


class Plain(nn.Module):
    """A layer whose output projection changes nothing."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.ModuleDict({"attention": nn.ModuleDict({"out": nn.Linear(4, 4, bias=False)})})])
        self.layers[0]["attention"]["out"].weight = nn.Parameter(torch.eye(4))


def test_shares_on_the_worked_case():
    """Head 0: values (3, 4) and (0, 1), norms 5 and 1. Columns get 1 + 0.5 and 0.5: weighted 7.5 and 0.5.

    Head 1: values (0, 2) and (6, 8), norms 2 and 10. Columns get 0.4 and 1.6: weighted 0.8 and 16. Special is token 1.
    """
    trace = trace_of([[[[1.0, 0.0], [0.5, 0.5]], [[0.3, 0.7], [0.1, 0.9]]]], ["a", "[SEP]"])
    value = torch.tensor([[[[3.0, 4], [0, 1]], [[0, 2], [6, 8]]]])
    trace.records = [replace(trace.records[0], value=value, name="layers.0.attention")]
    axis = trace.axes["self"][0]
    tokens = (axis.tokens[0], replace(axis.tokens[1], special=True))
    trace.axes = {"self": (replace(axis, tokens=tokens),)}
    assert value_norms(trace, Plain(), 0).tolist() == [[5.0, 1.0], [2.0, 10.0]]
    found = weighted_norms(trace, Plain(), 0, 1, slice(0, 2), slice(1, 2))
    assert found.flatten().tolist() == pytest.approx([7.0, 9.0])
    one, two = norms_table(trace, Plain()).drop(columns=["layer", "head"]).to_dict("records")
    shares = ("special, weight", "special, norm", "first, weight", "first, norm")
    assert one == pytest.approx(dict(zip(shares, (0.25, 0.5 / 8, 0.75, 7.5 / 8), strict=True)))
    assert two == pytest.approx(dict(zip(shares, (0.8, 16 / 16.8, 0.2, 0.8 / 16.8), strict=True)))


@pytest.mark.parametrize("name", ["gpt2", "distilbert", "bart", "vit", "qwen2", "gpt_neox"])
def test_the_projection_is_found_in_other_architectures(name):
    import sys

    sys.path.insert(0, str(shared("oracle")))
    from architectures import build, inputs

    model = build(name)
    with torch.no_grad(), record(model, keep="qkv") as trace:
        model(**inputs(name))
    for kind in trace.kinds:
        part = trace.only(kind)
        norms = value_norms(part, model, part.layers[0])
        assert norms.shape[0] == part.head_count(part.layers[0])


def test_bad_input(traced, minilm):
    with pytest.raises(UsageError, match='record with keep="qkv"'):
        value_norms(trace_of([[[[1.0]]]]), minilm[0], 0)
    with pytest.raises(RecordingError, match="has no output projection that reads 7 numbers"):
        output_projection(traced[1], "encoder.layer.0.attention.self", 7)
