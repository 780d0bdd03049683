"""Exported pages in a real browser: they draw, ask for nothing, and tokens stay text."""

import pytest
from hostile import TOKENS

from attnviz.export import VIEWS, Look, export, figure

pytestmark = pytest.mark.browser


DRAWN = [view for view in VIEWS if view not in ("map", "lines", "order")]


@pytest.mark.parametrize("view", DRAWN)
def test_page_draws_offline_and_runs_no_token(hostile, visit, tmp_path, view):
    found = visit(export(figure(hostile, view), tmp_path / "page.html"))
    assert found.page.locator("svg path, svg rect, svg image").count() > 5
    assert (found.dialogs, found.outside, found.errors) == ([], [], [])


def test_token_is_seen_as_text_on_the_axis_and_in_the_tooltip(hostile, visit, tmp_path):
    found = visit(export(figure(hostile, "heatmap"), tmp_path / "page.html"))
    labels = found.page.locator("svg text").all_text_contents()
    assert "</script><scrip…" in labels
    assert "'+alert(3)+'" in labels
    assert "\u2068שלום\u2069" in labels
    assert labels.count("bank") == 4
    found.page.locator("svg g.mark-rect path").first.hover()
    tooltip = found.page.locator("#vg-tooltip-element")
    assert TOKENS[0] in tooltip.inner_text()
    assert tooltip.locator("script, img").count() == 0
    assert found.dialogs == []


def test_page_whose_title_and_model_are_hostile(hostile, visit, tmp_path):
    from dataclasses import replace

    found = visit(export(figure(replace(hostile, model=TOKENS[0]), "heads"), tmp_path / "page.html"))
    assert TOKENS[0] in found.page.title()
    assert (found.dialogs, found.outside, found.errors) == ([], [], [])


INK = """canvas => {
  const context = canvas.getContext("2d");
  return context.getImageData(0, 0, 1, canvas.height).data.filter((part, at) => at % 4 === 3 && part > 0).length;
}"""


def test_names_of_the_axes_of_a_map_are_whole_on_a_phone(visit, tmp_path):
    from traces import make_trace

    page = visit(export(figure(make_trace(["a"] * 70, 1, 1), "map"), tmp_path / "map.html")).page
    page.set_viewport_size({"width": 390, "height": 700})
    page.reload()
    page.wait_for_function("document.querySelector('canvas').height > 300")
    page.wait_for_timeout(300)
    assert page.locator("canvas").first.evaluate(INK) == 0


def test_controls_are_as_dark_as_the_page(trace, visit, tmp_path):
    shades = []
    for theme in ("paper", "dark"):
        page = visit(export(figure(trace, "scaling"), tmp_path / f"{theme}.html", look=Look(theme))).page
        shades.append(page.evaluate("document.querySelector('meta[name=color-scheme]').content"))
        shades.append(page.locator("select").evaluate("found => getComputedStyle(found).backgroundColor"))
    assert shades[::2] == ["light", "dark"]
    assert shades[1] != shades[3]


def test_svg_opened_by_itself_runs_nothing(hostile, visit, tmp_path):
    for view in DRAWN:
        found = visit(export(figure(hostile, view), tmp_path / f"{view}.svg"))
        assert (found.dialogs, found.outside, found.errors) == ([], [], [])
        assert found.page.locator("script").count() == 0


def _words(page):
    return next(text for text in page.locator("svg text").all_text_contents() if text.startswith("query "))


def test_walkthrough_follows_slider_select_and_click(trace, visit, tmp_path):
    import torch

    head = trace[0, 0]
    page = visit(export(figure(trace, "scaling"), tmp_path / "page.html")).page
    assert _words(page).endswith(f"entropy {head.entropy[4]:.3f} of at most {torch.log(torch.tensor(5.0)):.3f} nats")

    page.locator("select").select_option(label="2 of")
    page.wait_for_function("document.body.textContent.includes('query 2 “of”')")
    assert f"entropy {head.entropy[2]:.3f}" in _words(page)

    slider = page.locator("input[type=range]")
    slider.evaluate("(input, value) => { input.value = value; input.dispatchEvent(new Event('input')); }", "1")
    page.wait_for_function("document.body.textContent.includes('divisor 1.0')")
    divisor = float(slider.input_value())
    view = head.view.view
    scores = (view.query[0, 0, 2].double() @ view.key[0, 0, :3].double().T) / divisor
    weights = torch.softmax(scores, 0)
    assert f"entropy {-torch.xlogy(weights, weights).sum():.3f}" in _words(page)

    cells = page.locator("g.mark-rect").first.locator("path")
    cells.nth(1).click()
    page.wait_for_function("document.body.textContent.includes('query 1 “bank”')")
    assert page.locator("select").input_value() == "1"
