import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import make_trace, trace_of

from attnviz.analysis.compare import cluster_heads, compare_heads, compare_traces, head_distances, jensen_shannon
from attnviz.errors import UsageError


def test_distance_of_worked_rows():
    same = jensen_shannon(torch.tensor([0.5, 0.5]), torch.tensor([0.5, 0.5]))
    apart = jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]))
    # p = (1, 0), q = (1/2, 1/2), m = (3/4, 1/4): (log2(4/3) + (log2(2/3) + log2(2)) / 2) / 2
    half = jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5]))
    wanted = (math.log2(4 / 3) + 0.5 * math.log2(2 / 3) + 0.5 * math.log2(2)) / 2
    assert same.item() == 0
    assert apart.item() == pytest.approx(1.0)
    assert half.item() == pytest.approx(math.sqrt(wanted))


def test_a_sink_is_one_more_outcome_and_blind_rows_have_no_distance():
    # half of the mass on the sink in both: only the other half is apart
    found = jensen_shannon(torch.tensor([0.5, 0.0]), torch.tensor([0.0, 0.5]))
    assert found.item() == pytest.approx(math.sqrt(0.5))
    assert jensen_shannon(torch.zeros(2), torch.tensor([1.0, 0.0])).isnan()


@given(st.lists(st.floats(0.01, 1), min_size=4, max_size=4), st.lists(st.floats(0.01, 1), min_size=4, max_size=4))
@settings(max_examples=50, deadline=None)
def test_distance_is_symmetric_bounded_and_unmoved_by_permutation(one, other):
    p, q = (torch.tensor(x, dtype=torch.float64) for x in (one, other))
    p, q = p / p.sum(), q / q.sum()
    order = torch.tensor([3, 1, 0, 2])
    forth, back, moved = jensen_shannon(p, q), jensen_shannon(q, p), jensen_shannon(p[order], q[order])
    assert 0 <= forth <= 1
    assert forth.item() == pytest.approx(back.item(), abs=1e-9)
    assert forth.item() == pytest.approx(moved.item(), abs=1e-6)


def test_heads_and_traces():
    trace = make_trace()
    found = compare_heads(trace[0, 0], trace[1, 2])
    dense = jensen_shannon(trace[0, 0].weights(), trace[1, 2].weights())
    assert torch.allclose(found.distance, dense)
    assert found.table()["distance"].is_monotonic_decreasing
    assert compare_traces(trace, trace)["distance"].max() < 1e-3
    assert compare_traces(trace, make_trace(seed=1))["distance"].min() > 0.1
    with pytest.raises(UsageError, match="these have 5 x 5 and 2 x 2"):
        compare_heads(trace[0, 0], make_trace(["a", "b"])[0, 0])


def test_alike_heads_fall_into_one_group():
    one, other = [[1.0, 0], [1, 0]], [[0.0, 1], [0, 1]]
    trace = trace_of([[one, other], [one, other]], ["a", "b"])
    places, distance = head_distances(trace)
    assert places == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert distance[0].tolist() == pytest.approx([0, 1, 0, 1])
    assert cluster_heads(trace, 2)["group"].tolist() == [0, 0, 1, 1]
    with pytest.raises(UsageError, match="groups must be 1 to 4"):
        cluster_heads(trace, 5)
