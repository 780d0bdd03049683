"""The map in a real browser: what is drawn, read out, picked, zoomed and kept in the address."""

import pytest
from dashboard import browsing

import attnviz
from attnviz.viewer import restore, tile_bytes

pytestmark = pytest.mark.browser


def canvas(page):
    return page.get_by_role("application")


def settled(page):
    page.wait_for_timeout(100)  # until the frame is drawn that asks for tiles
    page.locator(".attnviz-map:not([data-busy])").wait_for()


def colour(page, x, y):
    """The pixel at a share of the canvas, as (red, green, blue)."""
    return canvas(page).evaluate(
        "(c, [x, y]) => [...c.getContext('2d').getImageData(c.width * x, c.height * y, 1, 1).data].slice(0, 3)", [x, y]
    )


def read_out(page):
    return page.locator(".attnviz-map output").inner_text().replace("\u2068", "").replace("\u2069", "")


def go(visitor, query):
    page = visitor.go(f"map?{query}")
    settled(page)
    return page


@pytest.fixture
def words(server_folder):
    return attnviz.load(server_folder / "words.attn")


def test_keys_read_out_the_weights_that_the_trace_has(visitor, words):
    page = go(visitor, "model=words.attn&layer=1&head=2&token=2&key=3")
    canvas(page).focus()
    page.keyboard.press("ArrowDown")
    weight = restore(tile_bytes(words[1, 2], 0, 0, 0))[3, 3].item()
    shown = f"{weight:.2f}" if weight >= 0.0995 else f"{weight:.2g}"
    assert read_out(page) == f"query 3 the → key 3 the: {shown}"


def test_a_click_on_a_cell_selects_its_row_and_column(visitor):
    page = go(visitor, "model=words.attn&layer=1&head=2&token=0&key=0")
    box = canvas(page).bounding_box()
    page.mouse.click(box["x"] + box["width"] - 40, box["y"] + box["height"] - 30)
    browsing.wait_for_query(page, token=6, key=6)
    page.get_by_text("muddy looks at", exact=True).wait_for()


def test_the_view_stays_when_a_cell_is_selected(visitor):
    page = go(visitor, "model=long.attn&layer=0&head=0&token=0&key=0")
    canvas(page).focus()
    page.keyboard.press("+")
    page.keyboard.press("+")
    settled(page)
    canvas(page).evaluate("canvas => (canvas.mark = 'same')")
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    browsing.wait_for_query(page, token=2, key=0)
    page.get_by_text("w2 looks at", exact=True).wait_for()
    assert canvas(page).evaluate("canvas => canvas.mark") == "same"
    settled(page)
    assert "max over" not in read_out(page)


def test_enter_selects(visitor):
    page = go(visitor, "model=words.attn&layer=0&head=0&token=2&key=2")
    canvas(page).focus()
    for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Enter"):
        page.keyboard.press(key)
    browsing.wait_for_query(page, token=4, key=3)


def test_the_key_side_reads_the_column(visitor, words):
    page = go(visitor, "model=words.attn&layer=1&head=2&token=2&key=5&side=To+the+key")
    page.get_by_text("was is looked at by", exact=True).wait_for()
    tokens = page.get_by_role("listbox", name="Tokens shaded by weight").get_by_role("option")
    titles = [tokens.nth(place).get_attribute("title") for place in range(tokens.count())]
    column = words[1, 2].weights()[:, 5].tolist()
    assert [title.rsplit(" ", 1)[1] for title in titles] == [f"{weight:.4f}" for weight in column]


def test_masked_cells_have_a_colour_of_their_own_and_zoom_asks_for_finer_tiles(visitor):
    visitor.page.on("response", lambda answer: asked.append(answer.url) if "/tiles/" in answer.url else None)
    asked = []
    page = go(visitor, "model=long.attn&layer=0&head=0")
    assert colour(page, 0.9, 0.3) == [0xE6, 0xE9, 0xEE]
    assert colour(page, 0.3, 0.9) != [0xE6, 0xE9, 0xEE]
    places = [tuple(url.rsplit("/", 3)[1:]) for url in asked if url[-2] == "/"]
    assert sorted(places) == [("1", down, across) for down in "01" for across in "01"]
    canvas(page).focus()
    page.keyboard.press("+")
    settled(page)
    assert asked[-1].rsplit("/", 3)[1] == "0"
    page.keyboard.press("Home")
    settled(page)
    assert colour(page, 0.9, 0.3) == [0xE6, 0xE9, 0xEE]


def test_another_head_is_another_map_in_the_same_view(visitor):
    page = go(visitor, "model=long.attn&layer=0&head=0")
    before = canvas(page).get_attribute("aria-label")
    page.get_by_role("combobox", name="Head").focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=option][data-focused=true]").wait_for()
    page.keyboard.press("Enter")
    browsing.wait_for_query(page, head=1)
    page.get_by_role("application", name="layer 0 head 1").wait_for()
    assert canvas(page).get_attribute("aria-label") == before.replace("head 0", "head 1")


def test_the_address_opens_the_same_map_again(visitor):
    page = go(visitor, "model=words.attn&layer=2&head=1&token=3&key=1&unit=Words&side=To+the+key")
    first = page.url
    page.goto(first)
    browsing.settled(page)
    settled(page)
    assert page.url == first
    page.get_by_text("bank is looked at by", exact=True).wait_for()
    assert page.get_by_role("radio", name="Words").is_checked()


def test_without_a_head_in_the_address_it_names_the_one_it_shows(visitor):
    page = go(visitor, "model=words.attn")
    query = "new URLSearchParams(location.search)"
    page.wait_for_function(f"['layer', 'head', 'token', 'key'].every((name) => {query}.has(name))")


def test_hostile_labels_are_only_ever_painted(visitor):
    page = go(visitor, "model=hostile.attn&layer=0&head=0&token=0&key=1")
    canvas(page).focus()
    page.keyboard.press("ArrowDown")
    assert "http://attnviz.example/x.png" in read_out(page)
    assert page.locator(".attnviz-map img, .attnviz-map script, .attnviz-map a").count() == 0


def test_a_page_that_is_out_of_date_says_so(visitor):
    visitor.page.route("**/tiles/**", lambda route: route.continue_(headers={"x-attnviz-capability": "old"}))
    page = visitor.go("map?model=words.attn&layer=0&head=0")
    page.get_by_text("this page is out of date: reload it").wait_for()
    visitor.errors.clear()  # Chromium reports every answer of 403 in the console


def test_phones_zoom_with_two_fingers(browser, server):
    context = browser.new_context(viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    visitor = browsing.Visitor(context.new_page(), server)
    page = go(visitor, "model=long.attn&layer=0&head=0")
    box = canvas(page).bounding_box()
    middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    session = context.new_cdp_session(page)

    def touch(kind, apart):
        points = [{"x": middle[0] + sign * apart, "y": middle[1], "id": at} for at, sign in enumerate((-1, 1))]
        session.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": points if kind != "touchEnd" else []})

    before = colour(page, 0.9, 0.3)
    touch("touchStart", 20)
    for apart in range(25, 125, 10):
        touch("touchMove", apart)
    touch("touchEnd", 0)
    settled(page)
    assert before == [0xE6, 0xE9, 0xEE]
    assert "max over" not in read_out(page)
    context.close()
    assert visitor.errors == []


def test_how_the_map_is_drawn_is_kept_in_the_address_and_told_in_the_legend(visitor):
    page = go(visitor, "model=words.attn&layer=1&head=2&token=0&key=0")
    legend = page.locator(".attnviz-map .legend")
    assert legend.inner_text().split() == ["0", "1.00", "weight,", "root", "scale"]
    page.get_by_label("Scale", exact=True).select_option("log")
    browsing.wait_for_query(page, scale="log")
    page.get_by_text("Exports keep a look of their own").wait_for()
    page.reload()
    browsing.settled(page)
    settled(page)
    assert page.get_by_label("Scale", exact=True).input_value() == "log"
    assert legend.inner_text().endswith("weight, log scale")
    page.get_by_label("Scale", exact=True).select_option("root")
    page.wait_for_function("!location.search.includes('scale')")


def test_the_legend_says_that_there_are_larger_weights_than_its_end(visitor):
    page = go(visitor, "model=long.attn&layer=0&head=0")
    legend = page.locator(".attnviz-map .legend")
    assert legend.inner_text().split()[:2] == ["0", "≥"]
    page.get_by_label("Range of colours").select_option("full")
    legend.get_by_text("1.00", exact=True).wait_for()


def test_choices_stay_when_another_page_was_visited(visitor):
    page = go(visitor, "model=words.attn&layer=1&head=2")
    page.get_by_label("Scale", exact=True).select_option("log")
    browsing.wait_for_query(page, scale="log")
    page.get_by_label("Colours", exact=True).select_option("magma")
    browsing.wait_for_query(page, colours="magma")
    page.get_by_text("Words", exact=True).click()
    browsing.wait_for_query(page, unit="Words")
    page.get_by_role("link", name="Entropy").click()
    page.wait_for_url("**/entropy?*")
    browsing.settled(page)
    page.get_by_role("link", name="Map").click()
    browsing.wait_for_query(page, scale="log", colours="magma", unit="Words")
    browsing.settled(page)
    settled(page)
    assert page.get_by_label("Scale", exact=True).input_value() == "log"
    assert page.locator(".attnviz-map .legend").inner_text().endswith("weight, log scale")
    page.get_by_label("Scale", exact=True).select_option("root")
    page.wait_for_function("!location.search.includes('scale')")
    assert page.get_by_role("radio", name="Words").is_checked()
