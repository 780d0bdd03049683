import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from traces import make_trace, trace_of

from attnviz.analysis.compare import (
    cluster_heads,
    compare_heads,
    compare_traces,
    distances,
    head_distances,
    jensen_shannon,
    same_places,
    with_every,
)
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
    # (1, 0) and half on the sink: as (1, 0 | 0) and (1/2, 0 | 1/2), the third case above
    halved = jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.0]))
    assert halved.item() == pytest.approx(jensen_shannon(torch.tensor([1.0, 0.0]), torch.tensor([0.5, 0.5])).item())
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


def test_pairs_of_heads():
    trace, shorter = make_trace(), make_trace(layers=1, heads=2, seed=1)
    pairs = same_places(trace, shorter)
    assert [(one.head, other.head, other.layer) for one, other in pairs] == [(0, 0, 0), (1, 1, 0)]
    others = with_every(trace[0, 1], trace)
    assert {(one.layer, one.head) for one, _ in others} == {(0, 1)}
    assert [(other.layer, other.head) for _, other in others] == [(0, 0), (0, 2), (1, 0), (1, 1), (1, 2)]
    seen = []
    table = distances(others, lambda *step: seen.append(step))
    assert seen == [(done, 5) for done in range(1, 6)]
    row = table[(table["layer"] == 1) & (table["head"] == 2)].iloc[0]
    assert row["distance"] == pytest.approx(compare_heads(trace[0, 1], trace[1, 2]).mean)
    assert table["distance"].is_monotonic_decreasing
    with pytest.raises(UsageError, match="there are no heads to compare: give two heads, or runs of models"):
        distances([])


def test_the_mean_leaves_out_rows_that_see_nothing():
    blind = [[0.0, 0, 0], [1.0, 0, 0], [1.0, 0, 0]]
    one = trace_of([[blind, [[1.0, 0, 0], [0, 1.0, 0], [0, 0, 1.0]]]], ["a", "b", "c"])
    found = compare_heads(one[0, 0], one[0, 1])
    assert found.distance.isnan().tolist() == [True, False, False]
    assert found.mean == pytest.approx(1.0)
    assert head_distances(one)[1][0].tolist() == pytest.approx([0.0, 1.0])


def test_groups_are_joined_by_their_mean_distance():
    """Rows (1 - k, k). First 0 with 0.05; to these 0.2 is nearer in the mean, (0.329 + 0.198) / 2 = 0.264, than 0.5 is
    to its neighbours, 0.270. By the farthest member 0.2 would go with 0.5, by the nearest all but 0.8 be one."""
    maps = [[[1 - k, k], [1 - k, k]] for k in (0.0, 0.05, 0.2, 0.5, 0.8)]
    trace = trace_of([maps], ["a", "b"])
    assert head_distances(trace)[1][2].tolist() == pytest.approx([0.329, 0.198, 0, 0.270, 0.527], abs=1e-3)
    assert cluster_heads(trace, 3)["group"].tolist() == [0, 0, 0, 1, 2]
    assert cluster_heads(trace, 2)["group"].tolist() == [0, 0, 0, 1, 1]


def test_alike_heads_fall_into_one_group():
    one, other = [[1.0, 0], [1, 0]], [[0.0, 1], [0, 1]]
    trace = trace_of([[one, other], [one, other]], ["a", "b"])
    places, distance = head_distances(trace)
    assert places == ((0, 0), (0, 1), (1, 0), (1, 1))
    assert distance[0].tolist() == pytest.approx([0, 1, 0, 1])
    assert cluster_heads(trace, 2)["group"].tolist() == [0, 0, 1, 1]
    with pytest.raises(UsageError, match="groups must be 1 to 4"):
        cluster_heads(trace, 5)
