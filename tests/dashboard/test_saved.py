"""Saved traces of every sort: encoder and decoder, several sequences, special tokens, statistics only."""

from dataclasses import replace

import pytest
import torch
from traces import make_axis, make_trace

from attnviz.head import Record
from attnviz.tokens import TokenAxis
from attnviz.trace import Trace
from attnviz.views import Dense

SOURCE, TARGET = ("The", "bank", "was", "muddy", "."), ("Das", "Ufer", "war")


def encoder_decoder():
    """Two layers each of an encoder, a decoder and of what the decoder sees of the encoder."""
    generator = torch.Generator().manual_seed(0)
    records = []
    for kind, rows, cols in (("encoder", 5, 5), ("decoder", 3, 3), ("cross", 3, 5)):
        for layer in range(2):
            weights = torch.softmax(torch.randn(1, 3, rows, cols, generator=generator), -1)
            records.append(Record(f"{kind}.{layer}", layer, kind, "tap", "", Dense(weights)))
    return Trace("pair", records, {"encoder": (make_axis(SOURCE),), "decoder": (make_axis(TARGET),)})


def padded_batch():
    """Two sequences; special tokens at either end."""
    trace = make_trace(("[CLS]", "un", "do", "it", "[SEP]"), batch=2)
    axis = trace.axes["self"][0]
    tokens = tuple(replace(token, special=place in (0, 4)) for place, token in enumerate(axis.tokens))
    trace.axes["self"] = (TokenAxis(tokens, axis.valid, axis.text),) * 2
    return trace


@pytest.fixture
def saved(visit, monkeypatch, tmp_path):
    """Open a page on a trace from a file."""

    def opened(trace, page, **query):
        trace.save(tmp_path / "run.attn")
        monkeypatch.setenv("ATTNVIZ_TRACES", str(tmp_path / "run.attn"))
        return visit(page, **query)

    return opened


def labels(app, key):
    return app.selectbox(key=key).options


@pytest.mark.parametrize("kind", ["encoder", "decoder", "cross"])
@pytest.mark.parametrize("page", ["heads", "map", "entropy"])
def test_each_kind_of_attention_is_looked_at_by_itself(saved, page, kind):
    app = saved(encoder_decoder(), page, kind=kind)
    assert not app.error
    assert labels(app, "kind") == ["encoder", "decoder", "cross"]
    assert labels(app, "layer") == ["0", "1"]
    if page == "map":
        count = {"encoder": (5, 5), "decoder": (3, 3), "cross": (3, 5)}[kind]
        assert (app.number_input(key="token").max, app.number_input(key="key").max) == tuple(n - 1 for n in count)


def test_between_two_texts_the_strip_shows_the_other_one(saved):
    app = saved(encoder_decoder(), "map", kind="cross", token="1", key="4")
    assert "Ufer looks at" in [text.value for text in app.main.text]
    app = saved(encoder_decoder(), "map", kind="cross", token="1", key="4", side="To the key")
    assert ". is looked at by" in [text.value for text in app.main.text]
    assert set(app.dataframe[0].value["token"]) == set(TARGET)


def test_lines_name_the_kind(saved):
    app = saved(encoder_decoder(), "heads", kind="cross", view="Grid")
    code = [block.value for block in app.main.code]
    assert "trace = attnviz.load('run.attn').only('cross')" in code[0]
    assert "--kind cross" in code[1]


def test_every_sequence_of_a_batch(saved):
    app = saved(padded_batch(), "map", sequence="1", layer="0", head="0")
    second = app.dataframe[0].value["weight"].tolist()
    app.number_input(key="sequence").set_value(0).run()
    assert not app.error
    assert app.dataframe[0].value["weight"].tolist() != second


@pytest.mark.parametrize(
    ("special", "said"),
    [("shown", None), ("hidden", "rows sum to less than 1"), ("renormalised", "rows sum to 1")],
)
def test_special_tokens_may_be_hidden_and_the_page_says_how(saved, special, said):
    app = saved(padded_batch(), "map", special=special, token="0", key="2")
    captions = [caption.value for caption in app.main.caption]
    assert [said in caption for caption in captions] == ([True] if said else [])
    shown = app.dataframe[0].value
    assert ("[CLS]" in set(shown["token"])) == (special == "shown")
    if special == "renormalised":
        assert shown["weight"].sum() == pytest.approx(1, abs=1e-5)
    # a query that is hidden gives way to the first that is not
    first = "[CLS]" if special == "shown" else "un"
    assert f"{first} looks at" in [text.value for text in app.main.text]


def test_more_words_than_are_drawn_say_so(saved, monkeypatch):
    monkeypatch.setattr("attnviz.dashboard.map.WORD_LIMIT", 4)
    app = saved(make_trace(), "map", unit="Words")
    assert [caption.value for caption in app.main.caption] == [
        "Words are drawn up to 4, this text has 5: these are its tokens."
    ]


def test_statistics_without_weights_are_a_line_on_the_map(saved, tmp_path, monkeypatch, visit):
    make_trace().save(tmp_path / "slim.attn", statistics_only=True)
    monkeypatch.setenv("ATTNVIZ_TRACES", str(tmp_path / "slim.attn"))
    app = visit("map")
    assert [error.value.split("\\:")[0] for error in app.error] == ["this trace keeps statistics only"]


def test_a_trace_without_attention_is_a_line(saved):
    trace = Trace("none", [Record("mamba", 0, "linear", "", "", None)], {})
    app = saved(trace, "heads")
    assert [error.value.split("\\:")[0] for error in app.error] == ["this trace holds no attention"]
