"""`attnviz export`: every format of a real model's map, checked against its own eager attention; and bad input."""

import csv
import json
import os
import re

import pytest
import torch
from colours import weights_of

from attnviz.cli import entry as cli
from attnviz.export import FORMATS, VIEWS

TEXT = "The bank of the river was muddy."
pytestmark = pytest.mark.usefixtures("minilm")


def export(*arguments, capsys, code=0):
    assert cli.run(["export", "minilm", *map(str, arguments)]) == code
    return capsys.readouterr()


@pytest.fixture(scope="module")
def eager(minilm):
    """The model's own weights of layer 0, head 0."""
    model, tokenizer = minilm
    implementation = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        with torch.no_grad():
            found = model(**tokenizer(TEXT, return_tensors="pt"), output_attentions=True).attentions
    finally:
        model.set_attn_implementation(implementation)
    return found[0][0, 0]


def write(kind, tmp_path, capsys):
    path = tmp_path / f"bank.{kind}"
    arguments = ("--view", "heatmap", "--layer", "0", "--head", "0", "-o", path)
    assert export(TEXT, *arguments, capsys=capsys).out == f"{path}\n"
    return path


def test_json_and_csv_hold_the_models_own_weights(tmp_path, capsys, eager):
    found = json.loads(write("json", tmp_path, capsys).read_text(encoding="utf-8"))
    assert (found["model"], found["layer"], found["head"], found["view"]) == ("minilm", 0, 0, "heatmap")
    assert [token["text"] for token in found["queries"]][:4] == ["[CLS]", "The", "bank", "of"]
    assert found["keys"][2] == {"position": 2, "id": 2924, "token": "bank", "text": "bank", "label": "bank"}
    torch.testing.assert_close(torch.tensor(found["weights"]), eager, rtol=0, atol=1e-6)

    with write("csv", tmp_path, capsys).open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 100
    for row in rows:
        assert float(row["weight"]) == found["weights"][int(row["row"])][int(row["column"])]
    place = {name: rows[12][name] for name in ("model", "layer", "head", "row", "column", "from", "to")}
    assert place == {
        "model": "minilm", "layer": "0", "head": "0", "row": "1", "column": "2", "from": "The", "to": "bank"
    }  # fmt: skip


def spec_weights(spec):
    cells = next(iter(spec["datasets"].values()))
    return {(cell["query"], cell["key"]): cell["weight"] for cell in cells}


def test_html_holds_the_models_own_weights(tmp_path, capsys, eager):
    html = write("html", tmp_path, capsys).read_text(encoding="utf-8")
    spec = json.loads(re.search(r'<script type="application/json" id="spec">(.*?)</script>', html, re.S)[1])
    weights = spec_weights(spec)
    assert len(weights) == 100
    for (row, column), weight in weights.items():
        assert weight == pytest.approx(eager[row, column].item(), abs=1e-6)


def test_pictures_show_the_models_own_weights(tmp_path, capsys, eager):
    from io import BytesIO

    import numpy as np
    from PIL import Image

    svg = write("svg", tmp_path, capsys).read_text(encoding="utf-8")
    fills = re.findall(r'<path d="[^"]*h37[^"]*" fill="rgb\((\d+), (\d+), (\d+)\)"', svg)
    assert len(fills) == 100
    top = eager.max().item()
    shown = weights_of(np.array(fills, dtype=float), top).reshape(10, 10)
    assert np.abs(np.sqrt(shown) - np.sqrt(eager.numpy())).max() < 0.01
    assert Image.open(BytesIO(write("png", tmp_path, capsys).read_bytes())).size[0] > 500
    import pypdf

    text = pypdf.PdfReader(BytesIO(write("pdf", tmp_path, capsys).read_bytes())).pages[0].extract_text()
    assert {"Layer 0, head 0", "minilm", "[CLS]", "muddy", "weight"} <= {line.strip() for line in text.splitlines()}


@pytest.mark.parametrize("view", VIEWS)
def test_every_view(view, tmp_path, capsys):
    for kind in FORMATS if view != "lines" else ("html",):
        path = tmp_path / f"{view}.{kind}"
        export(TEXT, "--view", view, "-o", path, capsys=capsys)
        assert path.stat().st_size > 500


def test_options_of_a_figure_for_print(tmp_path, capsys):
    path = tmp_path / "figure"
    arguments = ("--format", "svg", "--theme", "paper", "--width", "85mm", "--font", "Liberation Serif", "-o", path)
    export(TEXT, *arguments, capsys=capsys)
    svg = path.read_text()
    assert 'width="321.26"' in svg
    assert 'font-family="Liberation Serif, ' in svg


def test_missing_glyphs_are_told_once(tmp_path, capsys):
    path = tmp_path / "map.png"
    err = export("\U00012000 \U00012000 \u0d9a bank", "-o", path, capsys=capsys).err
    assert re.fullmatch(r"warning: no font has \d+ of the characters, they are drawn as <U\+.*name its folder\n", err)
    assert path.stat().st_size > 500


def test_saved_trace_gives_the_same_numbers(tmp_path, capsys):
    import attnviz

    attnviz.inspect("minilm", TEXT).save(tmp_path / "run.attn")
    assert cli.run(["export", str(tmp_path / "run.attn"), "-o", str(tmp_path / "saved.json")]) == 0
    export(TEXT, "-o", tmp_path / "live.json", capsys=capsys)
    saved, live = (json.loads((tmp_path / name).read_text(encoding="utf-8")) for name in ("saved.json", "live.json"))
    torch.testing.assert_close(torch.tensor(saved.pop("weights")), torch.tensor(live.pop("weights")))
    assert saved == live


FORMAT = "format must be one of svg, png, pdf, html, json, csv, parquet"
BAD = [
    (["", "-o", "x.svg"], 2, "the text is empty: give it as an argument, with --file, or through a pipe"),
    (["word " * 600, "-o", "x.svg"], 2, "the text has 602 tokens, this model reads 512 at most: give a shorter text"),
    ([TEXT, "-o", "x.gif"], 2, f"{FORMAT}, the file is called 'x.gif': choose an ending or give the format"),
    ([TEXT, "-o", "x"], 2, f"{FORMAT}, the file is called 'x': choose an ending or give the format"),
    ([TEXT, "-o", "x.svg", "--format", "bmp"], 2, f"{FORMAT}, got 'bmp': choose an ending or give the format"),
    ([TEXT, "-o", "no/x.svg"], 2, "the folder no does not exist: create it first or choose another place"),
    ([TEXT, "-o", "folder.svg"], 2, "folder.svg is a folder: name a file in it"),
    ([TEXT, "-o", "x.svg", "--layer", "9"], 2, "layer 9 does not exist: this trace has 6 layers (0 to 5)"),
    (
        [TEXT, "-o", "x.svg", "--head", "12"],
        2,
        "head 12 does not exist: layer 0 of this trace has 12 heads (0 to 11)",
    ),
    (
        [TEXT, "-o", "x.svg", "--view", "pie"],
        2,
        "view must be one of heatmap, heads, entropy, links, thumbnails, scaling, map, gradients, mask, "
        "one-or-many, order, cost, lines, got 'pie'",
    ),
    (
        [TEXT, "-o", "x.svg", "--view", "heads", "--layer", "1"],
        2,
        "the view heads shows all heads: leave out layer and head",
    ),
    ([TEXT, "-o", "x.svg", "--view", "lines"], 2, "the view lines is a page: choose the format html, not svg"),
    ([TEXT, "-o", "x.svg", "--theme", "neon"], 2, "theme must be one of screen, paper, dark, got 'neon'"),
    ([TEXT, "-o", "x.svg", "--width", "wide"], 2, "width must be a number of mm, cm, in or px from 40 to 10,000 px"),
    ([TEXT, "-o", "x.svg", "--width", "1m"], 2, "width must be a number of mm, cm, in or px from 40 to 10,000 px"),
    ([TEXT, "-o", "x.svg", "--font", "Liberation Sanz"], 2, "no font 'Liberation Sanz' is installed: try Liberation"),
    ([TEXT, "-o", "x.svg", "--font-dir", "folder.svg"], 2, "the folder folder.svg holds no fonts"),
    ([TEXT], 2, "Missing option '--output'"),
]


@pytest.mark.parametrize(("arguments", "code", "line"), BAD, ids=[" ".join(given[1:])[:30] for given, _, _ in BAD])
def test_bad_input(arguments, code, line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder.svg").mkdir()
    (tmp_path / "x.svg").write_text("old")
    found = export(*arguments, capsys=capsys, code=code)
    assert found.out == ""
    assert found.err.startswith(f"error: {line}")
    assert found.err.count("\n") == 1
    assert (tmp_path / "x.svg").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.svg", "x.svg"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_folder_that_may_not_be_written_to(tmp_path, capsys):
    tmp_path.chmod(0o500)
    err = export(TEXT, "-o", tmp_path / "x.svg", capsys=capsys, code=2).err
    assert err == f"error: the folder {tmp_path} cannot be written to: choose another place\n"
