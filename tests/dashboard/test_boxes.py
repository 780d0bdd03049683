"""Texts too long for the address: kept beside every box for text, told when they are gone."""

import pytest
from dashboard.pages import BANKS

from attnviz.dashboard import boxes
from attnviz.dashboard.safe import plain


def test_a_text_too_long_for_the_box_is_kept_beside_it(visit, recorded):
    app = visit("heads", text=BANKS)
    long = f"{'word' * 10} " * 150
    app.text_area(key="text").set_value(long).run()
    assert not app.error
    assert recorded[-1] == long
    assert app.sidebar.text[0].value == "The pasted text, 6,150 characters"
    app.button[0].click().run()
    assert app.text_area(key="text").value


def test_a_text_that_went_with_its_visit_is_told(visit):
    app = visit("heads", text=BANKS, file="book.txt")
    line = "book.txt was kept only as long as the visit that brought it: give it again. This is another text."
    assert [warning.value for warning in app.warning] == [plain(line)]
    app.text_area(key="text").set_value("other words").run()
    assert not app.warning


@pytest.mark.parametrize(
    ("page", "key", "query"),
    [
        ("compare", "text2", {"mode": "Two texts"}),
        ("coreference", "marked", {}),
        ("causes", "second", {"method": "Relevance"}),
    ],
)
def test_every_box_keeps_what_is_too_long_for_the_address(visit, monkeypatch, page, key, query):
    taken = []
    monkeypatch.setattr(boxes, "checked", lambda name, text: taken.append(text) or "[a]1 b [a]1")
    app = visit(page, text=BANKS, **query)
    inputs = [box for box in (*app.text_area, *app.text_input) if box.key == key]
    long = "[a]1 b [a]1 " * 500
    inputs[0].set_value(long).run()
    assert not app.error
    assert not app.exception
    assert "The pasted text, 6,000 characters" in [text.value for text in app.main.text]
    assert set(taken) == {long}
    next(button for button in app.main.button if button.label == "Back to the text box").click().run()
    assert [box.value for box in (*app.text_area, *app.text_input) if box.key == key] != [long]


def test_a_long_second_text_waits_for_a_click(visit, recorded):
    app = visit("compare", text=BANKS, mode="Two texts", text2="w " * 1100)
    assert recorded == [BANKS]
    assert [button.label for button in app.main.button] == ["Record 1,100 tokens"]
    app.main.button[0].click().run()
    assert len(recorded) == 2
    assert not app.error


def test_a_pasted_text_longer_than_any_is_one_line_and_can_be_put_back(visit, recorded, monkeypatch):
    monkeypatch.setenv("ATTNVIZ_MAX_TOKENS", "300")
    app = visit("heads", text="word " * 2000)
    line = "The pasted text has 10,000 characters, this server takes 300 tokens: shorten it"
    assert [error.value for error in app.error] == [plain(line)]
    next(button for button in app.sidebar.button if button.label == "Back to the text box").click().run()
    assert not app.error
    assert recorded


def test_an_empty_text_has_no_size(visit):
    assert not visit("heads", text=" ").sidebar.caption


def test_a_pasted_text_that_still_stands_in_the_address_is_not_gone(visit, recorded):
    long = f"{'word' * 10} " * 150
    app = visit("heads", text=long, file="The pasted text")
    assert not app.warning
    assert recorded == [long]
