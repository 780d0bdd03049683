"""What a figure shows beside its view: a column, one scale of colours, words, no special tokens."""

import re
from dataclasses import replace

import pytest
import torch
from traces import make_trace

from attnviz.cli.entry import run
from attnviz.errors import UsageError
from attnviz.export import figure, render
from attnviz.export.lessons import toy
from attnviz.export.shuffling import shuffled_toy
from attnviz.recording import inspect
from attnviz.tokens import TokenAxis


def trace_with_special():
    trace = make_trace(("[CLS]", "ri", "ver", "bank"))
    spans = {1: (0, 2), 2: (2, 5), 3: (6, 10)}
    tokens = tuple(
        replace(
            token, special=place == 0, start=spans.get(place, (None, None))[0], end=spans.get(place, (None, None))[1]
        )
        for place, token in enumerate(trace.axes["self"][0].tokens)
    )
    trace.axes["self"] = (TokenAxis(tokens, slice(0, 4), "river bank"),)
    return trace


def test_heads_can_be_coloured_by_any_column():
    chart = figure(make_trace(), "heads", column="distance").chart().to_dict()
    assert chart["encoding"]["color"]["field"] == "distance"


def test_links_can_be_counted():
    shown = figure(make_trace(), "links", 1, 2, count=3)
    wanted = make_trace()[1, 2].links(3)["weight"].tolist()
    assert shown.table()["weight"].tolist() == [link["weight"] for link in shown.document()["links"]] == wanted
    assert "3 strongest" in shown.chart().to_dict()["description"]


def test_a_table_stands_in_for_that_of_the_heads():
    table = make_trace().heads().assign(duplicate=0.25)
    shown = figure(make_trace(), "heads", column="duplicate", table=table)
    assert shown.chart().to_dict()["encoding"]["color"]["field"] == "duplicate"
    assert {row["duplicate"] for row in shown.document()["heads"]} == {*shown.table()["duplicate"]} == {0.25}
    assert "model" not in table
    with pytest.raises(UsageError, match=r"^table is for the view heads, not for links$"):
        figure(make_trace(), "links", table=table)


def test_order_shows_what_shuffling_found():
    both = shuffled_toy(1)
    shown = figure(toy(), "order", 0, 1, shuffled=both)
    assert len(shown.chart().to_dict()["vconcat"]) == 2
    table = shown.table()
    after = table[table["positions"] == "with"]["after"].tolist()
    assert after == pytest.approx(both[0].after.weights().flatten().tolist())
    with pytest.raises(
        UsageError, match=r"^the view order runs the model again: give what attnviz\.export\.shuffling "
    ):
        figure(toy(), "order", 0, 1)
    with pytest.raises(UsageError, match=r"^shuffled is for the view order, not for mask$"):
        figure(toy(), "mask", 0, 1, shuffled=both)


def test_the_toy_brings_its_own_text(capsys):
    assert run(["export", "toy", "a text", "--view", "mask", "-o", "x.svg"]) == 2
    assert "toy is an example that brings its own text: leave out the text" in capsys.readouterr().err


def test_a_saved_trace_has_no_model_for_repeated_tokens(capsys):
    assert run(["export", "run.attn", "--view", "heads", "--column", "duplicate", "-o", "x.svg"]) == 2
    assert "duplicate runs the model on other texts: name the model in place of the trace" in capsys.readouterr().err


def test_entropy_can_be_a_share_of_the_most_there_could_be():
    trace = make_trace(causal=True)
    heads = figure(trace, "entropy", normalised=True).chart()
    assert heads.to_dict()["layer"][1]["encoding"]["y"]["field"] == "entropy_normalised"
    one = figure(trace, "entropy", 1, 2, normalised=True).chart().data
    visible = trace[1, 2].visible.double()
    assert one["entropy"].tolist()[1:] == pytest.approx((trace[1, 2].entropy / visible.log()).tolist()[1:])
    assert one["most"].tolist() == [1.0] * 5


def test_words_and_special_tokens_change_map_and_numbers():
    trace = trace_with_special()
    whole = trace[1, 2].weights()
    words = figure(trace, "heatmap", 1, 2, words=True).document()
    assert [token["text"] for token in words["keys"]] == ["[CLS]", "river", "bank"]
    torch.testing.assert_close(torch.tensor(words["weights"]), trace[1, 2].word_weights())
    hidden = figure(trace, "heatmap", 1, 2, special="hidden").document()
    torch.testing.assert_close(torch.tensor(hidden["weights"]), whole[1:, 1:])
    divided = figure(trace, "heatmap", 1, 2, special="renormalised").document()
    kept = whole[1:, 1:]
    torch.testing.assert_close(torch.tensor(divided["weights"]), kept / kept.sum(-1, keepdim=True))


def test_the_page_of_a_map_holds_a_chosen_region():
    trace = make_trace(["a"] * 3000, layers=1, heads=1)
    pages = [render(figure(trace, "map", region=region), "html").decode() for region in (None, (1024, 2048))]
    held = [set(re.findall(r'"(0/\d+/\d+)"', page)) for page in pages]
    assert held == [
        {f"0/{down}/{across}" for down in range(4) for across in range(4)},
        {f"0/{down}/{across}" for down in range(4, 8) for across in range(8, 12)},
    ]
    with pytest.raises(UsageError, match="the region must begin inside the map of 3000 x 3000, got row 3000, column 0"):
        render(figure(trace, "map", region=(3000, 0)), "html")


def test_a_region_that_is_none(capsys):
    assert run(["export", "minilm", "text", "--view", "map", "--region", "here", "-o", "x.html"]) == 2
    assert "--region takes a row and a column such as 4000,6000, got 'here'" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("view", "options", "line"),
    [
        ("heatmap", {"column": "first"}, "column is for the view heads, not for heatmap"),
        ("heads", {"shared": True}, "shared is for the view thumbnails, not for heads"),
        ("heads", {"normalised": True}, "normalised is for the view entropy, not for heads"),
        ("links", {"words": True}, "words is for the view heatmap or map, not for links"),
        ("scaling", {"special": "hidden"}, "special is for the view heatmap or map, not for scaling"),
        ("heatmap", {"region": (1, 2)}, "region is for the view map, not for heatmap"),
        ("heatmap", {"count": "9"}, "count is for the view links, not for heatmap"),
        ("heatmap", {"query": "0"}, "query is for the view scaling or gradients, not for heatmap"),
        ("map", {"special": "gone"}, "special must be one of shown, hidden, renormalised, got 'gone'"),
    ],
)
def test_options_that_a_view_does_not_have(view, options, line, capsys):
    with pytest.raises(UsageError, match=f"^{re.escape(line)}$"):
        figure(make_trace(), view, **options)
    said = {name: ",".join(map(str, value)) if isinstance(value, tuple) else value for name, value in options.items()}
    flags = [
        part for name, value in said.items() for part in ([f"--{name}"] if value is True else [f"--{name}", value])
    ]
    assert run(["export", "minilm", "text", "--view", view, *flags, "-o", "x.html"]) == 2
    assert line in capsys.readouterr().err


def test_scaling_shows_the_query_that_is_asked_for(smollm2):
    trace = inspect(smollm2, "The bank of the river.")
    for query, shown in ((None, len(trace.tokens) - 1), (2, 2)):
        made = figure(trace, "scaling", 1, 2, query=query)
        assert made.document()["query"] == shown
        chosen = [param for param in made.chart().to_dict()["params"] if param["name"] == "chosen"]
        assert [param["value"] for param in chosen] == [[{"query": shown}]]
