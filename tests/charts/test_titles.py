"""Titles name the model and the text, what differs, and what was done to a map."""

from dataclasses import replace

import pytest
from traces import make_trace

from attnviz import charts
from attnviz.charts import titles
from attnviz.export import figure
from attnviz.variants import by_words, share_kept, without_special


def of_text(head, text, model="minilm"):
    return replace(head, row_axis=replace(head.row_axis, text=text), model=model)


def test_long_texts_are_shortened_and_unknown_ones_left_out():
    assert titles.source("minilm", None) == "minilm"
    assert titles.source("minilm", "a\n b", "c") == "minilm · “a b” and “c”"
    assert titles.source("minilm", "x" * 99) == f"minilm · “{'x' * 59}…”"


@pytest.mark.parametrize(
    ("place", "text", "model", "title", "subtitle"),
    [
        ((0, 0), "Mill", "minilm", "Layer 0, head 0: “Mill” less “The bank.”", "minilm · “The bank.” and “Mill”"),
        ((0, 0), "The bank.", "bert", "Layer 0, head 0: bert less minilm", "minilm and bert · “The bank.”"),
        ((0, 0), None, "minilm", "Layer 0, head 0: the second less the first", "minilm · “The bank.”"),
        ((1, 2), "The bank.", "minilm", "Layer 1, head 2 less layer 0, head 0", "minilm · “The bank.”"),
    ],
)  # fmt: skip
def test_a_difference_is_called_by_what_differs(place, text, model, title, subtitle):
    trace = make_trace()
    one, other = of_text(trace[0, 0], "The bank."), of_text(trace[place], text, model)
    assert charts.difference(one, other).to_dict()["title"] == {"text": title, "subtitle": subtitle}


def test_altered_maps_say_so():
    head = make_trace(("[CLS]", "the", "bank", "[SEP]"))[0, 0]
    head = replace(head, row_axis=_special(head.row_axis), col_axis=_special(head.col_axis))
    plain = charts.heatmap(head).to_dict()["title"]["subtitle"]
    words = "words cut at punctuation (sums over keys, means over queries)"
    for altered, told in (
        (without_special(head), "special tokens hidden"),
        (without_special(head, share_kept(head)), "special tokens hidden, rows renormalised"),
        (by_words(head), words),
        (without_special(by_words(head)), f"{words}; special tokens hidden"),
    ):
        assert charts.heatmap(altered).to_dict()["title"]["subtitle"] == f"{plain} · {told}"
        assert charts.entropy(altered).to_dict()["title"]["subtitle"] == f"{plain} · {told} · grey: equal weights"


def test_the_page_of_an_altered_map_says_so():
    page = figure(make_trace(), "map", words=True).page("screen")
    assert "layer 0 head 0, words cut at punctuation" in page.split("</title>")[0]
    assert "layer 0 head 0</title>" in figure(make_trace(), "map").page("screen")


def test_the_numbers_of_an_altered_map_say_so():
    trace = make_trace()
    assert "altered" not in figure(trace).document()
    assert figure(trace, words=True).document()["altered"].startswith("words cut at punctuation")


def _special(axis):
    return replace(axis, tokens=tuple(replace(token, special=token.text[0] == "[") for token in axis.tokens))
