"""What visitors bring, in a real browser."""

import pytest
from dashboard import browsing
from traces import make_trace

pytestmark = pytest.mark.browser


def bring(page, path):
    page.get_by_role("button", name="File").click()
    page.locator("input[type=file]").set_input_files(path)


def test_a_trace_of_the_visitor_is_shown_and_stays_the_visitors_own(visitor, browser, server, tmp_path):
    make_trace(("only", "mine"), layers=1, heads=2).save(tmp_path / "mine.attn")
    page = visitor.go("map?model=words.attn")
    bring(page, tmp_path / "mine.attn")
    browsing.wait_for_query(page, model="mine (uploaded).attn")
    page.get_by_role("option", name="mine").first.wait_for()
    page.get_by_role("button", name="Export").click()
    page.get_by_text("trace = attnviz.load('mine.attn')").wait_for()
    context = browser.new_context()
    other = browsing.Visitor(context.new_page(), server)
    found = other.go("map?model=mine+(uploaded).attn")
    found.get_by_text("from the address does not exist here").first.wait_for()
    context.close()


def test_a_damaged_trace_is_a_line(visitor, tmp_path):
    (tmp_path / "bad.attn").write_bytes(b"no trace at all")
    page = visitor.go("map?model=words.attn")
    bring(page, tmp_path / "bad.attn")
    page.get_by_text("bad.attn is damaged or no trace file").wait_for()
    assert "/tmp" not in page.locator(".stSidebar").inner_text()
    browsing.wait_for_query(page, model="words.attn")


def test_traces_given_at_the_start_are_shown_first(browser, tmp_path):
    make_trace(("first", "shown"), layers=1, heads=2).save(tmp_path / "given.attn")
    with browsing.serving(tmp_path, ATTNVIZ_TRACES=str(tmp_path / "given.attn"), ATTNVIZ_MODEL_ROOT="") as address:
        context = browser.new_context(viewport={"width": 1280, "height": 900})
        visitor = browsing.Visitor(context.new_page(), address)
        page = visitor.go("map")
        page.get_by_role("listbox", name="Tokens shaded by weight").get_by_text("shown").wait_for()
        context.close()
    assert (visitor.errors, visitor.outside) == ([], [])
