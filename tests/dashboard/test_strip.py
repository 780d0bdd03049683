import math

from attnviz.dashboard.strip import WINDOW, shaded
from attnviz.tokens import Token


def tokens(*texts):
    return tuple(Token(index, text, text) for index, text in enumerate(texts))


def test_shades_grow_with_the_root_of_the_weight():
    drawn = shaded(tokens("a", "b", "c"), [0.0, 0.1, 0.4], selected=2)
    assert [cell["shade"] for cell in drawn] == [0, 0.5, 1]
    assert drawn[1]["title"] == "1 b: 0.1000"


def test_weights_that_are_all_zero_or_missing_have_no_shade():
    assert [cell["shade"] for cell in shaded(tokens("a", "b"), [0.0, math.nan], 0)] == [0, 0]


def test_token_text_is_handed_over_as_it_is():
    hostile = "</script><script>alert(1)</script>"
    assert shaded(tokens(hostile), [1.0], 0)[0]["text"] == hostile


def test_of_a_long_text_the_surroundings_are_shown():
    long = tokens(*map(str, range(5000)))
    for selected in (0, 2500, 4999):
        drawn = shaded(long, [0.0] * 5000, selected)
        assert len(drawn) == WINDOW
        assert selected in [cell["position"] for cell in drawn]


def test_shades_may_begin_above_zero():
    drawn = shaded(tokens("a", "b", "c"), [2.0, 2.25, 3.0], 0, floor=2.0)
    assert [cell["shade"] for cell in drawn] == [0, 0.5, 1]
    assert drawn[1]["title"] == "1 b: 2.2500"
    assert [cell["shade"] for cell in shaded(tokens("a", "b"), [2.0, 2.0], 0, floor=2.0)] == [0, 0]
