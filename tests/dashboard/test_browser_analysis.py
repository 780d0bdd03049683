"""Pages that analyse, in a real browser: clicks, keys, addresses, and text that would be markup elsewhere."""

from importlib.util import find_spec
from urllib.parse import quote

import pytest
from dashboard import browsing
from dashboard.models import TEXT

pytestmark = pytest.mark.browser

HERE = f"model=bert&text={quote(TEXT)}"
HOSTILE = "[</script>]1 !(http://attnviz.example/x) <img src=x onerror=alert(2)> [it]1"


def cell(page, layer, head):
    browsing.settled(page)
    return page.locator(f'path[aria-label^="head: {head}; layer: {layer};"]')


def choose_next(page, name):
    """The option after the chosen one, by keyboard."""
    browsing.settled(page)
    option = page.locator("[role=option][data-focused=true]")
    for _ in range(10):  # what is drawn late on a busy machine takes the focus away
        page.get_by_role("combobox", name=name, exact=True).focus()
        page.keyboard.press("ArrowDown")
        page.wait_for_timeout(500)
        if option.is_visible():
            break
    page.keyboard.press("Enter")


def test_heads_are_silenced_and_chosen(visitor):
    page = visitor.go(f"causes?{HERE}&second=the+cat+.")
    page.get_by_role("radio", name="Every head").or_(page.get_by_role("button", name="Every head")).first.click()
    browsing.wait_for_query(page, method="Every head")
    start = page.get_by_role("button", name="Compute every head")
    start.focus()
    page.keyboard.press("Enter")
    cell(page, 1, 2).click()
    browsing.wait_for_query(page, layer=1, head=2)
    page.reload()
    browsing.settled(page)
    cell(page, 1, 2).wait_for()


def test_a_mention_is_chosen_in_the_text_and_by_keyboard(visitor):
    marked = quote("[the cat]1 sat . [it]1 sat . [it]1 sat .")
    page = visitor.go(f"coreference?{HERE}&marked={marked}")
    page.locator(".stVegaLiteChart svg text", has_text="it").nth(1).click()
    browsing.wait_for_query(page, mention="7 it")
    page.get_by_text("heads answer with an antecedent (cat, it)").wait_for()
    choose_next(page, "A head may choose")
    browsing.wait_for_query(page, candidates="any preceding word")
    cell(page, 1, 3).click()
    browsing.wait_for_query(page, layer=1, head=3)
    page.get_by_text("Layer 1, head 3 in parts").wait_for()


def test_hostile_mentions_stay_text(visitor):
    page = visitor.go(f"coreference?{HERE}&marked={quote(HOSTILE)}")
    assert page.locator("img[src*='attnviz.example'], img[src=x]").count() == 0
    assert page.locator(".stVegaLiteChart svg text", has_text="script").count() > 0


def test_a_head_is_chosen_in_the_grid_again_after_another_was_chosen_elsewhere(visitor):
    page = visitor.go(f"dependencies?{HERE}&layer=0&head=1")
    cell(page, 1, 2).click()
    browsing.wait_for_query(page, layer=1, head=2)
    choose_next(page, "Head")
    browsing.wait_for_query(page, layer=1, head=3)
    cell(page, 1, 2).click()
    browsing.wait_for_query(page, layer=1, head=2)


def test_dependencies_follow_direction_and_head(visitor):
    page = visitor.go(f"dependencies?{HERE}&direction=to+dependent&layer=0&head=1")
    cell(page, 1, 2).click()
    browsing.wait_for_query(page, layer=1, head=2)
    choose_next(page, "Relation")
    browsing.wait_for_query(page, relation="det")
    title = "Above: the annotation. Below: what layer 1, head 2 answers, to dependent"
    page.get_by_text(title).wait_for()


def test_alignment_by_click_and_by_keyboard(visitor):
    page = visitor.go("alignment?model=pair.attn&gold=0-0+1-1+2p2")
    cell(page, 1, 2).click()
    browsing.wait_for_query(page, layer=1, head=2)
    page.get_by_text("Layer 1, head 2").first.wait_for()
    page.get_by_role("radio", name="Row of the word").or_(
        page.get_by_role("button", name="Row of the word")
    ).first.focus()
    page.keyboard.press("Enter")
    browsing.wait_for_query(page, moment="Row of the word")
    assert page.locator("img[src*='attnviz.example'], img[src=x]").count() == 0
    assert page.locator(".stVegaLiteChart svg text", has_text="script").count() > 0
    page.reload()
    browsing.settled(page)
    page.get_by_text("Alignment error rate of every head, produced").wait_for()


def test_the_second_head_is_chosen_in_the_grid_and_by_keyboard(visitor):
    page = visitor.go("compare?model=words.attn&layer=0&head=1")
    cell(page, 1, 2).click()
    browsing.wait_for_query(page, layer2=1, head2=2)
    page.get_by_role("application", name="difference from layer 0 head 1").wait_for()
    choose_next(page, "Second layer")
    browsing.wait_for_query(page, layer2=2)


def test_topics_of_the_walkthrough_have_addresses(visitor):
    page = visitor.go(f"walkthrough?{HERE}")
    told = {
        "Gradients": "Why large scores stop learning",
        "Mask": "What a causal mask does",
        "Cost": "What a map costs",
    }
    for topic, heading in told.items():
        page.get_by_text(topic, exact=True).click()
        browsing.wait_for_query(page, topic=topic)
        page.get_by_role("heading", name=heading).wait_for()  # else the next click may meet a page about to be replaced
        browsing.settled(page)
    page.get_by_text("Toy example", exact=True).click()
    browsing.wait_for_query(page, on="Toy example", topic="Cost")
    browsing.settled(page)
    visitor.go(f"walkthrough?{HERE}&topic=Cost&on=Toy+example")
    browsing.settled(page)
    page.get_by_text("What one head takes, in bytes").first.wait_for(timeout=60_000)


def test_the_number_of_links_by_keyboard(visitor):
    page = visitor.go("links?model=words.attn")
    page.get_by_role("slider", name="Links").focus()
    page.keyboard.press("ArrowLeft")
    browsing.wait_for_query(page, count=35)


@pytest.mark.skipif(find_spec("bertviz") is None, reason="bertviz is not installed: pip install 'attnviz[bertviz]'")
def test_bertviz_draws_hostile_tokens_behind_a_wall(visitor):
    visitor.page.goto(f"{visitor.server}/links?model=hostile.attn&links=Head+view")
    frame = visitor.page.frame_locator("iframe[src*='/frame/']")
    frame.locator("svg text").first.wait_for(timeout=60_000)
    assert frame.locator("svg text", has_text="</script>").count() > 0
    inner = next(frame for frame in visitor.page.frames if "/frame/" in frame.url)
    assert inner.evaluate("window.origin") == "null"
    with pytest.raises(Exception, match=r"Blocked a frame|SecurityError"):
        inner.evaluate("window.parent.document.cookie")
