"""Grid, entropy, links and thumbnails show the trace's own numbers."""

import math

import pytest
import torch
from traces import make_trace

from attnviz import charts
from attnviz.charts.grid import COLUMNS
from attnviz.errors import UsageError


@pytest.fixture(scope="module")
def trace():
    return make_trace(("The", "bank", "of", "the", "river"), layers=2, heads=3, causal=True)


def datasets(chart):
    return list(chart.to_dict()["datasets"].values())


@pytest.mark.parametrize("column", COLUMNS)
def test_grid_holds_the_table_of_heads(trace, column):
    chart = charts.head_grid(trace, column)
    assert chart.to_dict()["encoding"]["color"]["field"] == column
    (rows,) = datasets(chart)
    table = trace.heads()
    assert [(row["layer"], row["head"]) for row in rows] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]
    assert [row[column] for row in rows] == pytest.approx(table[column].tolist())


def test_every_column_of_the_table_is_offered(trace):
    assert ["layer", "head", *COLUMNS] == list(trace.heads().columns)


def test_unknown_column(trace):
    with pytest.raises(UsageError, match=r"^column must be one of entropy, .*, sink, got 'colour'$"):
        charts.head_grid(trace, "colour")


def test_entropy_by_layer_draws_the_bound(trace):
    spec = charts.entropy(trace).to_dict()
    (bound,) = [data[0]["entropy"] for data in spec["datasets"].values() if len(data) == 1]
    assert bound == pytest.approx(sum(math.log(count) for count in range(1, 6)) / 5)


def test_entropy_by_query(trace):
    head = trace[1, 2]
    (rows,) = datasets(charts.entropy(head))
    assert [row["entropy"] for row in rows] == pytest.approx(head.entropy.tolist())
    assert [row["most"] for row in rows] == pytest.approx([math.log(count) for count in range(1, 6)])
    assert all(row["entropy"] <= row["most"] + 1e-6 for row in rows)


def test_entropy_of_long_texts_is_a_line_in_a_band():
    head = make_trace([f"w{n}" for n in range(600)], 1, 1)[0, 0]
    spec = charts.entropy(head).to_dict()
    (rows,) = (data for data in spec["datasets"].values() if len(data) > 1)
    assert len(rows) == 256
    for row in (rows[0], rows[100], rows[-1]):
        part = head.entropy[row["query"] : row["last"] + 1]
        found = [row["least"], row["entropy"], row["highest"]]
        assert found == pytest.approx([part.min().item(), part.mean().item(), part.max().item()])
    assert rows[-1]["last"] == 599
    assert "line: means of up to 3 neighbouring queries; band: from their least" in spec["title"]["subtitle"]
    assert [layer["mark"]["type"] for layer in spec["layer"]] == ["rect", "line", "rule"]


def test_links_join_the_strongest_pairs(trace):
    head = trace[0, 1]
    points = next(data for data in datasets(charts.links(head, 4)) if "rank" in data[0])
    table = head.links(4)
    for rank, (row, column, weight) in enumerate(zip(table["row"], table["column"], table["weight"], strict=True)):
        curve = [point for point in points if point["rank"] == rank]
        assert [point["x"] for point in curve] == [0, 0.35, 0.65, 1]
        assert [point["place"] for point in curve] == pytest.approx([(row + 0.5) / 5] * 2 + [(column + 0.5) / 5] * 2)
        assert curve[0]["weight"] == pytest.approx(weight)


def test_links_of_a_long_text_list_only_tokens_they_touch():
    head = make_trace(["word"] * 65, 1, 1)[0, 0]
    spec = charts.links(head, 3).to_dict()
    labels = [row["label"] for data in spec["datasets"].values() for row in data if "label" in row]
    table = head.links(3)
    assert {f"{row} word" for row in table["row"]} | {f"{column} word" for column in table["column"]} <= {*labels}
    assert len(labels) <= 8


def test_thumbnails_have_one_picture_a_head(trace):
    (rows,) = datasets(charts.thumbnails(trace))
    assert len(rows) == 6
    assert len({row["picture"] for row in rows}) == 6
    expected = [head.weights().max().item() for head in trace.every_head()]
    assert [row["largest"] for row in rows] == pytest.approx(expected)


@pytest.mark.parametrize("width", [320, 700])
def test_width_is_kept(trace, width):
    import re

    import vl_convert

    views = (
        charts.heatmap(trace[0, 0], width=width),
        charts.head_grid(trace, width=width),
        charts.entropy(trace, width=width),
        charts.entropy(trace[0, 0], width=width),
        charts.links(trace[0, 0], width=width),
        charts.thumbnails(trace, width=width),
        charts.scaling(trace[0, 0], width=width),
    )
    for chart in views:
        svg = vl_convert.vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
        drawn = float(re.search(r'width="([\d.]+)"', svg)[1])
        assert 0.7 * width < drawn < 1.25 * width


def test_nan_rows_do_not_break_a_chart():
    from attnviz.head import Record
    from attnviz.trace import Trace
    from attnviz.views import Dense

    weights = torch.softmax(torch.zeros(1, 1, 4, 4), -1)
    weights[0, 0, 0] = 0
    trace = Trace("blind", [Record("a", 0, "self", "tap", "dense", Dense(weights))])
    rows = next(data for data in datasets(charts.entropy(trace[0, 0])) if len(data) == 4)
    assert rows[0]["entropy"] is None
    charts.head_grid(trace).to_dict()
    charts.entropy(trace).to_dict()


def test_entropy_of_a_long_text_is_drawn_in_blocks():
    head = make_trace(["a"] * 4097, 1, 1, causal=True)[0, 0]
    (rows,) = datasets(charts.entropy(head))
    assert len(rows) == 256
    assert [rows[0]["start"], rows[-1]["stop"]] == [0, 4097]
    for row in (rows[0], rows[100], rows[-1]):
        block = slice(int(row["start"]), int(row["stop"]))
        assert row["entropy"] == pytest.approx(head.entropy[block].mean().item(), abs=1e-5)
