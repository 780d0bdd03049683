"""What a figure shows beside its view: a column, one scale of colours, words, no special tokens."""

import re
from dataclasses import replace

import pytest
import torch
from traces import make_trace

from attnviz.cli.entry import run
from attnviz.errors import UsageError
from attnviz.export import figure
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


@pytest.mark.parametrize(
    ("view", "options", "line"),
    [
        ("heatmap", {"column": "first"}, "column is for the view heads, not for heatmap"),
        ("heads", {"shared": True}, "shared is for the view thumbnails, not for heads"),
        ("heads", {"normalised": True}, "normalised is for the view entropy, not for heads"),
        ("links", {"words": True}, "words is for the view heatmap or map, not for links"),
        ("scaling", {"special": "hidden"}, "special is for the view heatmap or map, not for scaling"),
        ("map", {"special": "gone"}, "special must be one of shown, hidden, renormalised, got 'gone'"),
    ],
)
def test_options_that_a_view_does_not_have(view, options, line, capsys):
    with pytest.raises(UsageError, match=f"^{re.escape(line)}$"):
        figure(make_trace(), view, **options)
    flags = [
        part for name, value in options.items() for part in ([f"--{name}"] if value is True else [f"--{name}", value])
    ]
    assert run(["export", "minilm", "text", "--view", view, *flags, "-o", "x.html"]) == 2
    assert line in capsys.readouterr().err
