"""Wrong calls of charts and exports: one line each, before anything is drawn."""

import re

import pytest
from traces import make_trace

import attnviz
from attnviz import charts
from attnviz.errors import UsageError
from attnviz.export import Look, export, figure, pixels, render

WIDTH = r"width must be a number of pixels \(attnviz.export.pixels\(\"85mm\"\) gives one\), got "
CALLS = {
    "heatmap in millimetres": (lambda trace: charts.heatmap(trace[0, 0], width="85mm"), f"{WIDTH}'85mm'"),
    "heatmap of no width": (lambda trace: charts.heatmap(trace[0, 0], width=0), f"{WIDTH}0"),
    "links of no width": (lambda trace: charts.links(trace[0, 0], width=-5), f"{WIDTH}-5"),
    "bars of no width": (lambda trace: charts.token_bars(trace.tokens, [0.5] * 5, "", width="a"), f"{WIDTH}'a'"),
    "costs of no width": (lambda trace: figure(trace, "cost").chart("600"), f"{WIDTH}'600'"),
    "entropy of nothing": (
        lambda trace: charts.entropy(None),
        r"the source of this chart must be one head, such as trace\[2, 4\], or a whole trace, got None",
    ),
    "difference from nothing": (
        lambda trace: charts.difference(trace[0, 0], None),
        r"the source of this chart must be one head, such as trace\[2, 4\], got None",
    ),
    "a column that is not there": (
        lambda trace: charts.score_grid(trace.heads(), "speed", ""),
        r"the table must have a column 'speed': it has layer, head, entropy, .*",
    ),
    "a change that is not there": (
        lambda trace: charts.change_grid(trace.heads().drop(columns="head"), "entropy", ""),
        r"the table must have a column 'head': it has layer, entropy, .*",
    ),
    "scores of other tokens": (
        lambda trace: charts.token_bars(trace.tokens, [0.1, 0.2], ""),
        r"every token has one score: there are 5 tokens and 2 scores",
    ),
    "a theme that is none": (lambda trace: Look("neon"), r"theme must be one of screen, paper, dark, got 'neon'"),
    "a theme that is no text": (
        lambda trace: Look(["paper"]),
        r"theme must be one of screen, paper, dark, got \['paper'\]",
    ),
    "a look in millimetres": (lambda trace: Look(width="85mm"), f"{WIDTH}'85mm'"),
    "a look of no width": (lambda trace: Look(width=0), f"{WIDTH}0"),
    "no dots per inch": (lambda trace: Look(dpi=0), r"dpi must be a whole number from 1 on, got 0"),
    "one folder": (lambda trace: Look(font_folders="fonts"), r"font_folders must be a list of folders, got 'fonts'"),
    "a width without unit": (lambda trace: pixels(85), r"width must be text with a unit, such as 85mm, got 85"),
    "a format that is a number": (
        lambda trace: export(figure(trace), "x.svg", 3),
        r"format must be one of svg, .*, got 3: choose an ending or give the format",
    ),
    "a trace as a picture": (
        lambda trace: render(trace, "svg"),
        r"pictures and pages show a figure or a chart, got a Trace: a figure\(trace, view\) is one, .*",
    ),
    "a region that is one number": (
        lambda trace: figure(trace, "map", region=5),
        r"region must be a row and a column, such as \(4000, 6000\), got 5",
    ),
    "no links": (lambda trace: figure(trace, "links", count=0), r"count must be a whole number from 1 on, got 0"),
    "a query before the first": (
        lambda trace: figure(trace, "scaling", query=-1),
        r"query must be a whole number from 0 on, got -1",
    ),
    "a layer that is text": (lambda trace: trace["0", 1], r"layer and head are whole numbers, got trace\['0', 1\]"),
    "a head that is a part": (lambda trace: trace[0, 1.0], r"layer and head are whole numbers, got trace\[0, 1.0\]"),
    "many layers": (lambda trace: trace[:, 0], r"layer and head are whole numbers, got trace\[slice\(None, .*"),
}


@pytest.mark.parametrize(("call", "line"), CALLS.values(), ids=CALLS)
def test_wrong_calls_are_refused_in_one_line(call, line):
    with pytest.raises(UsageError, match=f"^{line}$"):
        call(make_trace())


def test_folders_of_fonts_may_be_text():
    from pathlib import Path

    assert Look(font_folders=["a", Path("b")]).font_folders == (Path("a"), Path("b"))


def test_what_is_offered_is_what_there_is_to_use():
    assert dir(charts) == sorted(charts.__all__)
    assert dir(attnviz.export) == sorted(attnviz.export.__all__)
    assert "export" in dir(attnviz)
    assert all(re.match(r"[A-Za-z]", name) for name in dir(attnviz.export))


def test_numbers_of_heads_as_numpy_and_torch_have_them():
    import numpy
    import torch

    head = make_trace()[numpy.int64(1), torch.tensor(2)]
    assert (head.layer, head.head, type(head.head)) == (1, 2, int)


def test_blocks_of_thumbnails_say_where_they_begin():
    trace = make_trace(["a"] * 130, layers=1, heads=1)
    shown = figure(trace, "thumbnails")
    (found,) = shown.document()["maps"]
    table = shown.table()
    assert found["rows"] == found["columns"] == sorted(set(table["row"])) == sorted(set(table["column"]))
    assert (len(found["rows"]), found["rows"][:2]) == (64, [0, 2])
    assert (table["row"].tolist()[:65], table["column"].tolist()[:2]) == ([0] * 64 + [2], [0, 2])
