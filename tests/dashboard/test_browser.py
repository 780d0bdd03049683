"""What only a real browser shows: clicks, addresses, keys, errors, requests, markup."""

import json
import urllib.request

import pytest
from dashboard import browsing

from attnviz.dashboard.shell import PAGES

pytestmark = pytest.mark.browser

LETTERS = """texts => texts.map((text) => {
    const chart = text.closest("svg");
    const scale = chart.getBoundingClientRect().width / chart.getAttribute("width");
    return parseFloat(getComputedStyle(text).fontSize) * scale;
})"""
"""The size of each text as it is seen, in pixels."""


def cell(page, layer, head):
    return page.locator(f'path[aria-label^="head: {head}; layer: {layer};"]')


def test_a_click_in_the_grid_shows_the_head_and_the_address_keeps_it(visitor):
    page = visitor.go("?model=words.attn")
    cell(page, 2, 3).click()
    browsing.wait_for_query(page, layer=2, head=3)
    page.get_by_text("Layer 2, head 3", exact=True).wait_for()
    page.goto(page.url.replace("head=3", "head=1"))
    page.get_by_text("Layer 2, head 1", exact=True).wait_for()
    page.reload()
    page.get_by_text("Layer 2, head 1", exact=True).wait_for()


def test_the_selected_head_goes_along_to_other_pages(visitor):
    page = visitor.go("?model=words.attn&layer=1&head=2")
    page.get_by_role("link", name="Map").click()
    page.wait_for_url("**/map?*")
    browsing.wait_for_query(page, layer=1, head=2)
    page.get_by_role("application", name="layer 1 head 2").wait_for()


def test_a_small_map_can_be_clicked(visitor):
    page = visitor.go("?model=words.attn&view=Maps")
    page.locator(".stVegaLiteChart image").nth(1 * 4 + 2).click()
    browsing.wait_for_query(page, layer=1, head=2)
    page.get_by_text("Layer 1, head 2", exact=True).wait_for()


def test_layer_and_head_by_keyboard(visitor):
    page = visitor.go("?model=words.attn&layer=0&head=0")
    page.get_by_role("combobox", name="Head").focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=option][data-focused=true]").wait_for()
    page.keyboard.press("Enter")
    browsing.wait_for_query(page, head=1)
    page.get_by_text("Layer 0, head 1", exact=True).wait_for()


def test_tokens_are_picked_by_mouse_and_keyboard(visitor):
    page = visitor.go("map?model=words.attn")
    tokens = page.get_by_role("listbox", name="Tokens shaded by weight").get_by_role("option")
    assert tokens.all_inner_texts() == list(browsing.WORDS)
    tokens.nth(4).click()
    browsing.wait_for_query(page, token=4)
    page.get_by_text("river looks at", exact=True).wait_for()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Enter")
    browsing.wait_for_query(page, token=5)
    page.get_by_text("was looks at", exact=True).wait_for()


@pytest.mark.parametrize("page_name", PAGES)
def test_hostile_tokens_stay_text(visitor, page_name):
    page = visitor.go(f"{page_name if page_name != 'heads' else ''}?model=hostile.attn")
    assert page.locator("img[src*='attnviz.example']").count() == 0
    assert page.locator(".katex").count() == 0
    if page_name == "map":
        tokens = page.get_by_role("listbox", name="Tokens shaded by weight").get_by_role("option")
        assert tokens.nth(0).inner_text() == browsing.HOSTILE[0]
        assert tokens.nth(4).inner_text() == "a" * 300
    if page_name == "walkthrough":
        assert page.locator("select[name=chosen_query] option").nth(1).inner_text().startswith("1 ![](http")


@pytest.mark.parametrize("page_name", PAGES)
def test_no_page_is_wider_than_a_phone_and_its_charts_can_be_read(visitor, page_name):
    visitor.page.set_viewport_size({"width": 360, "height": 740})
    runs_again = page_name in ("causes", "coreference", "dependencies")
    model = "pair.attn" if page_name == "alignment" else "bert" if runs_again else "words.attn"
    page = visitor.go(f"{page_name if page_name != 'heads' else ''}?model={model}")
    name = page.get_by_role("heading", level=1)
    assert name.inner_text() == PAGES[page_name][0]
    assert name.bounding_box()["height"] > 20
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    assert page.evaluate("document.querySelector('.stMain').scrollWidth") <= 360
    parts = ".stVegaLiteChart, .figure-title, .figure-subtitle, .stButtonGroup button"
    ends = page.locator(parts).evaluate_all("parts => parts.map((part) => part.getBoundingClientRect().right)")
    assert all(end <= 360 for end in ends)
    sizes = page.locator(".stVegaLiteChart svg text").evaluate_all(LETTERS)
    assert page_name in ("map", "compare") or len(sizes) > 4
    assert all(size >= 9.99 for size in sizes)


def test_a_view_leaves_as_a_file(visitor):
    page = visitor.go("map?model=words.attn&layer=1&head=2")
    page.get_by_role("button", name="Export").click()
    with page.expect_download() as download:
        page.get_by_role("button", name="json", exact=True).click()
    assert download.value.suggested_filename == "tiny-layer1-head2-map.json"
    document = json.loads(download.value.path().read_text("utf-8"))
    assert (document["layer"], document["head"]) == (1, 2)
    assert [token["text"] for token in document["keys"]] == list(browsing.WORDS)


@pytest.mark.parametrize(("scheme", "ground"), [("light", "rgb(255, 255, 255)"), ("dark", "rgb(20, 23, 29)")])
def test_charts_have_the_ground_of_the_page(visitor, scheme, ground):
    visitor.page.emulate_media(color_scheme=scheme)
    page = visitor.go("?model=words.attn")
    for element in (".stApp", ".stVegaLiteChart svg"):
        colour = f"getComputedStyle(document.querySelector('{element}')).backgroundColor"
        assert page.evaluate(colour) == ground


def test_the_running_server_protects_itself(server):
    answer = urllib.request.urlopen(f"{server}/_stcore/health")
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    foreign = urllib.request.Request(server, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(foreign)
