"""Charts as pages show them: letters that can be read, and widths that phones have room for."""

import pandas as pd
import pytest
from traces import make_trace

from attnviz import charts
from attnviz.dashboard import figures

WORDS = [f"word{place}" for place in range(40)]


def axes(spec):
    return [spec["encoding"][name]["axis"] for name in ("x", "y")]


def test_of_many_labels_some_are_left_out_instead_of_all_being_tiny():
    drawn = charts.heatmap(make_trace(WORDS)[0, 0], width=380)
    assert all(axis["labelFontSize"] < 10 for axis in axes(drawn.to_dict()))
    shown = axes(figures.readable(drawn).to_dict())
    assert [(axis["labelFontSize"], axis["labelOverlap"]) for axis in shown] == [(10, True)] * 2


def test_few_labels_stay_as_they_are():
    drawn = charts.heatmap(make_trace()[0, 0], width=380)
    before = drawn.to_dict()
    assert figures.readable(drawn).to_dict() == before


def test_charts_of_several_parts_are_read_too():
    drawn = charts.scaling(make_trace(WORDS)[0, 0], width=330)
    assert min(found(drawn.to_dict(), "labelFontSize")) < 10
    assert min(found(figures.readable(drawn).to_dict(), "labelFontSize")) == 10


def found(part, name):
    """Every value of that name anywhere in a specification."""
    if isinstance(part, dict):
        yield from (value for key, value in part.items() if key == name)
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from found(inner, name)


@pytest.mark.parametrize(
    ("room", "columns", "width"), [(None, 12, 560), (None, 32, 560), (328, 12, 453), (328, 2, 268), (328, 32, 800)]
)
def test_grids_fit_a_phone_unless_a_finger_could_not_meet_their_squares(monkeypatch, room, columns, width):
    monkeypatch.setattr(figures, "room", lambda: room)
    assert figures.wide(columns) == width
    assert figures.wide_of(pd.DataFrame({"head": [0, columns - 1]})) == width


def test_the_window_is_told_by_the_page(monkeypatch):
    told = {}
    monkeypatch.setattr(figures.st, "context", type("Context", (), {"cookies": told}))
    assert figures.room() is None
    for window, room in (("360", 328), ("1280", None), ("<script>", None), ("1", 288)):
        told[figures.WINDOW] = window
        assert figures.room() == room
