from dataclasses import replace

import pytest
import torch
from traces import make_trace, trace_of

from attnviz.analysis.sparsity import blocks, cost_table, dilated, local, sparsity, streaming, top
from attnviz.errors import UsageError
from attnviz.views import Dense

WEIGHTS = [[1.0, 0, 0, 0], [0.5, 0.5, 0, 0], [0.5, 0.25, 0.25, 0], [0.4, 0.3, 0.2, 0.1]]


def mass(pattern):
    return sparsity(trace_of([[WEIGHTS]])[0, 0], [pattern]).iloc[0]


@pytest.mark.parametrize(
    ("pattern", "kept", "keys"),
    [
        (local(1), (1 + 0.5 + 0.25 + 0.1) / 4, 4 / 10),
        (local(2), (1 + 1 + 0.5 + 0.3) / 4, 7 / 10),
        (dilated(2), (1 + 0.5 + 0.75 + 0.4) / 4, 6 / 10),
        (streaming(1, 1), (1 + 1 + 0.75 + 0.5) / 4, 7 / 10),
        (top(1), (1 + 0.5 + 0.5 + 0.4) / 4, 4 / 10),
        (blocks(1), (1 + 1 + 1 + 0.7) / 4, 9 / 10),
        (local(9), 1.0, 1.0),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_mass_on_the_worked_case(pattern, kept, keys):
    row = mass(pattern)
    assert row["mass"] == pytest.approx(kept)
    assert row["keys"] == pytest.approx(keys)


def test_rows_that_see_nothing_count_for_nothing():
    row = sparsity(trace_of([[[[0.0, 0, 0], [0.5, 0.5, 0], [0.2, 0.2, 0.6]]]])[0, 0], [local(1)]).iloc[0]
    assert row["mass"] == pytest.approx((0.5 + 0.6) / 2)
    assert row["keys"] == pytest.approx(2 / 5)


def test_rows_behind_a_cache_keep_what_is_near_to_them():
    trace = trace_of([[WEIGHTS]])
    trace.records = [replace(trace.records[0], view=Dense(torch.tensor([[WEIGHTS[2:]]]), offset=2), row_start=2)]
    row = sparsity(trace[0, 0], [local(2)]).iloc[0]
    assert row["mass"] == pytest.approx((0.5 + 0.3) / 2)
    assert row["keys"] == pytest.approx(4 / 7)


def with_value(trace, value):
    trace.records = [replace(record, value=value) for record in trace.records]
    return trace


def test_output_error_of_a_renormalised_pattern():
    trace = with_value(trace_of([[[[1.0, 0], [0.5, 0.5]]]]), torch.tensor([[[[1.0], [3.0]]]]))
    # exact outputs 1 and 2; local(1) keeps own keys: 1 and 3, so that the error is 1 / sqrt(1 + 4)
    assert sparsity(trace[0, 0], [local(1)]).iloc[0]["error"] == pytest.approx(1 / 5**0.5)
    assert sparsity(trace[0, 0], [local(2)]).iloc[0]["error"] == pytest.approx(0.0, abs=1e-7)


@pytest.mark.parametrize("causal", [False, True])
def test_linear_attention_equals_the_formula(causal):
    trace = make_trace([str(i) for i in range(9)], layers=1, heads=1, causal=causal)
    value = torch.randn(1, 1, 9, 4, generator=torch.Generator().manual_seed(1))
    row = sparsity(with_value(trace, value)[0, 0], []).iloc[-1]
    view = trace[0, 0].view.view
    q, k = (torch.nn.functional.elu(x[0, 0].double() * view.scale**0.5) + 1 for x in (view.query, view.key))
    weights = q @ k.T
    if causal:
        weights = weights.tril()
    weights /= weights.sum(1, keepdim=True)
    exact = trace[0, 0].weights().double() @ value[0, 0].double()
    wanted = (weights @ value[0, 0].double() - exact).norm() / exact.norm()
    assert row["error"] == pytest.approx(wanted.item(), abs=1e-5)


def test_without_values_the_error_is_unknown():
    assert sparsity(trace_of([[WEIGHTS]])[0, 0], [local(1)])["error"].isna().all()


def test_costs():
    table = cost_table([1024, 32768])
    assert table["map in bytes"].tolist() == [4 * 1024**2, 4 * 1024**3]
    # q . k and weights . v, 64 numbers each: of every key, of 255 to both sides and the query's own, of phi(k) v
    assert table["multiplications, exact"].tolist() == [2 * 64 * 1024**2, 2 * 64 * 32768**2]
    assert table["multiplications, local 256"].tolist() == [2 * 64 * 1024 * 511, 2 * 64 * 32768 * 511]
    assert cost_table([100])["multiplications, local 256"].tolist() == [2 * 64 * 100 * 100]
    assert table["multiplications, linear"].tolist() == [2 * 64 * 64 * 1024, 2 * 64 * 64 * 32768]
    # 64 numbers of the query, 64 of the key and one logsumexp, 4 bytes each
    assert table["query, key and logsumexp in bytes"].tolist() == [4 * 129 * 1024, 4 * 129 * 32768]
    with pytest.raises(UsageError, match="lengths must be positive"):
        cost_table([0])
