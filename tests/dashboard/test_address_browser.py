"""What the address says and where the browser's Back leads, in a real browser."""

import pytest
from dashboard import browsing

pytestmark = pytest.mark.browser


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
