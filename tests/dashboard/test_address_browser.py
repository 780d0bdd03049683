"""What the address says and where the browser's Back leads, in a real browser."""

import pytest
from dashboard import browsing

pytestmark = pytest.mark.browser

NUMBER = ".stMain .stNumberInput input"


def opened(page, name, title):
    """The address of a page that is drawn."""
    page.wait_for_url(f"**/{name}?*")
    page.wait_for_function("title => document.title.startsWith(title)", arg=title)
    browsing.settled(page)
    return page.url


def follow(page, name, title):
    page.get_by_role("link", name=title, exact=True).click()
    return opened(page, name, title)


def test_back_goes_one_page_back_and_finds_it_as_it_was(visitor):
    page = visitor.go("?model=words.attn&layer=1&head=2")
    entries = page.evaluate("history.length")
    first = page.url
    second = follow(page, "entropy", "Entropy")
    third = follow(page, "compare", "Compare")
    assert page.evaluate("history.length") == entries + 2
    page.go_back()
    assert opened(page, "entropy", "Entropy") == second
    page.go_back()
    assert opened(page, "", "Heads") == first
    page.go_forward()
    opened(page, "entropy", "Entropy")
    page.go_forward()
    assert opened(page, "compare", "Compare") == third


def test_back_finds_the_head_that_was_looked_at(visitor):
    page = visitor.go("entropy?model=words.attn&layer=1&head=2")
    follow(page, "map", "Map")
    page.get_by_role("combobox", name="Head").focus()
    page.keyboard.press("ArrowDown")
    page.locator("[role=option][data-focused=true]").wait_for()
    page.keyboard.press("Enter")
    browsing.wait_for_query(page, head=3)
    page.go_back()
    opened(page, "entropy", "Entropy")
    browsing.wait_for_query(page, layer=1, head=2)
    page.get_by_text("Layer 1, head 2").first.wait_for()


def test_a_token_stays_in_the_address_from_page_to_page(visitor):
    page = visitor.go("map?model=words.attn&token=3&key=4")
    for name, title in (("entropy", "Entropy"), ("map", "Map"), ("causes", "Causes")):
        follow(page, name, title)
        browsing.wait_for_query(page, token=3)
        assert page.locator(NUMBER).first.input_value() == "3"


@pytest.mark.parametrize(
    ("path", "label", "name"),
    [("?model=bert", "Text", "file"), ("compare?model=bert&mode=Two+texts", "Second text", "text2_file")],
)
def test_a_long_text_is_kept_beside_its_box_and_out_of_the_address(visitor, path, label, name):
    page = visitor.go(path)
    page.get_by_role("textbox", name=label, exact=True).fill("cat" * 2000)
    page.keyboard.press("Control+Enter")
    page.get_by_text("The pasted text, 6,000 characters").wait_for()
    browsing.wait_for_query(page, **{name: "The pasted text"})
    browsing.settled(page)
    assert len(page.url) < 300
    page.reload()
    page.get_by_text("The pasted text was kept only as long as the visit that brought it").wait_for()
    browsing.settled(page)
    assert page.get_by_role("textbox", name=label, exact=True).input_value().startswith("The bank of the")
