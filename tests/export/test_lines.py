"""The page of lines: its weights, its size, and what a browser does with it."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
from hostile import TOKENS
from traces import make_trace

from attnviz.errors import BudgetError, UsageError
from attnviz.export import export, figure, render
from attnviz.head import Record
from attnviz.trace import Trace
from attnviz.views import Dense


def data_of(page):
    return json.loads(re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1])


def weights_of(layer, rows, cols):
    codes = np.frombuffer(zlib.decompress(base64.b64decode(layer["codes"])), np.uint8)
    return (codes.reshape(-1, cols, rows).transpose(0, 2, 1) / 255.0) ** 2


def test_the_page_holds_every_weight_in_8_bits(trace):
    data = data_of(render(figure(trace, "lines"), "html").decode())
    assert data["queries"] == ["The", "bank", "of", "the", "bank"]
    assert [layer["heads"] for layer in data["layers"]] == [[0, 1, 2], [0, 1, 2]]
    for layer in data["layers"]:
        for number, found in enumerate(weights_of(layer, 5, 5)):
            weights = trace[layer["layer"], number].weights().numpy()
            assert np.abs(np.sqrt(found) - np.sqrt(weights)).max() <= 0.5 / 255 + 1e-6


def test_cross_attention_has_two_sets_of_tokens():
    weights = torch.softmax(torch.randn(1, 2, 3, 4, generator=torch.Generator().manual_seed(0)), -1)
    trace = Trace("pair", [Record("cross", 0, "cross", "tap", "dense", Dense(weights))])
    data = data_of(render(figure(trace, "lines"), "html").decode())
    assert (len(data["queries"]), len(data["keys"])) == (3, 4)
    found = weights_of(data["layers"][0], 3, 4)
    assert np.abs(found - weights[0].numpy()).max() < 0.004


def test_size_at_128_tokens(minilm):
    import attnviz

    text = " ".join(str(7919 * number % 9973) for number in range(400))
    model, tokenizer = minilm
    ids = tokenizer(text, truncation=True, max_length=128)["input_ids"]
    found = attnviz.inspect((model, tokenizer), tokenizer.decode(ids[1:-1]))
    assert 100 < len(found.tokens) <= 128
    assert len(render(figure(found, "lines"), "html")) <= 1_100_000


def test_texts_that_are_too_long_and_maps_that_differ():
    long = make_trace(["a"] * 2400, 1, 6)
    with pytest.raises(
        BudgetError,
        match=r"^the page of lines holds every weight of 6 heads, 34,560,000, .*: export a text of up to 2,364 tokens$",
    ):
        render(figure(long, "lines"), "html")
    maps = [torch.eye(2)[None, None], torch.eye(3)[None, None]]
    records = [Record(f"a{n}", n, "self", "tap", "dense", Dense(weights)) for n, weights in enumerate(maps)]
    with pytest.raises(UsageError, match=r"^the page of lines needs maps of one shape in all layers, got 2 shapes$"):
        render(figure(Trace("two", records), "lines"), "html")


def told(page):
    return page.locator("#told").inner_text()


@pytest.mark.browser
def test_hover_click_keys_layer_and_heads(trace, visit, tmp_path):
    found = visit(export(figure(trace, "lines"), tmp_path / "lines.html"))
    page = found.page
    page.wait_for_function("document.getElementById('told').textContent.includes('strongest links')")

    page.locator("#queries li").nth(3).hover()
    page.wait_for_function("document.getElementById('told').textContent.startsWith('from 3 the')")
    best = max((trace[0, h].weights()[3, c].item(), h, c) for h in range(3) for c in range(5))
    shown = re.search(r"from 3 the: (\d) \w+ ([\d.]+) \(head (\d)\)", told(page))
    assert (int(shown[1]), int(shown[3])) == (best[2], best[1])
    assert float(shown[2]) == pytest.approx(best[0], abs=0.005)

    page.locator("#layer").select_option(label="1")
    page.mouse.move(0, 0)
    page.locator("#heads input").nth(0).uncheck()
    page.locator("#heads input").nth(1).uncheck()
    page.locator("#keys li").nth(0).click()
    page.wait_for_function("document.getElementById('told').textContent.startsWith('to 0 The')")
    page.mouse.move(0, 0)
    assert set(re.findall(r"\(head (\d)\)", told(page))) == {"2"}
    best = trace[1, 2].weights()[:, 0].argmax().item()
    assert told(page).startswith(f"to 0 The: {best} ")

    page.locator("#scroller").press("ArrowDown")
    page.wait_for_function("document.getElementById('told').textContent.startsWith('to 1 bank')")
    page.locator("#scroller").press("Escape")
    page.wait_for_function("document.getElementById('told').textContent.includes('strongest links')")
    assert (found.dialogs, found.outside, found.errors) == ([], [], [])


@pytest.mark.browser
def test_of_many_heads_one_is_shown_until_others_are_chosen(visit, tmp_path):
    page = visit(export(figure(make_trace(layers=2, heads=6), "lines"), tmp_path / "lines.html")).page
    page.wait_for_function("document.getElementById('told').textContent.includes('strongest links')")
    checked = page.locator("#heads input:checked")
    assert checked.count() == 1
    page.locator("#heads input").nth(3).check()
    page.locator("#layer").select_option(label="1")
    page.wait_for_function("document.getElementById('layer').value === '1'")
    assert checked.count() == 2
    page.locator("#all").click()
    assert checked.count() == 6


@pytest.mark.browser
def test_lines_stay_at_their_tokens_when_scrolled(visit, tmp_path):
    trace = make_trace([f"w{n}" for n in range(120)], 1, 1)
    page = visit(export(figure(trace, "lines"), tmp_path / "lines.html")).page
    page.locator("#scroller").press("ArrowUp")
    page.wait_for_function("document.getElementById('told').textContent.startsWith('from 119')")
    place = page.evaluate(
        """() => {
            const canvas = document.getElementById("lines"), ratio = devicePixelRatio || 1;
            const item = document.querySelector("#queries li.here").getBoundingClientRect();
            const top = (item.top - canvas.getBoundingClientRect().top) * ratio;
            const strip = canvas.getContext("2d").getImageData(0, 0, 2, canvas.height).data;
            const rows = [];
            for (let y = 0; y < canvas.height; y++) if (strip[y * 8 + 3] > 0) rows.push(y);
            return [top, top + item.height * ratio, Math.min(...rows), Math.max(...rows)];
        }"""
    )
    top, bottom, first, last = place
    assert top <= first <= last <= bottom


@pytest.mark.browser
@pytest.mark.parametrize("view", ["lines", "map"])
def test_hostile_tokens_stay_text(hostile, visit, tmp_path, view):
    found = visit(export(figure(hostile, view), tmp_path / "page.html"))
    found.page.wait_for_timeout(300)
    if view == "lines":
        assert found.page.locator("#queries li").all_inner_texts()[0] == TOKENS[0]
        found.page.locator("#queries li").first.hover()
    assert (found.dialogs, found.outside, found.errors) == ([], [], [])
