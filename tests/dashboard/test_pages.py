"""Every page's logic, in process, on made-up traces."""

import pandas as pd
import pytest
from dashboard.pages import BANKS, charts

from attnviz.dashboard import heads, sidebar
from attnviz.dashboard.safe import plain
from attnviz.dashboard.shell import PAGES


@pytest.mark.parametrize("page", [name for name in PAGES if name != "alignment"])
def test_every_page_opens_on_the_example(visit, recorded, page):
    app = visit(page)
    assert len(recorded) == 1
    assert not app.error
    assert not app.warning
    assert charts(app) >= 1


def test_the_address_says_what_is_shown(visit):
    app = visit("heads", model="smollm2", text=BANKS, layer="1", head="2", by="Distance")
    assert app.selectbox(key="model").value == "smollm2"
    assert app.text_area(key="text").value == BANKS
    assert (app.selectbox(key="layer").value, app.selectbox(key="head").value) == (1, 2)
    assert app.selectbox(key="by").value == "distance"


@pytest.mark.parametrize(
    ("query", "line"),
    [
        ({"layer": "7"}, "Layer '7' from the address does not exist here, showing 0: there is 0 to 1"),
        ({"head": "x"}, "Head 'x' from the address does not exist here, showing 0: there is 0 to 2"),
        (
            {"model": "gpt9"},
            "Model 'gpt9' from the address does not exist here, showing minilm: there is minilm, smollm2",
        ),
    ],
)
def test_an_address_that_asks_for_too_much_falls_back_with_a_line(visit, query, line):
    app = visit("heads", text=BANKS, **query)
    assert [warning.value for warning in app.warning] == [plain(line)]
    assert not app.error
    assert charts(app) >= 1


HOSTILE = "<img src=x onerror=alert(1)>![](http://x.y)"


@pytest.mark.parametrize(
    ("page", "query", "line"),
    [
        ("heads", {"heda": "3"}, "This page has no place for what the address says of heda = 3: it is left out."),
        (
            "heads",
            {"scale": "purple", "layer": "1"},
            "This page has no place for what the address says of scale = purple: it is left out.",
        ),
        (
            "heads",
            {"x": HOSTILE},
            f"This page has no place for what the address says of x = {HOSTILE}: it is left out.",
        ),
        (
            "map",
            {"scale": "purple"},
            "Scale 'purple' from the address does not exist here, showing root: there is root, log, linear",
        ),
        (
            "links",
            {"count": "9999"},
            "Links '9999' from the address does not exist here, showing 40: there is 5 to 200",
        ),
        ("links", {"count": "x"}, "Links 'x' from the address does not exist here, showing 40: there is 5 to 200"),
        (
            "heads",
            {"view": "Maps", "shared": "maybe"},
            "One scale of colours for all heads 'maybe' from the address does not exist here, showing false:"
            " there is false, true",
        ),
        (
            "heads",
            {"kind": "cross"},
            "Attention 'cross' from the address does not exist here, showing self: there is self",
        ),
    ],
)
def test_what_an_address_says_in_vain_is_told_once(visit, page, query, line):
    app = visit(page, text=BANKS, **query)
    assert [warning.value for warning in app.warning] == [plain(line)]
    assert not app.error
    app.selectbox(key="head").set_value(0).run()
    assert not app.warning


def test_a_range_beyond_what_there_is_is_told(visit):
    app = visit("heads", text=BANKS, entropy_range="99")
    assert len(app.warning) == 1
    assert "'99' from the address does not exist here, showing" in app.warning[0].value.replace("\\", "")


def test_all_that_pages_write_into_the_address_is_known_to_them(visit):
    known = {
        "heads": {"by": "Distance", "view": "Maps", "shared": "true", "layer": "1", "head": "1", "model": "minilm"},
        "map": {"token": "2", "key": "3", "unit": "Words", "side": "To the key", "scale": "log", "range": "full"},
        "links": {"links": "Strongest links", "count": "30"},
        "compare": {"mode": "Two texts", "text2": "other words", "colours": "magma", "show": "row"},
        "causes": {"method": "Rollout", "token": "1"},
        "coreference": {"marked": "[a]1 b [a]1", "candidates": "any preceding word", "from": "Type"},
        "walkthrough": {"topic": "Gradients", "on": "Toy example", "token": "1"},
    }
    for page, query in known.items():
        assert [warning.value for warning in visit(page, text=BANKS, **query).warning] == []


def test_a_token_beyond_the_text_falls_back_with_a_line(visit):
    app = visit("map", text=BANKS, token="70")
    shown = app.number_input(key="token").value
    line = f"Query '70' from the address does not exist here, showing {shown}: there is 0 to 6"
    assert [warning.value for warning in app.warning] == [plain(line)]
    assert 0 <= shown <= 6


def test_a_shorter_text_brings_the_token_back_into_it(visit):
    app = visit("map", text=BANKS, token="6")
    app.text_area(key="text").set_value("two words").run()
    assert not app.exception
    assert app.number_input(key="token").value in (0, 1)


def test_a_text_is_recorded_once_and_examples_fill_the_box(visit, recorded):
    app = visit("heads", text=BANKS)
    app.selectbox(key="layer").set_value(1).run()
    app.text_area(key="text").set_value("other words").run()
    app.text_area(key="text").set_value(BANKS).run()
    assert recorded == [BANKS, "other words"]


def test_the_number_of_tokens_is_shown(visit):
    captions = [caption.value for caption in visit("heads", text=BANKS).sidebar.caption]
    assert [caption.split(",")[0] for caption in captions] == ["7 tokens"]
    assert captions[0].endswith("KiB in memory")


def test_heads_outside_the_range_are_left_out(visit):
    app = visit("heads", text=BANKS, by="Entropy")
    slider = app.slider(key="entropy_range")
    low, high = slider.value
    slider.set_value((low, (low + high) / 2)).run()
    assert not app.exception
    told = [caption.value for caption in app.main.caption if "heads are in the range" in caption.value]
    assert len(told) == 1
    assert told[0].endswith(" of 6 heads are in the range.")


def test_induction_is_measured_when_it_is_asked_for(visit, monkeypatch):
    asked = []

    def matching(model, tokenizer, progress):
        asked.append(1)
        progress(1, 1)
        rows = [{"layer": a, "head": b, "prefix_matching": a + b, "duplicate": 0.1} for a in range(2) for b in range(3)]
        return pd.DataFrame(rows)

    monkeypatch.setattr(heads, "prefix_matching", matching)
    app = visit("heads", text=BANKS, view="Table", by="Induction")
    table = app.dataframe[0].value
    assert table.columns[2] == "prefix_matching"
    assert table["prefix_matching"].tolist() == sorted(table["prefix_matching"], reverse=True)
    app.selectbox(key="by").set_value("duplicate").run()
    assert asked == [1]


@pytest.mark.parametrize("view", ["Grid", "Maps", "Table"])
def test_every_way_to_see_the_heads(visit, view):
    app = visit("heads", text=BANKS, view=view, shared="true")
    assert not app.error
    assert charts(app) == (1 if view == "Table" else 2)
    assert len(app.dataframe) == (view == "Table")


def chosen(app):
    return tuple(app.selectbox(key=key).value for key in ("layer", "head"))


def test_a_head_that_nobody_chose_follows_the_text(visit, monkeypatch):
    best = {BANKS: {0: (1, 0.2), 1: (2, 0.5)}, "other words": {0: (2, 0.9), 1: (0, 0.5)}}
    monkeypatch.setattr(sidebar, "start", lambda trace: best[trace.text])
    app = visit("heads", text=BANKS)
    assert chosen(app) == (1, 2)
    app.text_area(key="text").set_value("other words").run()
    assert chosen(app) == (0, 2)
    app.selectbox(key="layer").set_value(1).run()
    app.selectbox(key="head").set_value(1).run()
    app.text_area(key="text").set_value(BANKS).run()
    assert chosen(app) == (1, 1)


def test_a_head_from_the_address_stays_whatever_the_text(visit, monkeypatch):
    monkeypatch.setattr(sidebar, "start", lambda trace: {0: (1, 0.2), 1: (2, 0.5)})
    app = visit("heads", text=BANKS, layer="0")
    assert chosen(app) == (0, 1)
    app.text_area(key="text").set_value("other words").run()
    assert chosen(app) == (0, 1)


def test_a_range_that_was_never_touched_follows_the_text(visit):
    app = visit("heads", text=BANKS)
    whole = app.slider(key="entropy_range").value
    app.session_state["entropy_range"] = (0.0, 99.0)
    app.text_area(key="text").set_value("two words").run()
    assert not app.exception
    assert not app.error
    slider = app.slider(key="entropy_range")
    assert slider.value == (slider.min, slider.max) != whole


def test_a_number_that_a_widget_wrote_is_dropped_without_a_line(visit):
    app = visit("map", text=BANKS)
    app.number_input(key="token").set_value(6).run()
    app.text_area(key="text").set_value("two words").run()
    assert not app.warning
    assert app.number_input(key="token").value in (0, 1)


def test_a_head_that_was_chosen_stays_with_the_next_text(visit):
    app = visit("map", text=BANKS)
    layer, head = (app.selectbox(key=key).value for key in ("layer", "head"))
    app.selectbox(key="layer").set_value(1 - layer).run()
    app.text_area(key="text").set_value("quite other words here").run()
    assert [app.selectbox(key=key).value for key in ("layer", "head")] == [1 - layer, head]
    app.text_area(key="text").set_value("and once more").run()
    assert [app.selectbox(key=key).value for key in ("layer", "head")] == [1 - layer, head]
