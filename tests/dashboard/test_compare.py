"""Comparing two heads, two texts and two models."""

import pandas as pd
import pytest
from traces import make_trace

from attnviz.analysis.compare import compare_heads, compare_traces, same_places, with_every
from attnviz.dashboard import comparing
from attnviz.dashboard.compare import HEADS, beside
from attnviz.dashboard.jobs import Job
from attnviz.dashboard.results import Result, file

TEXT = "The bank of the river"


def charts(app):
    return [chart.proto.spec for chart in app.main.get("vega_lite_chart")]


def maps(app):
    """The keys of the maps that are drawn."""
    return [part.proto.id.rsplit("-", 1)[-1] for part in app.main.get("bidi_component")]


def test_two_heads(visit):
    app = visit("compare", text=TEXT, layer="0", head="1", layer2="1", head2="2")
    trace = make_trace(TEXT.split())
    found = compare_heads(trace[0, 1], trace[1, 2])
    assert app.metric[0].value == f"{found.mean:.3f}"
    assert app.dataframe[0].value["distance"].tolist() == pytest.approx(found.table()["distance"].tolist(), abs=1e-4)
    assert maps(app) == ["First", "Second", "difference"]
    every = app.dataframe[1].value
    assert len(every) == 5
    assert (0, 1) not in set(zip(every["layer"], every["head"], strict=True))


def test_the_second_head_is_at_first_the_next(visit):
    app = visit("compare", text=TEXT, layer="1", head="1")
    assert (app.selectbox(key="layer2").value, app.selectbox(key="head2").value) == (1, 2)
    assert beside((0, 1, 2), 2) == 1
    assert beside((0,), 0) == 0


def test_two_texts_of_as_many_tokens(visit, recorded):
    app = visit("compare", text=TEXT, mode="Two texts", text2="The edge of a lake")
    assert recorded == [TEXT, "The edge of a lake"]
    assert maps(app) == ["First", "Second", "difference"]
    assert len(charts(app)) == 1
    assert app.metric[0].value == "0.000", "the made-up traces depend on the number of words only"


def test_two_texts_of_different_lengths_stand_side_by_side(visit):
    app = visit("compare", text=TEXT, mode="Two texts", text2="one two")
    assert maps(app) == ["First", "Second"]
    assert "The first has 5 tokens and the second 2" in app.info[0].value


def test_two_models(visit):
    app = visit("compare", text=TEXT, mode="Two models")
    one, other = make_trace(TEXT.split()), make_trace(TEXT.split(), causal=True)
    assert app.selectbox(key="model2").value == "smollm2"
    every = app.dataframe[1].value
    assert every["distance"].tolist() == pytest.approx(compare_traces(one, other)["distance"].tolist(), abs=1e-4)


def test_many_weights_wait_for_a_click(visit, monkeypatch):
    monkeypatch.setattr(comparing, "CELLS", 10)
    app = visit("compare", text=TEXT, mode=HEADS)
    assert maps(app) == ["First", "Second", "difference"]
    for count in (0, 1):
        assert len(app.dataframe) == count
        app.button[-1].click().run()
    assert len(app.dataframe) == 2


def test_heads_without_a_twin_are_left_out():
    one, other = make_trace(layers=3), make_trace(layers=2, heads=2)
    pairs = same_places(one, other)
    assert [(head.layer, head.head) for head, _ in pairs] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert comparing.cells(pairs) == 4 * 25


def test_distances_are_sorted_and_can_be_cancelled():
    from attnviz.dashboard.jobs import CancelledError

    trace = make_trace()
    pairs = with_every(trace[0, 0], trace)
    found = comparing.measured(pairs, Job("x"))
    assert found["distance"].is_monotonic_decreasing
    job = Job("x")
    job.cancel()
    with pytest.raises(CancelledError):
        comparing.measured(pairs, job)


def test_numbers_of_the_difference_are_made_when_they_are_asked_for():
    asked = []
    made = Result("difference", None, lambda: asked.append(1) or pd.DataFrame({"difference": [0.5]}), "")
    assert asked == []
    assert file(made, "csv", "screen").decode().split() == ["difference", "0.5"]
