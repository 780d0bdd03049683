import pytest
import torch
from traces import trace_of

from attnviz.analysis.alignment import (
    Gold,
    alignment,
    by_rate,
    cells,
    error_rate,
    links,
    parse_links,
    read_pair,
    word_map,
    words_of,
)
from attnviz.errors import DataError, UsageError
from attnviz.tokens import Word

# three target tokens (rows) over three source tokens; head 1 is head 0 one row earlier
DIRECT = [[0.8, 0.1, 0.1], [0.1, 0.8, 0.1], [0.1, 0.1, 0.8]]
EARLY = [[0.1, 0.8, 0.1], [0.1, 0.1, 0.8], [0.4, 0.3, 0.3]]
WORDS = [Word(str(i), i, i + 1) for i in range(3)]
TRACE = trace_of([[DIRECT, EARLY]])


def test_pharaoh_notation_is_source_first():
    assert parse_links("0-1 2p0") == Gold(frozenset({(1, 0)}), frozenset({(0, 2)}))
    with pytest.raises(DataError, match="'0:1' is no link"):
        parse_links("0:1")
    with pytest.raises(DataError, match="no sure link"):
        parse_links("0p1")


def test_error_rate_on_worked_links():
    gold = Gold(frozenset({(0, 0), (1, 1)}), frozenset({(2, 1)}))
    assert error_rate({(0, 0), (1, 1)}, gold) == 0
    # one sure, one possible, one wrong: 1 - (1 + 2) / (3 + 2)
    assert error_rate({(0, 0), (2, 1), (1, 2)}, gold) == pytest.approx(1 - 3 / 5)
    assert error_rate({(0, 2)}, gold) == 1


def test_mutual_links_need_both_sides():
    weights = torch.tensor([[0.6, 0.4], [0.9, 0.1]])
    assert links(weights) == {(0, 0), (1, 0)}
    assert links(weights, symmetric=True) == {(1, 0)}


def test_the_moment_moves_the_row():
    produced = word_map(TRACE, 0, WORDS, WORDS, "produced")
    producing = word_map(TRACE, 0, WORDS, WORDS, "producing")
    assert torch.equal(produced[0], torch.tensor(DIRECT))
    assert torch.equal(producing[1, 1:], torch.tensor(EARLY)[:2])


def test_table_finds_the_head_for_each_moment():
    gold = parse_links("0-0 1-1 2-2")
    produced = alignment(TRACE, gold, WORDS, WORDS, moment="produced").set_index("head")["error rate"]
    assert produced[0] == 0
    assert produced[1] == 1
    late = parse_links("1-1 2-2")
    producing = alignment(TRACE, late, WORDS, WORDS).set_index("head")["error rate, mutual"]
    assert producing[1] < producing[0]


def test_a_layers_mean_is_scored_beside_its_heads():
    # the mean of both heads is 0.45 0.45 0.1 | 0.1 0.45 0.45 | 0.25 0.2 0.55: 0-0, 1-1, 2-2, as head 0
    gold = parse_links("0-0 1-1 2-2")
    table = alignment(TRACE, gold, WORDS, WORDS, moment="produced")
    assert table.set_index("head")["error rate"].to_dict() == {0: 0.0, -1: 0.0, 1: 1.0}
    # with the second head twice as sharp the mean follows it: 1, 2, 0
    sharp = trace_of([[DIRECT, [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]]])
    assert alignment(sharp, gold, WORDS, WORDS, moment="produced").set_index("head")["error rate"][-1] == 1.0
    heads, column = by_rate(table)
    assert (heads["head"].tolist(), column) == ([0, 1], "error rate")
    # head 0 links 0 and 1 to source 0, of which only one choice is mutual: three links against two
    tied = trace_of([[[[0.6, 0.4, 0.0], [0.9, 0.1, 0.0], [0.0, 0.0, 1.0]], DIRECT]])
    found = alignment(tied, parse_links("0-1 2-2"), WORDS, WORDS, moment="produced")
    rates = found.set_index("head")[["error rate", "error rate, mutual"]].loc[0].tolist()
    assert rates == pytest.approx([1 - 4 / 5, 0.0])
    assert by_rate(found, mutual=True)[1] == "error rate, mutual"
    assert by_rate(found, mutual=True)[0]["head"].tolist()[0] == 0


def test_words_of_a_trace_are_cut_at_white_space():
    trace = trace_of([[[[0.5, 0.5, 0.0]] * 3]], ["Ann", "slept", "."])
    targets, sources = words_of(trace)
    assert [(word.text, word.start, word.stop) for word in targets] == [("Ann", 0, 1), ("slept", 1, 2), (".", 2, 3)]
    assert sources == targets


def test_bad_input():
    with pytest.raises(DataError, match="link 7-0 lies outside the text of 3 source and 3 target words"):
        alignment(TRACE, parse_links("7-0"), WORDS, WORDS)
    with pytest.raises(UsageError, match="moment must be one of producing, produced"):
        alignment(TRACE, parse_links("0-0"), WORDS, WORDS, moment="now")


def test_a_translation_is_read_with_each_word_one_row_after_the_start_token(tmp_path):
    from dashboard.models import write_pair

    from attnviz import load_model

    model, tokenizer = load_model(write_pair(tmp_path) / "t5")
    trace, targets, sources = read_pair(model, tokenizer, "the cat sat .", "the cats sat")
    labels = torch.tensor([tokenizer("the cats sat")["input_ids"]])
    inputs = tokenizer("the cat sat .", return_tensors="pt")
    model.set_attn_implementation("eager")
    eager = model(**inputs, labels=labels, output_attentions=True).cross_attentions
    assert [(word.text, word.start, word.stop) for word in targets] == [("the", 2, 3), ("cats", 3, 5), ("sat", 5, 6)]
    assert [(word.text, word.start, word.stop) for word in sources][1] == ("cat", 2, 3)
    # the rows that choose "cat" and "##s" are those that read "the" and "cat"
    expected = eager[1][0][:, 2:4].mean(1)[:, 2]
    assert torch.allclose(word_map(trace, 1, targets, sources, "producing")[:, 1, 1], expected, atol=1e-5)


def test_a_model_without_cross_attention_is_refused(minilm):
    with pytest.raises(UsageError, match="has no cross attention: give an encoder-decoder model"):
        read_pair(*minilm, "a", "b")


def test_cells_say_what_is_linked_and_what_gold_says():
    table = cells(
        torch.tensor([[0.6, 0.4], [0.9, 0.1]]), Gold(frozenset({(0, 0)}), frozenset({(1, 1)})), symmetric=True
    )
    assert table[["target", "source", "link", "gold"]].values.tolist() == [
        [0, 0, False, "sure"],
        [0, 1, False, ""],
        [1, 0, True, ""],
        [1, 1, False, "possible"],
    ]
    assert table["weight"].tolist() == pytest.approx([0.6, 0.4, 0.9, 0.1])
    assert not cells(torch.eye(2))["gold"].any()
