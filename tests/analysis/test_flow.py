import pytest
import torch
from traces import make_trace, trace_of

from attnviz.analysis.flow import FLOW_LIMIT, flow, reach, received, rollout
from attnviz.errors import BudgetError, UsageError
from attnviz.recording import record


def dense_rollout(trace, residual=0.5):
    count = len(trace.tokens)
    total = torch.eye(count, dtype=torch.float64)
    for layer in trace.layers:
        mean = torch.stack([trace[layer, h].weights().double() for h in range(trace.head_count(layer))]).mean(0)
        mean = mean / mean.sum(1, keepdim=True)
        total = (residual * torch.eye(count, dtype=torch.float64) + (1 - residual) * mean) @ total
    return total


def test_rollout_on_the_worked_case():
    # [[1, 0], [0.5, 0.5]] mixed with the identity is [[1, 0], [0.25, 0.75]]; squared, its last row is [0.4375, 0.5625]
    trace = trace_of([[[[1.0, 0], [0.5, 0.5]]]] * 2, ["a", "b"])
    assert rollout(trace, 1).scores.tolist() == pytest.approx([0.4375, 0.5625])
    assert reach(trace, 0).scores.tolist() == pytest.approx([1.0, 0.4375])
    assert rollout(trace).table()["token"].tolist() == ["b", "a"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("residual", [0.5, 0.2])
def test_rollout_equals_the_dense_product(causal, residual):
    trace = make_trace([str(i) for i in range(33)], layers=4, causal=causal)
    dense = dense_rollout(trace, residual)
    assert torch.allclose(rollout(trace, 20, residual=residual).scores.double(), dense[20], atol=1e-6)
    assert torch.allclose(reach(trace, 3, residual=residual).scores.double(), dense[:, 3], atol=1e-6)
    assert rollout(trace, -1).scores.sum().item() == pytest.approx(1.0, abs=1e-5)


def test_rollout_of_a_real_model_equals_the_product_of_its_own_weights(smollm2):
    model, tokenizer = smollm2
    ids = tokenizer("The keeper wrote down the weather and read it to her. " * 30, return_tensors="pt").input_ids
    before = model.config._attn_implementation
    with torch.inference_mode():
        with record(model, tokenizer=tokenizer) as trace:
            model(input_ids=ids[:, :256])
        model.set_attn_implementation("eager")
        try:
            layers = model(input_ids=ids[:, :256], output_attentions=True).attentions
        finally:
            model.set_attn_implementation(before)
    one = torch.eye(256, dtype=torch.float64)
    total = one
    for weights in layers:
        total = (one + weights[0].double().mean(0)) / 2 @ total
    for token in (255, 100):
        assert (rollout(trace, token).scores - total[token]).abs().max() < 1e-5
    assert (reach(trace, 3).scores - total[:, 3]).abs().max() < 1e-5


def test_mass_on_a_sink_is_shared_out():
    trace = trace_of([[[[0.5, 0.0], [0.1, 0.3]]]], ["a", "b"])
    # row 1 of the layer, renormalised, is [0.25, 0.75]
    assert rollout(trace, 1).scores.tolist() == pytest.approx([0.125, 0.875])
    assert reach(trace, 0).scores.tolist() == pytest.approx([1.0, 0.125])
    assert flow(trace, 1).scores.tolist() == pytest.approx([0.125, 0.875])


def test_flow_is_limited_by_the_narrowest_pipe():
    # mixed layer: [[1, 0], [0.25, 0.75]]. From b only b -> b -> b: 0.75. From a: to b through a (0.25) or b (0.25): 0.5
    trace = trace_of([[[[1.0, 0], [0.5, 0.5]]]] * 2, ["a", "b"])
    assert flow(trace, 1).scores.tolist() == pytest.approx([0.5, 0.75])
    # a fifth for the identity: [[1, 0], [0.4, 0.6]]; b -> b -> b 0.6, from a through a (0.4) or b (0.4)
    assert flow(trace, 1, residual=0.2).scores.tolist() == pytest.approx([0.8, 0.6])


def test_received_is_one_for_an_even_share():
    trace = trace_of([[[[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [1.0, 0.0]]]], ["a", "b"])
    # column sums 1, 1 and 2, 0: mean 1.5 and 0.5, of an even share of 1
    assert received(trace)["received"].tolist() == [1.5, 0.5]
    # with half of every row on a sink each token gets half of that, and the share of an even one as before
    sink = trace_of([[[[0.25, 0.25], [0.25, 0.25]], [[0.5, 0.0], [0.5, 0.0]]]], ["a", "b"])
    assert received(sink)["received"].tolist() == [1.5, 0.5]


def test_bad_input():
    trace = make_trace()
    with pytest.raises(UsageError, match=r"token 9 does not exist: this text has 5 tokens \(0 to 4\)"):
        rollout(trace, 9)
    with pytest.raises(BudgetError, match=f"flow takes up to {FLOW_LIMIT} tokens, this trace has 129"):
        flow(make_trace([str(i) for i in range(129)], layers=1, heads=1))
    with pytest.raises(UsageError, match="rollout needs as many queries as keys, layer 0 has 1 and 2"):
        rollout(trace_of([[[[0.5, 0.5]]]], ["a"]), 0)
