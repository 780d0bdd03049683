"""Labels: short, whole, in their own direction."""

import pytest
from hostile import TOKENS

from attnviz.charts.labels import axis_text, isolate, numbered, parameters, short, tooltips
from attnviz.tokens import Token, named


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("bank", "bank"),
        ("x" * 16, "x" * 16),
        ("x" * 300, "x" * 15 + "…"),
        ("שלום", "\u2068שלום\u2069"),
        ("6:שלום", "\u20686:שלום\u2069"),
        ("👨\u200d" * 10, "👨\u200d" * 7 + "👨…"),
    ],
)
def test_short(text, shown):
    assert short(text) == shown


def test_left_to_right_text_is_not_isolated():
    assert isolate("naïve 你好") == "naïve 你好"


def test_tooltips_give_position_text_and_the_tokenizers_piece():
    tokens = (Token(1, "Ġbank", " bank"), Token(2, "bank", "bank"), Token(3, "ä½", "你", part=(1, 2)))
    assert tooltips(tokens) == ["0 bank (token Ġbank)", "1 bank", "2 你 1/2 (token ä½)"]


def test_tooltips_show_long_tokens_and_make_controls_visible():
    long, control = tooltips(named(("x" * 300, "\x1b[31m\u202e")))
    assert long == "0 " + "x" * 300
    assert control == "1 ␛[31m<U+202E>"


def test_equal_axes_share_their_parameters():
    first, second, other = axis_text(named(("a", "b"))), axis_text(named(("a", "b"))), axis_text(named(("b", "a")))
    assert len(parameters(first, second)) == 2
    assert len(parameters(first, other)) == 4


def test_numbered():
    assert numbered(7, named(TOKENS)[0]) == "7 </script><scrip…"
