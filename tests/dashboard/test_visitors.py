"""Four visitors at once on one server: nobody waits for another's long recording, or sees what is another's."""

from pathlib import Path
from urllib.parse import quote_plus

import pytest
from dashboard import browsing

pytestmark = pytest.mark.browser

LONG = "hold " + "w " * 1100
BUDGET = 20_000
TESTS = Path(__file__).parents[1]


@pytest.fixture
def held(browser, tmp_path):
    """The address of a server whose long recordings last, and a function that lets them end."""
    browsing.write_traces(tmp_path)
    command = (Path(__file__).with_name("held_server.py"), tmp_path)
    settings = {"PYTHONPATH": str(TESTS), "ATTNVIZ_TRACE_BUDGET": str(BUDGET)}
    with browsing.serving(tmp_path, command=command, **settings) as address:
        yield address, (tmp_path / "go").touch, tmp_path


@pytest.fixture
def visitors(browser, held):
    """Four visitors, each in a profile of their own."""
    contexts = [browser.new_context(viewport={"width": 1280, "height": 900}) for _ in range(4)]
    found = [browsing.Visitor(context.new_page(), held[0]) for context in contexts]
    yield found
    for context in contexts:
        context.close()
    assert [one.errors + one.outside for one in found] == [[]] * 4


def text(words):
    return f"map?model=smollm2&text={quote_plus(words)}"


def start_long(visitor):
    page = visitor.page
    page.goto(f"{visitor.server}/{text(LONG)}")
    page.get_by_role("button", name="Record 1,101 tokens").click()
    page.get_by_role("progressbar").wait_for()
    return page


def tokens(page):
    return page.get_by_role("listbox", name="Tokens shaded by weight").get_by_role("option").all_inner_texts()


def test_nobody_waits_for_a_long_recording_and_everyone_sees_their_own(visitors, held):
    ann, bob, cid, dee = visitors
    _, go, folder = held
    long_page = start_long(ann)
    assert tokens(bob.go(text("only for bob"))) == ["only", "for", "bob"]
    assert tokens(cid.go("map?model=words.attn")) == list(browsing.WORDS)
    page = dee.go("?model=words.attn&view=Maps")
    page.get_by_role("link", name="Entropy").click()
    page.get_by_text("Narrowest heads").wait_for()
    assert long_page.get_by_role("progressbar").is_visible()
    go()
    long_page.get_by_role("listbox", name="Tokens shaded by weight").wait_for()
    assert tokens(long_page)[:2] == ["hold", "w"]
    assert tokens(bob.page) == ["only", "for", "bob"]
    assert max(map(int, (folder / "used").read_text().split())) <= BUDGET


def test_a_second_long_recording_says_what_it_waits_for(visitors, held):
    ann, bob, *_ = visitors
    long_page = start_long(ann)
    page = bob.page
    page.goto(f"{bob.server}/{text(LONG + 'again')}")
    page.get_by_role("button", name="Record 1,102 tokens").click()
    page.get_by_text("Waiting for the runs before this one").wait_for()
    long_page.get_by_role("button", name="Cancel").click()
    long_page.get_by_text("Cancelled.").wait_for()
    page.get_by_text("Recording every head").wait_for()
    held[1]()
    page.get_by_role("listbox", name="Tokens shaded by weight").wait_for()


def test_a_map_opens_to_its_visitor_only(visitors, held):
    ann, bob, *_ = visitors
    seen = {}
    for visitor in (ann, bob):
        visitor.page.on("request", lambda request, visitor=visitor: seen.setdefault(visitor, []).append(request))
    ann.go(text("only for ann"))
    bob.go(text("only for bob"))
    tile = {one: next(request for request in seen[one] if request.url.endswith("/0/0/0")) for one in (ann, bob)}
    secret = {one: tile[one].headers["x-attnviz-capability"] for one in (ann, bob)}
    assert secret[ann] != secret[bob]
    ask = ann.page.request
    assert ask.get(tile[ann].url, headers={"x-attnviz-capability": secret[ann]}).status == 200
    assert ask.get(tile[ann].url, headers={"x-attnviz-capability": secret[bob]}).status == 403
    assert ask.get(tile[ann].url).status == 403
