"""What a click on a row of a table means."""

from types import SimpleNamespace

import pytest

from attnviz.dashboard import selection


@pytest.mark.parametrize(
    ("clicks", "rows"), [([[1], [2]], [1, 2]), ([[1], []], [1, 1]), ([[1], [], [1]], [1, 1, 1]), ([[]], [None])]
)
def test_a_row_is_meant_whether_the_click_ticked_or_unticked_it(monkeypatch, clicks, rows):
    state = {}
    monkeypatch.setattr("streamlit.session_state", state)
    found = []
    for ticked in clicks:
        state["best"] = SimpleNamespace(selection=SimpleNamespace(rows=ticked))
        found.append(selection.row_of("best", 3))
    assert found == rows


def test_a_row_that_the_table_no_longer_has_is_not_meant(monkeypatch):
    state = {"best": SimpleNamespace(selection=SimpleNamespace(rows=[])), "best_row": 7}
    monkeypatch.setattr("streamlit.session_state", state)
    assert selection.row_of("best", 3) is None
