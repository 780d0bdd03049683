"""Exports byte by byte against tests/golden, which `pytest tests/export/test_golden.py --rewrite-golden` writes anew.

Weights are fractions of two, so that no processor rounds them differently; token texts are hostile.
"""

import re
from pathlib import Path

import pytest
import torch
from hostile import TOKENS
from traces import make_axis

from attnviz.export import Look, figure, pixels, render
from attnviz.head import Record
from attnviz.trace import Trace
from attnviz.views import Dense

GOLDEN = Path(__file__).parents[1] / "golden"


@pytest.fixture(scope="module")
def trace():
    first = torch.tensor([[1, 0, 0, 0], [0.5, 0.5, 0, 0], [0.25, 0.25, 0.5, 0], [0.125, 0.125, 0.25, 0.5]])
    second = torch.tensor([[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 0, 0], [0, 0, 1, 0.0]])
    record = Record("layers.0.attention", 0, "self", "tap", "dense", Dense(torch.stack([first, second])[None]))
    return Trace("golden", [record], {"self": (make_axis(("The", "bank", TOKENS[0], "bank")),)})


def same(name, content, request):
    path = GOLDEN / name
    if request.config.getoption("--rewrite-golden"):
        path.write_bytes(content)
    assert content == path.read_bytes(), f"{name} has changed; if that is meant, run with --rewrite-golden"


@pytest.mark.parametrize("view", ["heatmap", "links", "entropy"])
def test_svg(trace, view, request):
    layer = {"entropy": 0}.get(view)
    same(f"{view}.svg", render(figure(trace, view, layer=layer), "svg"), request)


def test_svg_for_print(trace, request):
    same("paper.svg", render(figure(trace), "svg", Look("paper", width=pixels("85mm"))), request)


def test_html_but_for_the_library(trace, request):
    html = render(figure(trace, head=1), "html", Look("dark")).decode()
    short = re.sub(r"(?<=<script>).*(?=</script>)", "the library", html, flags=re.DOTALL)
    assert len(html) - len(short) > 500_000
    same("heatmap.html", re.sub(r"sha256-[^']+", "sha256-...", short).encode(), request)


@pytest.mark.parametrize("view", ["heatmap", "links", "thumbnails"])
@pytest.mark.parametrize("kind", ["json", "csv"])
def test_numbers(trace, view, kind, request):
    same(f"{view}.{kind}", render(figure(trace, view), kind), request)
