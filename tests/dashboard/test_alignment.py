"""Alignment: cross-attention of saved traces and of a tiny encoder-decoder, against gold links."""

import pytest
import torch
from dashboard.models import TEXT, cross_trace, write_pair

from attnviz import load_model
from attnviz.analysis.alignment import alignment as score
from attnviz.analysis.alignment import parse_links, read_pair, words_of
from attnviz.dashboard.alignment import NEEDS, gold_line
from attnviz.dashboard.safe import plain

SOURCE, TARGET = ("seven", "hundred", "two"), ("7", "0", "2")
RIGHT = [[0.8, 0.1, 0.1], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]]
WRONG = [[0.1, 0.1, 0.8], [0.1, 0.1, 0.8], [0.8, 0.1, 0.1]]
GOLD = "0-0 2-2 1p1"


def numbers():
    """Head 0 of layer 0 finds each word, the others none."""
    return cross_trace(torch.tensor([[RIGHT, WRONG], [WRONG, WRONG]]), SOURCE, TARGET)


@pytest.fixture
def opened(visit, tmp_path, monkeypatch):
    """Open the page on a saved trace."""
    numbers().save(tmp_path / "numbers.attn")
    monkeypatch.setenv("ATTNVIZ_MODEL_ROOT", str(tmp_path))
    return lambda **query: visit("alignment", model="numbers.attn", **query)


def rates(table):
    """What the page lists: the error rates of the best five heads."""
    return pytest.approx(table[table["head"] >= 0]["error rate"].tolist()[:5], abs=1e-4)


def specs(app):
    return [chart.proto.spec for chart in app.main.get("vega_lite_chart")]


def test_without_cross_attention_it_says_what_it_needs(visit):
    app = visit("alignment", text="The bank")
    assert [info.value for info in app.info] == [NEEDS]
    assert not specs(app)


def test_without_gold_links_one_head_is_shown(opened):
    app = opened()
    assert len(specs(app)) == 2
    assert not app.dataframe
    assert not app.error


def test_the_page_is_about_cross_attention_only(opened):
    app = opened(kind="encoder")
    assert "kind" not in [box.key for box in app.selectbox]
    assert app.selectbox(key="layer").options == ["0", "1"]
    line = "Attention 'encoder' from the address does not exist here, showing cross: there is cross"
    assert [warning.value for warning in app.warning] == [plain(line)]


def test_every_head_is_scored_as_the_library_does(opened):
    app = opened(gold=GOLD, moment="Row of the word")
    expected = score(numbers().cross, parse_links(GOLD), *words_of(numbers().cross), moment="produced")
    heads, means = app.dataframe[0].value, app.dataframe[1].value
    assert heads.iloc[0].tolist() == [0, 0, 0, 0]
    assert heads["error rate"].tolist() == rates(expected)
    assert means["layer"].tolist() == expected[expected["head"] < 0]["layer"].tolist()
    assert len(specs(app)) == 3


def test_mutual_links_order_the_heads_by_their_own_rate(opened):
    app = opened(gold=GOLD, which="Mutual only")
    assert app.dataframe[0].value["error rate, mutual"].is_monotonic_increasing
    assert "error rate, mutual" in specs(app)[2]


def test_the_row_that_produces_a_word_is_the_one_before(opened):
    own = opened(gold="1-1", moment="Row of the word").dataframe[0].value
    before = opened(gold="0-1", moment="Row before the word").dataframe[0].value
    assert own["error rate"].tolist()[0] == before["error rate"].tolist()[0] == 0.5


@pytest.mark.parametrize(
    ("gold", "line"),
    [
        ("0:1", "'0:1' is no link: write source-target, such as \"0-0 1-2\", or 3p4 for a possible one"),
        ("7-0", "link 7-0 lies outside the text of 3 source and 3 target words"),
    ],
)
def test_links_that_are_none_are_one_line(opened, gold, line):
    assert [error.value for error in opened(gold=gold).error] == [plain(line)]


def test_long_texts_are_sent_to_the_map(opened, monkeypatch):
    monkeypatch.setattr("attnviz.dashboard.alignment.LONGEST", 2)
    app = opened()
    assert [info.value.split(":")[0] for info in app.info] == [
        "Texts of up to 2 words are aligned here, these have 3 and 3"
    ]


def test_gold_links_stand_in_the_lines_as_they_were_given():
    assert gold_line(None) == "None"
    assert gold_line(parse_links("2-1 0-0 3p4")) == "parse_links('0-0 2-1 3p4')"


def test_a_translation_is_read_by_the_model(real, tmp_path, monkeypatch):
    folder = write_pair(tmp_path / "models")
    monkeypatch.setenv("ATTNVIZ_MODEL_ROOT", str(folder))
    app = real("alignment", model="t5", translation="the cats sat", gold="1-1", text=TEXT)
    trace, *words = read_pair(*load_model(folder / "t5"), TEXT, "the cats sat")
    expected = score(trace, parse_links("1-1"), *words)
    assert not app.error
    found = app.dataframe[0].value
    assert found["error rate"].tolist() == rates(expected)
    app.text_area(key="translation").set_value("").run()
    assert [info.value for info in app.info] == [
        "There are no words to align: the model wrote none, so type a translation above."
    ]
