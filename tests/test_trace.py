"""A trace and its heads: where things are, what is refused and how, what padding and branches do."""

from dataclasses import replace

import pytest
import torch
from traces import make_trace, trace_of

from attnviz.composed import Difference
from attnviz.errors import BudgetError, UsageError
from attnviz.head import Record
from attnviz.tokens import TokenAxis, positions
from attnviz.trace import Trace
from attnviz.views import Dense


def padded_trace(start=2):
    """Two sequences, the second with `start` padding tokens on the left."""
    trace = make_trace(batch=2, causal=True)
    count = 5
    records = []
    for record in trace.records:
        real = torch.ones(2, count, dtype=torch.bool)
        real[1, :start] = False
        view = record.view.view
        view = replace(view, mask=replace(view.mask, key_padding=real))
        score = view.scale * view.query @ view.key.transpose(-1, -2)
        seen = torch.ones(count, count).tril().bool() & real[:, None, None]
        lse = torch.logsumexp(score.masked_fill(~seen, -torch.inf), -1)
        found = replace(record.view, view=replace(view, logsumexp=lse))
        records.append(replace(record, view=found, statistics=found.statistics()))
    axis = trace.axes["self"][0]
    return Trace("padded", records, {"self": (axis, replace(axis, valid=slice(start, count)))})


def test_a_head_is_a_layer_and_a_head():
    trace = make_trace(layers=2, heads=3)
    head = trace[1, 2]
    assert (head.layer, head.head, head.shape) == (1, 2, (5, 5))
    assert head.record is trace.records[1]
    torch.testing.assert_close(head.weights(), trace.records[1].view.tile(slice(None), slice(None))[0, 2])
    assert len(trace.every_head()) == 6
    assert [str(token) for token in head.rows] == ["The", "bank", "of", "the", "river"]


BAD = {
    "layer 7 does not exist: this trace has 2 layers (0 to 1)": (7, 0),
    "layer -1 does not exist: this trace has 2 layers (0 to 1)": (-1, 0),
    "head 3 does not exist: layer 1 of this trace has 3 heads (0 to 2)": (1, 3),
    "head -1 does not exist: layer 1 of this trace has 3 heads (0 to 2)": (1, -1),
    "layer 0 has no branch 'second': it has none": (0, 0, "second"),
    "a head is trace[layer, head], got trace[3]": 3,
}


@pytest.mark.parametrize("message", BAD)
def test_places_that_do_not_exist(message):
    with pytest.raises(UsageError) as caught:
        make_trace()[BAD[message]]
    assert str(caught.value) == message


def test_layers_keep_the_model_s_own_numbers():
    trace = make_trace()
    trace.records[:] = [replace(record, layer=layer) for record, layer in zip(trace.records, (3, 7), strict=True)]
    assert trace.layers == (3, 7)
    with pytest.raises(UsageError, match="layer 4 is not in this trace: the layers that attend and were kept are 3, 7"):
        trace[4, 0]


def test_a_trace_without_attention():
    trace = Trace(records=[Record("mamba", 0, "linear", "", "", None)])
    assert trace.layers == ()
    assert trace.tokens == ()
    with pytest.raises(UsageError, match="layer 0 does not exist: this trace holds no attention"):
        trace[0, 0]


def test_the_whole_map_is_guarded_by_a_budget():
    head = make_trace()[0, 0]
    with pytest.raises(BudgetError) as caught:
        head.weights(budget=99)
    assert str(caught.value) == (
        "these weights of layer 0 head 0 need 100 bytes, the budget is 99 bytes: take a tile with rows= and cols=, a"
        " pooled map, or pass budget="
    )
    assert head.weights(slice(0, 2), budget=99).shape == (2, 5)


def test_an_empty_range_is_refused():
    with pytest.raises(UsageError, match="rows and cols must select a part of the map of 5 x 5, got none"):
        make_trace()[0, 0].weights(slice(3, 3))


def test_padding_is_left_out_everywhere():
    trace = padded_trace()
    head = trace.sequence(1)[0, 1]
    whole = trace.records[0].view.tile(slice(None), slice(None))[1, 1]
    assert head.shape == (3, 3)
    assert [str(token) for token in head.rows] == ["of", "the", "river"]
    torch.testing.assert_close(head.weights(), whole[2:, 2:])
    torch.testing.assert_close(head.entropy, -torch.xlogy(whole, whole).sum(-1)[2:])
    assert torch.equal(head.statistics.largest_key, whole[2:, 2:].argmax(-1))
    torch.testing.assert_close(head.statistics.first, whole[2:, 2])
    torch.testing.assert_close(head.received, whole[2:, 2:].sum(0))
    assert head.visible.tolist() == [1, 2, 3]
    assert trace.sequence(0)[0, 1].shape == (5, 5)


def test_statistics_kept_and_recomputed_are_the_same():
    trace = padded_trace()
    kept = trace.sequence(1)[1, 0].statistics
    for record in trace.records:
        trace.records[trace.records.index(record)] = replace(record, statistics=None)
    again = trace.sequence(1)[1, 0].statistics
    for name in ("entropy", "largest", "largest_key", "distance", "own", "previous", "first"):
        torch.testing.assert_close(getattr(kept, name), getattr(again, name))


def test_a_sequence_that_does_not_exist():
    with pytest.raises(UsageError, match=r"sequence 2 does not exist: this trace has 2 \(0 to 1\)"):
        padded_trace().sequence(2)


def test_kinds_are_traces_of_their_own():
    records = [
        Record(f"{kind}.0", 0, kind, "interface", "", Dense(torch.full((1, 2, rows, cols), 1 / cols)))
        for kind, rows, cols in (("encoder", 4, 4), ("decoder", 3, 3), ("cross", 3, 4))
    ]
    sides = {
        "encoder": (TokenAxis(positions(4), slice(0, 4)),),
        "decoder": (TokenAxis(positions(3), slice(0, 3)),),
    }
    trace = Trace("pair", records, sides)
    assert trace.kinds == ("encoder", "decoder", "cross")
    assert trace.cross[0, 1].shape == (3, 4)
    message = "this trace has several kinds of attention: choose one of trace.encoder, trace.decoder, trace.cross"
    with pytest.raises(UsageError, match=message):
        trace[0, 0]
    with pytest.raises(UsageError, match="this trace has no self attention: it has encoder, decoder, cross"):
        trace.only("self")


def test_a_layer_with_branches_shows_its_effective_attention():
    one, two = Dense(torch.eye(3)[None, None]), Dense(torch.full((1, 1, 3, 3), 1 / 3))
    views = {"first": one, "second": two, "difference": Difference(one, two, 0.5)}
    records = [Record("a.0", 0, "self", "interface", "", view, branch=name) for name, view in views.items()]
    trace = Trace("branches", records)
    assert trace.branches(0) == ("first", "second", "difference")
    torch.testing.assert_close(trace[0, 0].weights(), torch.eye(3) - 1 / 6)
    torch.testing.assert_close(trace[0, 0, "second"].weights(), torch.full((3, 3), 1 / 3))
    assert len(trace.every_head()) == 1


def test_towers_are_beside_the_layers():
    trace = make_trace()
    trace.records.append(replace(trace.records[0], kind="vision", layer=5))
    assert trace.layers == (0, 1)
    assert trace.only("vision").layers == (5,)
    assert trace.only("vision")[5, 0].shape == (5, 5)


def test_labels_of_the_wrong_length_are_not_used():
    trace = make_trace()
    trace.axes["self"] = (TokenAxis(positions(3), slice(0, 3)),)
    assert [str(token) for token in trace[0, 0].rows] == ["0", "1", "2", "3", "4"]


def test_rows_of_a_recording_that_began_late():
    weights = torch.full((1, 1, 2, 5), 0.2)
    axis = TokenAxis(positions(5), slice(0, 5), steps=(0, 0, 0, 1, 2))
    trace = Trace("late", [Record("a.0", 0, "self", "interface", "", Dense(weights), row_start=3)], {"self": (axis,)})
    head = trace[0, 0]
    assert [str(token) for token in head.rows] == ["3", "4"]
    assert [str(token) for token in head.cols] == ["0", "1", "2", "3", "4"]
    assert head.steps == (1, 2)


def test_word_level_weights():
    trace = trace_of([[[[1.0, 0.0], [0.25, 0.75]]]], ["a", "b"])
    torch.testing.assert_close(trace[0, 0].word_weights(), torch.tensor([[1.0, 0.0], [0.25, 0.75]]))
