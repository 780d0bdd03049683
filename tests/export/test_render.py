"""Formats: sizes, sameness of bytes, what does not fit, and the order of a PDF."""

import json
import re
import shutil
import socket
import subprocess
import sys
import xml.etree.ElementTree as ET
from io import BytesIO

import altair as alt
import numpy as np
import pandas as pd
import pypdf
import pytest
from hostile import TOKENS
from PIL import Image

from attnviz.errors import BudgetError, UsageError
from attnviz.export import FORMATS, VIEWS, Look, export, figure, pixels, render
from attnviz.export.render import _svg

DRAWN = [view for view in VIEWS if view not in ("lines", "order")]
PICTURES = ("svg", "png", "pdf", "html")


@pytest.mark.parametrize("view", DRAWN)
@pytest.mark.parametrize("kind", FORMATS)
def test_same_input_same_bytes(trace, view, kind):
    assert render(figure(trace, view), kind) == render(figure(trace, view), kind)


SCRIPT = """
import hashlib, sys
sys.path.insert(0, sys.argv[1])
from traces import make_trace
from attnviz.export import figure, render
trace = make_trace(("The", "bank", "of", "the", "bank"), layers=2, heads=3, causal=True)
render(figure(trace, "heads"), "svg")
for view in ("heatmap", "links", "scaling"):
    for kind in ("svg", "pdf", "png"):
        print(hashlib.sha256(render(figure(trace, view), kind)).hexdigest())
"""


def test_same_bytes_in_another_process(request):
    tests = str(request.config.rootpath / "tests")
    runs = [
        subprocess.run(
            [sys.executable, "-c", SCRIPT, tests],
            capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed, "PATH": "/usr/bin:/bin"},
        ).stdout
        for seed in ("1", "2")
    ]  # fmt: skip
    assert runs[0].count("\n") == 9
    assert runs[0] == runs[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("85mm", 85 / 25.4 * 96), ("8.5cm", 85 / 25.4 * 96), ("3in", 288), ("600px", 600)],
)
def test_pixels(text, expected):
    assert pixels(text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["", "mm", "85pt", "-5mm", "10px", "2m", "1e3", "inf", "20000px", "85", "600"])
def test_widths_that_are_none(text):
    with pytest.raises(UsageError, match=r"^width must be a number of mm, cm, in or px from 40 to 10,000 px, such as"):
        pixels(text)


def test_widths_in_scripts_and_docs_are_widths(request):
    root = request.config.rootpath
    files = [root / "README.md", *(root / "scripts").iterdir(), *(root / "docs").glob("*.md")]
    found = [width for file in files for width in re.findall(r"--width (\S+)", file.read_text(encoding="utf-8"))]
    assert len(found) >= 3
    assert all(pixels(width) for width in found)


@pytest.mark.parametrize("view", DRAWN)
def test_width_is_met_in_every_format(trace, view):
    look = Look(width=pixels("85mm"), dpi=300)
    root = ET.fromstring(render(figure(trace, view), "svg", look))
    assert float(root.get("width")) == pytest.approx(85 / 25.4 * 96, rel=1e-4)
    assert Image.open(BytesIO(render(figure(trace, view), "png", look))).width == pytest.approx(85 / 25.4 * 300, abs=1)
    (page,) = pypdf.PdfReader(BytesIO(render(figure(trace, view), "pdf", look)), strict=True).pages
    assert float(page.mediabox.width) == pytest.approx(85 / 25.4 * 72, rel=1e-3)


def test_png_says_its_resolution(trace):
    image = Image.open(BytesIO(render(figure(trace), "png", Look(dpi=300))))
    assert image.info["dpi"] == pytest.approx((300, 300), abs=0.1)


@pytest.mark.skipif(shutil.which("pdftoppm") is None, reason="needs pdftoppm: apt-get install poppler-utils")
@pytest.mark.parametrize("view", DRAWN)
def test_pdf_looks_like_the_png(trace, view, tmp_path):
    export(figure(trace, view), tmp_path / "a.pdf")
    subprocess.run(["pdftoppm", "-r", "96", "-png", "-singlefile", tmp_path / "a.pdf", tmp_path / "a"], check=True)
    drawn = Image.open(tmp_path / "a.png").convert("RGB")
    expected = Image.open(BytesIO(render(figure(trace, view), "png", Look(dpi=96)))).convert("RGB").resize(drawn.size)
    # thin lines are smoothed in other ways: at half the size that counts less than where they run
    half = [np.asarray(picture.reduce(2), float).ravel() for picture in (drawn, expected)]
    likeness = np.corrcoef(*half)[0, 1]
    assert likeness > 0.95


def test_pdf_has_text_as_text_and_its_fonts(trace):
    reader = pypdf.PdfReader(BytesIO(render(figure(trace), "pdf")), strict=True)
    text = reader.pages[0].extract_text()
    assert text.count("bank") == 4
    fonts = reader.pages[0]["/Resources"]["/Font"]
    assert fonts
    assert all("+" in fonts[name]["/BaseFont"] for name in fonts)
    assert "/CreationDate" not in reader.metadata


def test_svg_is_well_formed_and_holds_tokens_as_text(hostile):
    for view in DRAWN:
        root = ET.fromstring(render(figure(hostile, view), "svg"))
        names = {element.tag.rpartition("}")[2] for element in root.iter()}
        assert not names & {"script", "foreignObject", "style", "a", "use", "iframe"}
        for element in root.iter():
            assert not any(name.lower().startswith("on") for name in element.attrib)
            link = element.get("{http://www.w3.org/1999/xlink}href") or element.get("href") or "data:image/png"
            assert link.startswith("data:image/png")
    texts = [
        element.text for element in ET.fromstring(render(figure(hostile, "heatmap"), "svg")).iter() if element.text
    ]
    assert "</script><scrip…" in texts
    assert "␛[31mred␇" in texts
    assert "line⏎break⇥tab" in texts


def test_json_keeps_hostile_tokens_whole(hostile):
    found = json.loads(render(figure(hostile), "json"))
    assert [token["text"] for token in found["queries"]] == list(TOKENS)


def test_lone_surrogates_do_not_break_a_file():
    from dataclasses import replace

    from traces import make_trace

    trace = make_trace(("a", "b"), 1, 1)
    axis = trace.axes["self"][0]
    broken = replace(axis, tokens=(replace(axis.tokens[0], text="\udc80", raw="\udc80"), axis.tokens[1]))
    trace.axes["self"] = (broken,)
    assert json.loads(render(figure(trace), "json"))["keys"][0]["text"] == "\udc80"
    for kind in PICTURES:
        assert render(figure(trace), kind)


def test_gradients_are_counted_from_zero(trace):
    spec = figure(trace).chart().to_dict()
    _svg(spec)
    assert 'id="gradient_0"' in _svg(spec)
    assert 'url(#gradient_0)"' in _svg(spec)


def test_plain_charts_and_tables(tmp_path):
    table = pd.DataFrame({"x": range(6000), "y": [0.1] * 6000})
    chart = alt.Chart(table).mark_point().encode(x="x", y="y")
    assert export(chart, tmp_path / "plain.svg").read_text().startswith("<svg")
    with pytest.raises(alt.MaxRowsError):
        chart.to_dict()
    assert export(table.head(1), tmp_path / "table.csv").read_text() == "x,y\n0,0.1\n"
    assert json.loads(export(table.head(1), tmp_path / "table.json").read_text()) == [{"x": 0, "y": 0.1}]
    pytest.importorskip("pyarrow")
    pd.testing.assert_frame_equal(pd.read_parquet(export(table, tmp_path / "table.parquet")), table)
    with pytest.raises(
        UsageError, match=r"^json holds numbers: export a figure\(trace, view\) or a table, not a Chart$"
    ):
        export(chart, tmp_path / "plain.json")


@pytest.mark.parametrize("kind", ["svg", "png", "pdf"])
def test_no_address_is_asked_for(kind):
    # answers nobody: a request would be seen as a connection that waits
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}"
        picture = alt.Chart(pd.DataFrame({"url": [f"{address}/x.png"]})).mark_image().encode(url="url")
        with pytest.raises(UsageError, match=rf"^the chart refers to {address}/x.png: put the data into the chart"):
            render(picture, kind)
        with pytest.raises(UsageError, match=r"^the chart cannot be drawn: "):
            render(alt.Chart(f"{address}/data.json").mark_point(), kind)
        server.settimeout(0.2)
        with pytest.raises(TimeoutError):
            server.accept()


def test_maps_too_large_for_json():
    from traces import make_trace

    with pytest.raises(
        BudgetError, match=r"^json, csv and parquet hold at most 4,194,304 weights, this map has 4,202,500: "
    ):
        render(figure(make_trace(["a"] * 2050, 1, 1)), "csv")


def test_rows_that_see_no_key_are_null():
    import torch

    from attnviz.head import Record
    from attnviz.trace import Trace
    from attnviz.views import Dense

    weights = torch.eye(3)[None, None].clone()
    weights[0, 0, 0] = 0
    trace = Trace("blind", [Record("a", 0, "self", "tap", "dense", Dense(weights))])
    assert json.loads(render(figure(trace, "entropy", layer=0), "json"))["entropy"] == [None, 0.0, 0.0]
    assert render(figure(trace, "entropy", layer=0), "csv").decode().splitlines()[1] == "blind,0,0,0,0,,0"


@pytest.mark.parametrize("view", DRAWN)
def test_csv_and_json_of_every_view_agree(trace, view):
    found = json.loads(render(figure(trace, view), "json"))
    table = pd.read_csv(BytesIO(render(figure(trace, view), "csv")))
    assert (table["model"] == "tiny").all()
    if view in ("heatmap", "map"):
        assert table["weight"].tolist() == [weight for row in found["weights"] for weight in row]
    elif view == "thumbnails":
        assert table["mean"].tolist() == [mean for each in found["maps"] for row in each["means"] for mean in row]
    else:
        named = {"entropy": "heads", "scaling": "scores", "gradients": "divisors", "mask": "cells"}
        named |= {"one-or-many": "heads", "cost": "lengths"}
        records = found[named.get(view, view)]
        for name in set(records[0]) & set(table):
            if isinstance(records[0][name], int | float):
                assert table[name].tolist() == pytest.approx([record[name] for record in records])


def test_lines_are_a_page_only(trace):
    for kind in FORMATS:
        if kind != "html":
            with pytest.raises(UsageError, match=r"^the view lines is a page: choose the format html"):
                render(figure(trace, "lines"), kind)


def test_parquet_without_pyarrow(trace, monkeypatch):
    def missing(*_, **__):
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd.DataFrame, "to_parquet", missing)
    with pytest.raises(UsageError, match=r"^parquet needs pyarrow: pip install pyarrow$"):
        render(figure(trace, "heads"), "parquet")
