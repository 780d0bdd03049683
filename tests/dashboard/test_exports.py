"""The lines under a view, run: they write the very files that the buttons give."""

import ast
import shlex

import pytest
from traces import make_trace, trace_of

import attnviz
from attnviz.cli import source
from attnviz.cli.entry import run
from attnviz.dashboard import exports
from attnviz.dashboard.runs import Wanted
from attnviz.dashboard.sidebar import Look
from attnviz.dashboard.walkthrough import at_toy
from attnviz.export import render

TEXT = 'The bank\'s "river" $HOME `x`\nwas muddy'
OFFERED = [
    ("heads", {"column": "distance"}),
    ("thumbnails", {}),
    ("thumbnails", {"shared": True}),
    ("entropy", {}),
    ("entropy", {"normalised": True}),
    ("entropy", {"layer": 1, "head": 2}),
    ("links", {"layer": 1, "head": 2}),
    ("links", {"layer": 1, "head": 2, "count": 3}),
    ("heatmap", {"layer": 1, "head": 2}),
    ("scaling", {"layer": 1, "head": 2}),
    ("gradients", {"layer": 1, "head": 2, "query": 0}),
    ("mask", {"layer": 1, "head": 2}),
    ("one-or-many", {"layer": 1, "head": 2}),
    ("cost", {"layer": 1, "head": 2}),
    ("map", {"layer": 0, "head": 1}),
    ("map", {"layer": 0, "head": 1, "words": True}),
]


def look_at(trace, wanted):
    return Look(wanted, trace, trace[1, 2], trace.kinds[0], trace)


@pytest.fixture
def trace():
    return make_trace(("The", "bank", "of", "the", "river"))


@pytest.fixture(params=["text", "-5 degrees", "file", "saved"])
def look(request, trace, tmp_path, monkeypatch):
    """What is looked at, where the model's runs are this trace."""
    monkeypatch.chdir(tmp_path)
    wanted = Wanted("minilm", request.param if request.param[0] == "-" else TEXT)
    if request.param == "file":
        (tmp_path / "a b.txt").write_text(TEXT)
        wanted = Wanted("minilm", TEXT, "a b.txt")
    if request.param == "saved":
        trace.save("run one.attn")
        wanted = Wanted("run one.attn", "")

    def recorded(model, text, *_):
        assert (model, text) == (wanted.model, wanted.text)
        return trace

    monkeypatch.setattr(attnviz, "inspect", recorded)
    monkeypatch.setattr(source, "_recorded", recorded)
    return look_at(trace, wanted)


@pytest.mark.parametrize(("view", "options"), OFFERED)
def test_both_lines_write_the_figure_that_is_offered(look, view, options, tmp_path, capsys):
    name = "map.html" if view == "map" else f"{view}.svg"
    wanted = render(exports.shown(look, view, options), name.rsplit(".", 1)[1])
    exec(compile(exports.python_lines(look, view, options), "lines", "exec"), {})
    assert (tmp_path / name).read_bytes() == wanted
    (tmp_path / name).unlink()
    assert run(shlex.split(exports.command(look, view, options))[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / name).read_bytes() == wanted


@pytest.mark.parametrize("view", ["scaling", "gradients", "mask", "one-or-many", "cost"])
def test_both_lines_write_the_figures_of_the_toy(view, trace, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    look = at_toy(look_at(trace, Wanted("minilm", TEXT)))
    options = {"layer": 0, "head": 0, **({"query": 1} if view == "gradients" else {})}
    wanted = render(exports.shown(look, view, options), "svg")
    exec(compile(exports.python_lines(look, view, options), "lines", "exec"), {})
    assert (tmp_path / f"{view}.svg").read_bytes() == wanted
    (tmp_path / f"{view}.svg").unlink()
    assert run(shlex.split(exports.command(look, view, options))[1:]) == 0, capsys.readouterr().err
    assert (tmp_path / f"{view}.svg").read_bytes() == wanted


def test_kinds_and_sequences_stand_in_the_lines():
    trace = make_trace(batch=2).sequence(1)
    look = Look(Wanted("run.attn", ""), trace, trace[0, 0], "self", trace)
    assert exports.trace_lines(look) == ["trace = attnviz.load('run.attn').sequence(1)"]
    assert exports.command(look, "heads", {}) == ""


def test_lines_hold_any_text_as_data():
    text = "'''\n\"\"\"; import os # `rm` $(rm) </script>"
    look = look_at(make_trace(), Wanted("minilm", text))
    tree = ast.parse(exports.python_lines(look, "heads", {}))
    assert [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value == text] == [text]
    assert shlex.split(exports.command(look, "heads", {}))[-1] == text


def test_files_are_named_after_what_they_show():
    look = look_at(make_trace(), Wanted("minilm", TEXT))
    look.trace.model = "my/mo del"
    assert exports.file_name(look, "heatmap", {"layer": 1, "head": 2}, "svg") == "my-mo-del-layer1-head2-heatmap.svg"
    assert exports.file_name(look, "heads", {"column": "first"}, "csv") == "my-mo-del-heads-first.csv"


def test_maps_too_large_for_tables_say_so(monkeypatch):
    monkeypatch.setattr(exports, "CELLS", 20)
    trace = trace_of([[[[0.2] * 5] * 5]])
    look = Look(Wanted("minilm", ""), trace, trace[0, 0], "self", trace)
    assert exports.too_many_numbers(look, "map") == "Tables hold up to 20 weights, this map has 25."
    assert exports.too_many_numbers(look, "heads") == ""
