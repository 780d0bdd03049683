"""The maps that are compared, in a real browser: they move together, and their difference is what the traces say."""

import pytest

import attnviz

pytestmark = pytest.mark.browser


def canvas(page, place):
    return page.get_by_role("application").nth(place)


def said(page):
    """The read-outs of the maps."""
    texts = page.locator(".attnviz-map output").all_inner_texts()
    return [text.replace("\u2068", "").replace("\u2069", "") for text in texts]


def settled(page):
    page.wait_for_timeout(200)  # until the frames are drawn that ask for tiles
    page.wait_for_function("!document.querySelector('.attnviz-map[data-busy]')")


def go(visitor, query):
    page = visitor.go(f"compare?{query}&layer=0&head=1&layer2=1&head2=0")
    for place in range(3):
        canvas(page, place).wait_for()
    settled(page)
    return page


def test_the_cross_hair_stands_on_the_same_cell_of_all_three(visitor, server_folder):
    page = go(visitor, "model=words.attn")
    canvas(page, 1).focus()
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        page.keyboard.press(key)
    settled(page)
    trace = attnviz.load(server_folder / "words.attn")
    first, second = (trace[place].weights()[2, 1].item() for place in ((0, 1), (1, 0)))
    told = [text.rsplit(": ", 1) for text in said(page)]
    assert [where for where, _ in told] == ["query 2 of → key 1 bank"] * 3
    values = [float(value.replace("−", "-")) for _, value in told]
    assert values == pytest.approx([first, second, second - first], rel=0.06, abs=0.01)


def test_all_three_zoom_when_one_does(visitor):
    page = go(visitor, "model=long.attn")
    canvas(page, 0).focus()
    page.keyboard.press("ArrowDown")
    assert all("max over" in text for text in said(page))
    for _ in range(4):
        page.keyboard.press("+")
    settled(page)
    assert not any("max over" in text for text in said(page))
    page.get_by_role("button", name="Whole map").nth(2).click()
    settled(page)
    canvas(page, 1).focus()
    page.keyboard.press("ArrowDown")
    settled(page)
    assert all("max over" in text for text in said(page))


def test_maps_of_different_sizes_move_alone(visitor):
    page = visitor.go("compare?model=words.attn&mode=Two+models&model2=hostile.attn&layer=0&head=1")
    maps = page.get_by_role("application")
    maps.nth(1).wait_for()
    settled(page)
    maps.nth(0).focus()
    page.keyboard.press("ArrowDown")
    first, second = said(page)
    assert first.startswith("query 1 bank")
    assert second == "Point at a cell, or use the arrow keys."


def test_the_two_maps_of_weights_share_one_range_of_colours(visitor):
    page = go(visitor, "model=words.attn&colours=magma")
    first, second, change = page.locator(".attnviz-map .legend").all_inner_texts()
    assert first == second
    low, high, about = change.split("\n") if "\n" in change else change.split()
    assert (low[1:], about) == (high[1:], "difference")
    assert page.get_by_label("Colours", exact=True).first.input_value() == "magma"
