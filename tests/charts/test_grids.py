"""Grids of heads: layers that do not attend, heads that are left out, one scale of colours."""

import torch
from traces import make_trace, trace_of

from attnviz import charts
from attnviz.head import Record


def with_linear_layer():
    trace = make_trace(layers=1)
    trace.records.append(Record("layers.1.mamba", 1, "linear", "", "", None))
    return trace


def scales(chart, layer=None):
    encoding = (chart if layer is None else chart["layer"][layer])["encoding"]
    return encoding["y"]["scale"]["domain"], encoding["x"]["scale"]["domain"]


def test_layers_that_do_not_attend_are_empty():
    trace = with_linear_layer()
    assert scales(charts.head_grid(trace).to_dict()) == ([0, 1], [0, 1, 2])
    assert scales(charts.thumbnails(trace).to_dict(), 1) == ([0, 1], [0, 1, 2])


def test_heads_that_are_left_out_keep_their_place():
    trace = make_trace()
    table = trace.heads().iloc[[4]]
    chart = charts.head_grid(trace, "first", table=table)
    assert chart.data is table
    assert scales(chart.to_dict()) == ([0, 1], [0, 1, 2])


def test_further_columns_can_be_shown():
    trace = make_trace()
    table = trace.heads().assign(prefix_matching=0.5)
    legend = charts.head_grid(trace, "prefix_matching", table=table).to_dict()["encoding"]["color"]["title"]
    assert legend == "prefix matching"


def test_small_maps_are_block_means_of_every_head_and_tell_how_far_they_are():
    trace, told = make_trace(tuple(map(str, range(100)))), []
    maps = charts.small_maps(trace, lambda done, total: told.append((done, total)))
    assert list(maps) == [(layer, head) for layer in range(2) for head in range(3)]
    torch.testing.assert_close(maps[1, 2], trace[1, 2].pooled((64, 64)))
    assert told == [(1, 2), (2, 2)]


def test_one_scale_of_colours_leaves_weaker_maps_darker():
    weak, strong = [[0.5, 0.5], [0.5, 0.5]], [[1.0, 0.0], [0.0, 1.0]]
    trace = trace_of([[weak, strong]])
    own, shared = (charts.thumbnails(trace, shared=on).data for on in (False, True))
    assert own["picture"][0] != shared["picture"][0]
    assert own["picture"][1] == shared["picture"][1]
    assert own["largest"].tolist() == shared["largest"].tolist() == [0.5, 1.0]
