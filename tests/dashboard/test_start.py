import pytest
import torch
from traces import make_trace, trace_of

from attnviz.dashboard.start import start, start_link
from attnviz.head import Record
from attnviz.trace import Trace


def measured(trace):
    """The trace with its statistics kept, as recording does."""
    records = [Record(**{**vars(r), "statistics": r.view.statistics()}) for r in trace.records]
    return Trace(trace.model, records, trace.axes)


def peaked(*keys, count=5, peak=0.9):
    """Weights whose row i has its peak at keys[i]."""
    weights = torch.full((count, count), (1 - peak) / (count - 1))
    for row, key in enumerate(keys):
        weights[row, key] = peak
    return weights.tolist()


def test_it_opens_with_the_head_whose_largest_weights_fall_on_content():
    first, previous, own, content = [0] * 5, [0, 0, 1, 2, 3], range(5), [3, 4, 4, 1, 2]
    layers = [[peaked(*first), peaked(*previous)], [peaked(*own), peaked(*content)]]
    found = start(measured(trace_of(layers, ["a", "b", "c", "d", "e"])))
    assert [found[layer][0] for layer in (0, 1)] == [0, 1]
    assert found[0][1] == 0
    # a to d, b to e, c to e, d to b and e to c count
    assert found[1][1] == pytest.approx(0.9)


def test_punctuation_and_neighbours_do_not_count():
    found = start(measured(trace_of([[peaked(2, 4, 4, 4, 3)], [peaked(2, 2, 4, 2, 3)]], ["a", "b", "c", "d", "."])))
    # of the first only a to c counts, of the second a to c too: b to c is next, c and d look at "." or at a neighbour
    assert [found[layer][1] for layer in (0, 1)] == pytest.approx([0.18, 0.18])


def test_the_link_it_opens_with_is_the_largest_that_counts():
    weights = torch.full((5, 5), 0.1)
    weights[0, 0], weights[4, 2], weights[3, 1] = 0.6, 0.8, 0.7
    weights = (weights / weights.sum(-1, keepdim=True)).tolist()
    assert start_link(trace_of([[weights]], ["a", "b", "c", "d", "e"])[0, 0]) == (4, 2)
    assert start_link(trace_of([[weights]], ["a", "b", ",", "d", "e"])[0, 0]) == (3, 1)


def test_where_nothing_counts_it_is_the_last_row():
    trace = trace_of([[peaked(*range(5))]], ["a", "b", "c", "d", "e"])
    assert start_link(trace[0, 0]) == (4, 4)


def test_without_statistics_it_is_the_first_head():
    trace = make_trace()
    bare = Trace(trace.model, [Record(**{**vars(r), "statistics": None}) for r in trace.records], trace.axes)
    assert start(bare) == {0: (0, -1.0), 1: (0, -1.0)}
