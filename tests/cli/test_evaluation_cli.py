"""`attnviz coref` and `deps`: what they print of annotated texts."""

import pytest
from cli.commands import records

pytestmark = pytest.mark.usefixtures("minilm")


def test_coref_prints_heads_rules_and_halves(attnviz, tmp_path):
    lines = ["[Ann]1 met [Bo]2 and [she]1 smiled .", "[The king]1 slept . [He]1 snored , [the king]1 did ."]
    (tmp_path / "texts.txt").write_text("\n".join(lines))
    told = attnviz("coref", "minilm", tmp_path / "texts.txt").out
    assert "3 of 3 mentions with an antecedent have one in view" in told
    assert "Share of them whose antecedent is found, among any preceding mention." in told
    assert "same head word else nearest" in told
    assert told.startswith("warning: 3 mentions are scored, below 100 do not trust a best head\n")
    assert "The best head of one half" in told
    options = ("--candidates", "other word", "--overlap", 1, "--random-weights", "-o", tmp_path / "c.csv")
    found = records(attnviz("coref", "minilm", tmp_path / "texts.txt", "--json", *options))
    assert len(found["heads"]) == len(found["heads, random weights"]) == 72
    assert found["heads"] != found["heads, random weights"]
    assert {row["rule"] for row in found["rules"]} >= {"chance", "nearest", "first", "same head word"}
    assert len(found["halves"]) == 2
    assert found["candidates"] == "other word"
    assert "1 sentence of overlap" in found["reading"]
    assert len((tmp_path / "c.csv").read_text().splitlines()) == 73
    one = ("coref", "minilm", tmp_path / "texts.txt", "--layer", 2, "--head", 4)
    rows = records(attnviz(*one, "--document", 1, "--json", "-o", tmp_path / "arcs.svg"))
    assert {(row["from"], row["to"]) for row in rows if not row["answer"]} == {(4, 1), (8, 4)}
    assert len(rows) == 4
    drawn = (tmp_path / "arcs.svg").read_text()
    assert "layer 2, head 4 answers" in drawn
    assert ">minilm</text>" in drawn
    told = attnviz(*one, "--document", 2, code=2).err
    assert told == "error: document 2 does not exist: there are 2, counted from 0\n"
    told = attnviz(*one[:-1], 12, code=2).err
    assert told == "error: head 12 does not exist: layer 2 of this trace has 12 heads (0 to 11)\n"
    told = attnviz(*one, "--random-weights", code=2).err
    assert told == "error: --random-weights is about every head: leave out --layer and --head\n"
    told = attnviz("coref", "minilm", tmp_path / "texts.txt", "-o", tmp_path / "c.xyz", code=2).err
    assert told.startswith("error: format must be one of")


def test_a_terminal_sees_how_far_it_is_and_a_file_does_not(attnviz, tmp_path, monkeypatch):
    (tmp_path / "texts.txt").write_text("[Ann]1 met [Bo]2 and [she]1 smiled .")
    asked = ("coref", "minilm", tmp_path / "texts.txt", "--json")
    plain = attnviz(*asked)
    monkeypatch.setenv("FORCE_COLOR", "1")
    shown = attnviz(*asked)
    assert "Reading 1 document" not in plain.err
    assert "Reading 1 document" in shown.err
    assert shown.out == plain.out


def test_deps_needs_conllu(attnviz, tmp_path):
    row = "{}\t{}\t_\tNOUN\tNN\t_\t{}\t{}\t_\t_"
    sentence = "\n".join(
        [row.format(1, "dogs", 2, "nsubj"), row.format(2, "chase", 0, "root"), row.format(3, "cats", 2, "obj")]
    )
    (tmp_path / "a.conllu").write_text(f"{sentence}\n\n" * 6)
    found = records(attnviz("deps", "minilm", tmp_path / "a.conllu", "--minimum", 2, "--json"))
    assert {row["relation"] for row in found} == {"all", "nsubj", "obj"}
    assert {row["n"] for row in found} == {6, 12}
    told = attnviz("deps", "minilm", tmp_path / "a.conllu").out
    assert told.startswith("left out for fewer than 50 arcs (--minimum): nsubj, obj\n")
    subjects = ("deps", "minilm", tmp_path / "a.conllu", "--relation", "nsubj")
    heads = records(attnviz(*subjects, "--json", "-o", tmp_path / "deps.svg"))
    assert len(heads) == 144
    assert {row["direction"] for row in heads} == {"to head", "to dependent"}
    assert "nsubj arcs a head finds, in its better direction" in (tmp_path / "deps.svg").read_text()
    one_way = records(attnviz(*subjects, "--direction", "to dependent", "--json"))
    assert one_way == [row for row in heads if row["direction"] == "to dependent"]
    place = ("deps", "minilm", tmp_path / "a.conllu", "--layer", 2, "--head", 4, "--sentence")
    rows = records(attnviz(*place, 5, "--direction", "to dependent", "--json"))
    assert [(row["from"], row["to"]) for row in rows] == [(0, 1), (2, 1), (1, rows[2]["to"]), (1, rows[3]["to"])]
    assert attnviz(*place, 6, code=2).err == "error: sentence 6 does not exist: there are 6, counted from 0\n"
    told = attnviz("deps", "minilm", tmp_path / "a.conllu", "--relation", "dobj", code=2).err
    assert told == "error: no arc has the relation 'dobj': there are all, nsubj, obj\n"


def test_data_that_cannot_be_scored_is_one_line(attnviz, tmp_path):
    (tmp_path / "mixed.txt").write_text("[Ann]1 slept .\n[Bo]2 saw [him]2 .\n")
    asked = ("coref", "minilm", tmp_path / "mixed.txt")
    assert attnviz(*asked).out.startswith("warning: 1 mention is scored, below 100")
    told = attnviz(*asked, "--layer", 2, "--head", 4, code=1).err
    assert told.startswith("error: no mention has an antecedent in what is drawn of mixed.txt line 1: choose another")
    (tmp_path / "lone.txt").write_text("[Ann]1 slept .\n[Bo]2 woke .\n")
    told = attnviz("coref", "minilm", tmp_path / "lone.txt", code=1).err
    assert told.startswith("error: every cluster has one mention, 1 of lone.txt line 1 too: mark at least two")
    row = "{}\t{}\t_\t_\t_\t_\t{}\t{}\t_\tEntity=({})\n"
    (tmp_path / "one.conllu").write_text(row.format(1, "dogs", 2, "nsubj", 1) + row.format(2, "bark", 0, "root", 2))
    told = attnviz("deps", "minilm", tmp_path / "one.conllu", code=1).err
    assert told.startswith("error: a head is chosen on every second sentence and scored on the others")
    (tmp_path / "bare.conllu").write_text(row.format(1, "he", "_", "_", 1) + row.format(2, "he", "_", "_", 1))
    assert "1 of 1 mentions with an antecedent" in attnviz("coref", "minilm", tmp_path / "bare.conllu").out
    told = attnviz("deps", "minilm", tmp_path / "bare.conllu", code=1).err
    assert told == "error: bare.conllu has no syntactic heads and relations: give CoNLL-U with HEAD and DEPREL\n"


def test_missing_data_is_one_line(attnviz, tmp_path):
    assert "does not exist: give a file or a folder" in attnviz("coref", "minilm", tmp_path / "no.conll", code=1).err
    (tmp_path / "bad.conll").write_text("a 0\n")
    assert "bad.conll line 1: a CoNLL line has at least 5 columns" in (
        attnviz("coref", "minilm", tmp_path / "bad.conll", code=1).err
    )
