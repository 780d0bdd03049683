import json

import pytest
from shared import shared

from attnviz.analysis.readers import brackets, conll, conllu, gap, jsonlines, read
from attnviz.errors import DataError


def spans(document):
    return [(" ".join(document.words[m.start : m.stop]), document.words[m.head], m.cluster) for m in document.mentions]


def test_brackets_nest_and_split_punctuation():
    found = brackets("[The cat of [Ann]2]1 slept. [It]1 snored; [she]2 didn't.")
    assert found.words[:6] == ("The", "cat", "of", "Ann", "slept", ".")
    assert spans(found) == [
        ("The cat of Ann", "cat", "1"),
        ("Ann", "Ann", "2"),
        ("It", "It", "1"),
        ("she", "she", "2"),
    ]
    assert found.sentences == ((0, 6), (6, len(found.words)))


CONLL = """#begin document (news); part 0
news 0 0 Ann X _ (1)
news 0 1 met X _ _
news 0 2 the X _ (2
news 0 3 king X _ 2)

news 0 0 She X _ (1)
news 0 1 smiled X _ -
#end document
"""


def test_conll():
    (found,) = conll(CONLL)
    assert found.name == "news"
    assert found.sentences == ((0, 4), (4, 6))
    assert spans(found) == [("Ann", "Ann", "1"), ("the king", "king", "2"), ("She", "She", "1")]


def test_conll_with_tabs_has_clusters_in_column_13():
    rows = ["x\t0\t0\tking" + "\t_" * 8 + "\t(1|(1)\t_", "x\t0\t1\tArthur" + "\t_" * 8 + "\t1)\t_"]
    (found,) = conll("\n".join(rows))
    # of two mentions of one cluster that are open the last one is closed
    assert [(mention.start, mention.stop) for mention in found.mentions] == [(0, 2), (0, 1)]
    nested = ["x 0 0 a _ (1", "x 0 1 b _ (1", "x 0 2 c _ 1)", "x 0 3 d _ 1)"]
    (found,) = conll("\n".join(nested))
    assert [(mention.start, mention.stop) for mention in found.mentions] == [(0, 4), (1, 3)]


CONLLU = """# newdoc id = one
1-2\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\tEntity=(5-person-giv:act-1-ana(6)
2\tsaw\tsee\tVERB\tVBD\t_\t0\troot\t_\tEntity=5)
2.1\tnull\t_\t_\t_\t_\t_\t_\t_\t_
3\ther\tshe\tPRON\tPRP\t_\t2\tobj\t_\tSpaceAfter=No|Entity=(6)

1\tAnn\tAnn\tPROPN\tNNP\t_\t2\tnsubj\t_\tEntity=(5)
2\tleft\tleave\tVERB\tVBD\t_\t0\troot\t_\t_
"""


def test_conllu_skips_ranges_and_empty_nodes_and_reads_entities():
    (found,) = conllu(CONLLU)
    assert found.words == ("Ann", "saw", "her", "Ann", "left")
    assert found.sentences == ((0, 3), (3, 5))
    assert found.heads == (1, 1, 1, 4, 4)
    assert spans(found) == [("Ann saw", "saw", "5"), ("Ann", "Ann", "6"), ("her", "her", "6"), ("Ann", "Ann", "5")]


def test_conllu_without_syntax_takes_head_words_by_rule():
    rows = ["the", "king", "of", "France", "saw", "himself"]
    marks = {0: "Entity=(1", 3: "Entity=1)", 5: "Entity=(1)"}
    lines = [f"{place + 1}\t{word}" + "\t_" * 7 + f"\t{marks.get(place, '_')}" for place, word in enumerate(rows)]
    (found,) = conllu("\n".join(lines))
    assert (found.heads, found.relations) == (None, None)
    assert spans(found) == [("the king of France", "king", "1"), ("himself", "himself", "1")]


def gap_file(**changes):
    row = {
        "ID": "t-1", "Text": 'Ann Lee met Bo. "She" smiled.', "Pronoun": "She", "Pronoun-offset": "17", "A": "Ann Lee",
        "A-offset": "0", "A-coref": "TRUE", "B": "Bo", "B-offset": "12", "B-coref": "FALSE", "URL": "x",
    } | changes  # fmt: skip
    return "\t".join(row) + "\n" + "\t".join(row.values())


def test_gap_reads_quotes_as_text():
    (found,) = gap(gap_file())
    assert spans(found) == [("Ann Lee", "Lee", "A"), ("Bo", "Bo", "B"), ("She", "She", "A")]


def test_separators_inside_a_text_do_not_end_a_line():
    line = json.dumps({"words": ["Ann\u2028", "she"], "clusters": [[[0, 0], [1, 1]]]}, ensure_ascii=False)
    assert [len(found.words) for found in jsonlines(f"{line}\r\n{line}\n")] == [2, 2]
    (found,) = gap(gap_file(Text='Ann Lee met Bo. "She"\x85 smiled.'))
    assert found.words[-2:] == ("smiled", ".")


def test_a_byte_order_mark_is_no_text(tmp_path):
    (tmp_path / "gap.tsv").write_text(gap_file(), encoding="utf-8-sig")
    assert len(read(tmp_path / "gap.tsv")) == 1


def test_gap_line_without_antecedent_is_left_out():
    assert gap(gap_file(**{"A-coref": "FALSE"})) == []


def test_jsonlines_ends_are_inclusive():
    line = json.dumps({"sentences": [["Ann", "slept", "."], ["She", "woke", "."]], "clusters": [[[0, 0], [3, 3]]]})
    (found,) = jsonlines(line)
    assert found.sentences == ((0, 3), (3, 6))
    assert spans(found) == [("Ann", "Ann", "0"), ("She", "She", "0")]


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (brackets, "no mention here", "no mention is marked"),
        (brackets, "[Ann]1 met [her", "a bracket is not closed, before the word 'her': write ] and"),
        (brackets, "[Ann]1 met [", "a bracket is not closed, at the end: write ] and the cluster's number behind"),
        (brackets, "Ann]1 slept", 'the "]" at character 4 closes no bracket'),
        (brackets, "[Ann] slept", 'has no cluster behind it: write ]1'),
        (brackets, "[]1 slept [she]1", "a bracket of cluster 1 holds no word"),
        (conll, "a 0 0", "line 1: a CoNLL line has at least 5 columns, this one 3: write the word in the 4th"),
        (conll, "a 0 0 Ann _ (1\n", "line 1: a mention of cluster 1 begins that never ends"),
        (conll, "a 0 0 Ann _ 1)\n", "line 1: a mention of cluster 1 ends that never began"),
        (conll, "a 0 0 Ann _ ??\n", "line 1: '??' is no mention"),
        (conllu, "1\tAnn\n", "line 1: a CoNLL-U line has 10 columns, this one 2: put tabs between"),
        (conllu, "1\tAnn\t_\t_\t_\t_\t7\troot\t_\t_\n", "line 1: the head must be 0 to 1, got '7'"),
        (conllu, "1\tAnn\t_\t_\t_\t_\t²\troot\t_\t_\n", "line 1: the head must be 0 to 1, got '²'"),
        (conllu, "1\tAnn\t_\t_\t_\t_\t0\troot\t_\tEntity=(1\n", "line 1: a mention of cluster 1 begins that never"),
        (gap, gap_file() + "\nt-2\tAnn", "line 3: has 2 columns, the header 11"),
        (gap, gap_file(**{"A-offset": "²"}), "line 2: A 'Ann Lee' does not stand at character ²"),
        (gap, gap_file(A="", **{"A-offset": "4"}), "line 2: A '' does not stand at character 4"),
        (gap, gap_file(A=" ", **{"A-offset": "3"}), "line 2: A ' ' holds no word"),
        (gap, "ID\tText\n", "the header lacks Pronoun, Pronoun-offset"),
        (gap, gap_file(**{"Pronoun-offset": "3"}), "line 2: Pronoun 'She' does not stand at character 3"),
        (jsonlines, '{"words": ["a"]}', "line 1: expected"),
        (jsonlines, "nonsense", "line 1: expected"),
        (jsonlines, "[1, 2]", "line 1: expected"),
        (jsonlines, '{"words": ["a", "b"], "clusters": [["x", 1]]}', "line 1: expected"),
        (jsonlines, '{"words": ["a", "b"], "clusters": [[[0, 0, 1], [1, 1]]]}', "0 to 1 with its head 1 outside"),
        (jsonlines, '{"words": ["a"], "clusters": [[[0, 4]]]}', "a mention [0, 4], outside the text of 1 word"),
    ],
)  # fmt: skip
def test_broken_files_name_the_place(reader, text, message):
    with pytest.raises(DataError) as caught:
        reader(text)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_read_chooses_by_ending_and_says_what_is_wrong(tmp_path):
    (tmp_path / "a.conllu").write_text(CONLLU)
    (tmp_path / "LICENSE.txt").write_text("not data")
    assert len(read(tmp_path)) == 1
    (tmp_path / "b.xyz").write_text("x")
    with pytest.raises(DataError, match=r"the ending of b\.xyz names no format: give one of brackets"):
        read(tmp_path / "b.xyz")
    with pytest.raises(DataError, match="does not exist"):
        read(tmp_path / "none.conll")
    with pytest.raises(DataError, match="format must be one of"):
        read(tmp_path / "a.conllu", "xml")
    (tmp_path / "c.conll").write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match=r"is not UTF-8 text \(byte 0\)"):
        read(tmp_path / "c.conll")


def test_published_files_are_read_whole():
    documents = read(shared("data/ontogum"))
    assert len(documents) == 31
    assert all(len({m.cluster for m in d.mentions}) < len(d.mentions) for d in documents)
    assert sum(len(d.words) for d in read(shared("data/ud_ewt"))) == 25147
    assert len(read(shared("data/litbank/conll"))) == 12
    # 2,000 examples, of which 201 have neither name as antecedent
    assert len(read(shared("data/gap/gap-development.tsv"))) == 1799
