"""Ablation, knock-out, importance and attention gradients on a model whose numbers can be worked out by hand.

One layer with two heads of size 2. Queries are 0, so that each token attends equally to those up to itself; values are
the embeddings, whose entries are 1 and -1 so that norms change nothing. The measure is w . h of the last token,
h = embedding + what the heads write:

    token 0   ( 1  1 | 1  1)        w = (1 2 | 3 4)
    token 1   ( 1 -1 | 1 -1)        heads at the last token: the mean of all three, (1/3 -1/3 | 1 1/3)
    token 2   (-1 -1 | 1  1)        w . h = (-1 - 2 + 3 + 4) + (1/3 - 2/3) + (3 + 4/3) = 4 - 1/3 + 13/3 = 8
"""

import pytest
import torch

from attnviz.analysis.ablation import ablate, ablate_each, knock_out
from attnviz.analysis.attention_paths import integrated_attention
from attnviz.analysis.gradients import gradients
from attnviz.errors import UsageError

EMBEDDINGS = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [-1, -1, 1, 1]])
INPUTS = {"input_ids": torch.tensor([[0, 1, 2]])}


def near(wanted):
    return pytest.approx(wanted, abs=1e-5)


def measure(output):
    return output.last_hidden_state[0, 2] @ torch.tensor([1.0, 2, 3, 4])


@pytest.fixture(scope="module")
def model():
    from transformers import LlamaConfig, LlamaModel

    sizes = {"hidden_size": 4, "intermediate_size": 4, "num_hidden_layers": 1, "num_attention_heads": 2}
    found = LlamaModel(LlamaConfig(vocab_size=3, rms_norm_eps=0.0, **sizes)).eval()
    attention = found.layers[0].self_attn
    with torch.no_grad():
        found.embed_tokens.weight.copy_(EMBEDDINGS)
        attention.q_proj.weight.zero_()
        attention.v_proj.weight.copy_(torch.eye(4))
        attention.o_proj.weight.copy_(torch.eye(4))
        found.layers[0].mlp.down_proj.weight.zero_()
    found.norm = torch.nn.Identity()
    return found


def test_what_a_silenced_head_wrote_is_gone(model):
    assert ablate(model, INPUTS, [(0, 0)], measure).before == near(8)
    assert ablate(model, INPUTS, [(0, 0)], measure).change == near(1 / 3)
    assert ablate(model, INPUTS, [(0, 0), (0, 1)], measure).after == near(4)


def test_mean_ablation_writes_the_mean_of_all_positions(model):
    """Head 0 writes (1 1), (1 0) and (1/3 -1/3): in the mean (7/9 2/9), worth 7/9 + 4/9 instead of -1/3."""
    assert ablate(model, INPUTS, [(0, 0)], measure, how="mean").change == near(11 / 9 + 1 / 3)


def test_keep_only(model):
    assert ablate(model, INPUTS, [(0, 0)], measure, how="keep").change == near(-13 / 3)
    table = ablate_each(model, INPUTS, measure, how="keep").set_index("head")["change"]
    assert table.to_dict() == near({0: -13 / 3, 1: 1 / 3})


def test_knock_out_leaves_the_mean_of_the_other_keys(model):
    """Without token 0 the last token's heads write (0 -1 | 1 0), worth -2 and 3."""
    assert knock_out(model, INPUTS, [2], [0], measure).after == near(4 - 2 + 3)
    assert knock_out(model, INPUTS, [2], [0], measure, heads=[(0, 1)]).change == near(3 - 13 / 3)
    assert knock_out(model, INPUTS, [0, 1], [0], measure).change == near(0)
    assert knock_out(model, INPUTS, [2], [0, 1, 2], measure).after == near(4)  # a query without keys


def test_importance_is_output_times_gradient(model):
    table = gradients(model, INPUTS, measure).importance().set_index("head")["importance"]
    assert table.to_dict() == near({0: 1 / 3, 1: 13 / 3})


def test_gradient_times_attention_of_each_link(model):
    """Head 0: w . value is 1 + 2, 1 - 2 and -1 - 2 at the three keys, each with weight 1/3; no other query counts."""
    found = gradients(model, INPUTS, measure)
    wanted = torch.tensor([[0.0, 0, 0], [0, 0, 0], [1, -1 / 3, -1]])
    assert torch.allclose(found.weight_gradient(0, 0, slice(2, 3))[0], torch.tensor([3.0, -1, -3]), atol=1e-5)
    assert torch.allclose(found.attention_gradient(0, 0), wanted, atol=1e-6)
    assert torch.allclose(found.received(0, 0), wanted.sum(0), atol=1e-6)


def test_relevance_of_the_last_token(model):
    """Head 0 adds 1 at key 0, head 1 adds 7/3, -1/3 and 7/3: half of what is positive."""
    scores = gradients(model, INPUTS, measure).relevance(2).scores
    assert scores.tolist() == near([(1 + 7 / 3) / 2, 0, 7 / 6])


def test_relevance_is_the_mean_of_the_rows_that_the_measure_reads(model):
    """Of the mean of tokens 1 and 2 the gradient is w/2 at both. Token 1: head 0 adds 3/4 and -1/4, head 1 adds 7/4
    and -1/4, half of what is positive is 5/4 at key 0. Token 2: half of above. Token 0 is not read."""

    def mean(output):
        return output.last_hidden_state[0, 1:].mean(0) @ torch.tensor([1.0, 2, 3, 4])

    found = gradients(model, INPUTS, mean)
    assert found.reads().tolist() == [False, True, True]
    assert found.relevance().scores.tolist() == near([(5 / 4 + 5 / 6) / 2, 0, 7 / 12 / 2])
    assert found.relevance().token is None
    # a row is read where any head's output counts
    one_head = gradients(model, INPUTS, lambda output: output.last_hidden_state[0, 2, 0])
    assert one_head.reads().tolist() == [False, False, True]
    last = gradients(model, INPUTS, measure)
    assert last.relevance().scores.tolist() == last.relevance(2).scores.tolist()
    with pytest.raises(UsageError, match="relevance needs a measure that the last layer changes, its gradient is 0"):
        gradients(model, INPUTS, lambda output: output.last_hidden_state.sum() * 0).relevance()


def test_integrated_gradients_of_a_linear_measure_are_what_heads_add(model):
    found = integrated_attention(model, INPUTS, measure, steps=3)
    assert found.layers[0].scores.tolist() == near([-1 / 3, 13 / 3])
    assert found.layers[0].effect == near(4)
    assert found.layers[0].error < 1e-6
