"""Legends name the true ends of their scale; what is read here is the drawn picture."""

import re

import pandas as pd
import pytest
from traces import make_trace

from attnviz import charts
from attnviz.export import render


def drawn(chart):
    """The numbers of the legend, which come first in the picture."""
    svg = render(chart, "svg").decode()
    legend = svg[svg.index("role-legend-label") :].split("role-legend-title")[0]
    return [text.replace("\u2212", "-") for text in re.findall(r"<text[^>]*>([^<]*)</text>", legend)]


def table(*values):
    return pd.DataFrame({"layer": 0, "head": range(len(values)), "score": values})


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ((0.0312, 0.277), ["0.0312", "0.154", "0.277"]),
        ((0.0, 0.944, 0.5), ["0", "0.472", "0.944"]),
        ((0.333, 1.0), ["0.333", "0.666", "1"]),
        ((0.5, 0.5), ["0.5"]),
    ],
)
def test_scores_show_the_least_and_the_most(values, shown):
    assert drawn(charts.score_grid(table(*values), "score", "Scores")) == shown


@pytest.mark.parametrize(("values", "shown"), [((-0.277, 0.1), ["-0.277", "0", "+0.277"]), ((0.0, 0.0), ["0"])])
def test_changes_show_both_ends_and_a_zero_without_a_sign(values, shown):
    assert drawn(charts.change_grid(table(*values), "score", "Changes")) == shown


def test_maps_show_their_largest_weight():
    head = make_trace()[0, 0]
    most = f"{head.weights().max().item():.3g}"
    assert drawn(charts.heatmap(head))[-1] == most
    assert drawn(charts.difference(head, head)) == ["0"]


def test_grids_of_heads_show_the_least_and_the_most():
    trace = make_trace()
    column = trace.heads()["previous"]
    ends = [f"{value:.3g}" for value in (column.min(), column.max())]
    assert drawn(charts.head_grid(trace, "previous"))[::2] == ends
