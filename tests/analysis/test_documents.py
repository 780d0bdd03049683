import pytest

from attnviz.analysis.documents import (
    Document,
    Mention,
    check_clusters,
    document,
    head_by_rule,
    head_by_syntax,
    mention_type,
    sentence_ranges,
)
from attnviz.errors import DataError


def test_part_moves_everything_and_drops_what_is_cut():
    whole = Document(
        "d",
        ("Ann", "slept", ".", "She", "woke", "up", "."),
        ((0, 3), (3, 7)),
        (Mention(0, 1, 0, "a"), Mention(3, 4, 3, "a"), Mention(2, 4, 3, "b"), Mention(5, 7, 5, "c")),
        heads=(1, 1, 1, 4, 0, 4, 4),
        relations=("nsubj", "root", "punct", "nsubj", "root", "compound:prt", "punct"),
        upos=("PROPN", "VERB", "PUNCT", "PRON", "VERB", "ADP", "PUNCT"),
    )
    part = whole.part(3, 7)
    assert part.words == ("She", "woke", "up", ".")
    assert part.sentences == ((0, 4),)
    assert part.heads == (1, 1, 1, 1)  # a head outside makes its word a root
    assert part.relations == ("nsubj", "root", "compound:prt", "punct")
    assert part.upos == ("PRON", "VERB", "ADP", "PUNCT")
    assert whole.part(3, 6).mentions == (Mention(0, 1, 0, "a"),)
    assert whole.part(3, 7).mentions == (Mention(0, 1, 0, "a"), Mention(2, 4, 2, "c"))


def test_spans_follow_the_words_joined_by_spaces():
    found = document(["a", "bcd", "e"])
    assert found.text == "a bcd e"
    assert [found.text[a:b] for a, b in found.spans()] == ["a", "bcd", "e"]


def test_head_by_syntax_is_the_leftmost_word_governed_from_outside():
    # the(2) old(2) king(3 = outside)
    assert head_by_syntax([2, 2, 3, 3], 0, 3) == 2
    # a root is its own head
    assert head_by_syntax([1, 1], 0, 2) == 1
    assert head_by_syntax([0, 0, 0], 0, 3) == 0


@pytest.mark.parametrize(
    ("words", "head"),
    [
        ("the king of France", 1),
        ("the old king", 2),
        ("a man who sings", 1),
        ("Mary 's", 0),
        ("France", 0),
    ],
)
def test_head_by_rule(words, head):
    assert head_by_rule(words.split(), 0, len(words.split())) == head


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("She slept . He woke .", ["She slept .", "He woke ."]),
        ('" No ! " he said . Yes ?', ['" No ! " he said .', "Yes ?"]),
        ("Mr. Bo met us. It rained", ["Mr. Bo met us.", "It rained"]),
        ("one", ["one"]),
    ],
)
def test_sentences_by_rule(text, sentences):
    words = text.split()
    assert [" ".join(words[a:b]) for a, b in sentence_ranges(words)] == sentences


def test_mention_type_from_tags_and_from_form():
    words = ("she", "Paris", "king", "that")
    tagged = Document("d", words, ((0, 4),), upos=("PRON", "PROPN", "NOUN", "DET"))
    plain = Document("d", words, ((0, 4),))
    for found in (tagged, plain):
        types = [mention_type(found, Mention(i, i + 1, i, "x")) for i in range(4)]
        assert types == ["pronoun", "name", "noun", "pronoun"]


def test_bad_clusters_are_one_line():
    with pytest.raises(
        DataError, match="cluster a has a mention 1 to 5, outside the text of 3 words: count words from"
    ):
        document(["x", "y", "z"], {"a": [(0, 1), (1, 5)]})
    with pytest.raises(DataError, match="cluster a has a mention 0 to 2 with its head 2 outside"):
        document(["x", "y", "z"], {"a": [(0, 2, 2), (2, 3)]})
    with pytest.raises(DataError, match="has no words"):
        document([])


def test_clusters_of_one_mention_are_no_fault_beside_others():
    lone, pair = (
        document(["x", "y"], {"a": [(0, 1)]}, "d"),
        document(["x", "y"], {"a": [(0, 1)], "b": [(1, 2), (0, 2)]}),
    )
    check_clusters([lone, pair])
    # the same name in two documents is not one cluster
    with pytest.raises(DataError, match="every cluster has one mention, a of d too: mark at least two mentions of one"):
        check_clusters([lone, lone])
    with pytest.raises(DataError, match="no mention is marked in these documents"):
        check_clusters([document(["x"])])


def test_mentions_come_in_the_order_of_the_text():
    found = document(["x", "y", "z"], {"a": [(1, 2), (0, 1)], "b": [(0, 3)]})
    assert [(mention.start, mention.stop) for mention in found.mentions] == [(0, 3), (0, 1), (1, 2)]
