"""Differences are the second less the first."""

import pandas as pd
import pytest
import torch
from traces import make_trace

from attnviz.charts import change_grid, difference, difference_table
from attnviz.charts.theme import THEMES
from attnviz.errors import UsageError


def cells(chart):
    return next(data for data in chart.to_dict()["datasets"].values() if "difference" in data[0])


def test_every_cell_is_the_second_less_the_first():
    trace = make_trace()
    one, other = trace[0, 0], trace[1, 2]
    expected = (other.weights() - one.weights()).flatten().tolist()
    assert [cell["difference"] for cell in cells(difference(one, other))] == pytest.approx(expected)


def test_long_maps_are_compared_by_block_means():
    trace = make_trace([f"w{n}" for n in range(130)], 1, 2)
    one, other = trace[0, 0], trace[0, 1]
    shown = torch.tensor([cell["difference"] for cell in cells(difference(one, other))]).reshape(64, 64)
    expected = other.pooled((64, 64)) - one.pooled((64, 64))
    assert torch.allclose(shown, expected)


def test_zero_has_the_middle_colour():
    spec = difference(*(make_trace()[0, head] for head in (0, 1)), theme="dark").to_dict()
    scale = spec["encoding"]["color"]["scale"]
    assert scale["domain"][1] == 0
    assert scale["domain"][0] == -scale["domain"][2]
    assert spec["config"]["range"][scale["range"]] == [
        getattr(THEMES["dark"], name) for name in ("accent", "masked", "second")
    ]


def test_maps_of_different_sizes_are_refused():
    one, other = make_trace()[0, 0], make_trace(("a", "b"))[0, 0]
    with pytest.raises(UsageError, match=r"^maps of 5 x 5 and 2 x 2 cannot be subtracted: they must match$"):
        difference(one, other)


def test_grid_of_changes():
    table = pd.DataFrame({"layer": [0, 0], "head": [0, 1], "change": [-2.0, 1.0]})
    spec = change_grid(table, "change", "Change", theme="dark").to_dict()
    assert spec["encoding"]["color"]["scale"]["domain"] == [-2.0, 0, 2.0]


def test_the_table_holds_the_numbers_of_the_figure():
    trace = make_trace()
    one, other = trace[0, 0], trace[1, 2]
    table = difference_table(one, other)
    assert table["difference"].tolist() == pytest.approx([cell["difference"] for cell in cells(difference(one, other))])
    last = table.iloc[-1]
    assert (last["row"] + 1, last["column"] + 1) == one.shape
    assert (last["from"], last["to"]) == (one.rows[-1].label, one.cols[-1].label)


def test_tokens_that_differ_are_both_named():
    one, other = make_trace(("The", "river", "bank"))[0, 0], make_trace(("The", "city", "bank"))[0, 0]
    params = difference(one, other).to_dict()["params"]
    labels = next(each["value"] for each in params if each["name"].startswith("labels"))
    assert labels == ["The", "river/city", "bank"]
    assert difference_table(one, other)["from"].tolist()[2:5] == ["The", "river/city", "river/city"]


def test_rows_of_the_table_of_long_maps_are_blocks():
    trace = make_trace([f"w{n}" for n in range(130)], 1, 2)
    table = difference_table(trace[0, 0], trace[0, 1])
    assert len(table) == 64 * 64
    assert [*table] == ["row", "column", "difference"]
    change = trace[0, 1].weights() - trace[0, 0].weights()
    row, col, stop_row, stop_col = (int(table[name].unique()[at]) for at in (20, 21) for name in ("row", "column"))
    wanted = change[row:stop_row, col:stop_col].mean().item()
    found = table[(table["row"] == row) & (table["column"] == col)]["difference"].item()
    assert found == pytest.approx(wanted, abs=1e-6)
