"""What every head answers for one mention, on a text worked by hand."""

import pytest
from traces import trace_of

from attnviz.analysis.answers import answer_of, asked, pointing, sentences
from attnviz.analysis.documents import Document, document
from attnviz.analysis.windows import Window, owners

# 0 Ann 1 , 2 she 3 met 4 Bo 5 ; 6 she
TEXT = document(["Ann", ",", "she", "met", "Bo", ";", "she"], {"ann": [(0, 1), (2, 3), (6, 7)], "bo": [(4, 5)]})
LAST = [[0.1, 0.2, 0.3, 0.0, 0.2, 0.0, 0.2], [0.1, 0.5, 0.1, 0.0, 0.2, 0.0, 0.1], [0.5, 0.1, 0.1, 0.0, 0.2, 0.0, 0.1]]


@pytest.fixture
def window():
    even = [[1 / 7] * 7 for _ in range(6)]
    trace = trace_of([[[*even, row] for row in LAST]], list(TEXT.words))
    return Window(TEXT, trace, owners(trace.tokens, TEXT))


def test_heads_that_answer_right_come_first_by_their_weight_on_all_antecedents(window):
    _, query = asked(window)
    assert query.gold == (0, 2)
    table = pointing(window, query, "preceding word")
    assert table[["head", "answer", "word", "right"]].values.tolist() == [
        [2, "Ann", 0, True],
        [0, "she", 2, True],
        [1, ",", 1, False],
    ]
    assert table["on antecedents"].tolist() == pytest.approx([0.6, 0.4, 0.2])


def test_one_head_answers_among_what_it_may_choose(window):
    first, last = asked(window)
    assert [answer_of(window, last, "preceding word", 0, head) for head in range(3)] == [2, 1, 0]
    # Bo, with 0.2, is the largest of the mentions
    assert answer_of(window, last, "preceding mention", 0, 1) == 4
    # of equal weights the first word
    assert answer_of(window, first, "other word", 0, 0) == 0


def test_a_mention_without_tokens_is_not_asked(window):
    without = Window(TEXT, window.trace, (0, 1, 2, 3, 4, 5, -1))
    assert [query.word for query in asked(without)] == [2]


def test_sentences_of_one_word_are_left_out():
    text = Document("d", ("Yes", "She", "slept"), ((0, 1), (1, 3)))
    assert [part.words for part in sentences([text, text])] == [("She", "slept")] * 2
