"""Coreference and dependencies: texts in, arcs and tables out, and the pages that show them."""

import pytest
import torch
from tiny_models import save_bert
from traces import trace_of

from attnviz import load_model
from attnviz.analysis import answers
from attnviz.analysis.antecedents import CANDIDATES
from attnviz.analysis.coreference import coreference
from attnviz.analysis.dependencies import dependencies
from attnviz.analysis.windows import Window
from attnviz.charts import annotated as drawn
from attnviz.dashboard import annotated
from attnviz.dashboard.coreference import EXAMPLE
from attnviz.dashboard.dependencies import EXAMPLE as SENTENCES
from attnviz.dashboard.safe import plain
from attnviz.errors import DataError

MARKED = "[the cat]1 sat . [the cat]1 sat ."


@pytest.fixture
def window():
    """Four words, of which the last refers to the first; head 0 looks there, head 1 one word back."""
    (found,) = annotated.typed_brackets("[Ann]1 met Bo . [She]1")
    first, back = torch.eye(5), torch.eye(5)
    first[4] = torch.tensor([0.7, 0.1, 0.1, 0.0, 0.1])
    back[4] = torch.tensor([0.1, 0.1, 0.1, 0.6, 0.1])
    trace = trace_of([[first.tolist(), back.tolist()]], list(found.words))
    return Window(found, trace, tuple(range(5)))


def test_heads_that_point_to_the_antecedent_come_first(window):
    (query,) = answers.asked(window)
    table = answers.pointing(window, query, "preceding word")
    assert table[["head", "answer", "right"]].values.tolist() == [[0, "Ann", True], [1, ".", False]]
    assert table["on antecedents"].tolist() == pytest.approx([0.7, 0.1])


def test_a_candidate_set_restricts_the_answer(window):
    (query,) = answers.asked(window)
    assert answers.answer_of(window, query, "preceding word", 0, 1) == 3
    assert answers.answer_of(window, query, "preceding mention", 0, 1) == 0


def test_arcs_stand_above_for_antecedents_and_below_for_answers(window):
    found = answers.asked(window)
    above, below = drawn.coreference_arcs(window, found, [3])
    assert (above.start, above.stop, above.above) == (4, 0, True)
    assert (below.start, below.stop, below.above, below.right) == (4, 3, False, False)


def test_every_word_of_a_mention_is_marked(window):
    assert drawn.mention_marks(window.document) == {0: "1", 4: "1"}


def test_the_score_is_that_of_the_library(real, model_folder):
    app = real("coreference", model="bert", marked=MARKED, candidates="any preceding word")
    found = coreference(annotated.typed_brackets(MARKED), *load_model(model_folder / "bert"))
    best, rules = app.dataframe[0].value, app.dataframe[1].value
    assert best["accuracy"].tolist() == pytest.approx(found.table("preceding word")["accuracy"].tolist()[:5], abs=1e-4)
    assert rules["rule"].tolist() == found.baselines("preceding word")["rule"].tolist()
    assert app.selectbox(key="candidates").value == "preceding word"
    assert any("of 8 heads answer with an antecedent (cat)" in text.value for text in app.text)


@pytest.mark.parametrize("kind", CANDIDATES)
def test_the_candidates_are_always_named(real, kind):
    app = real("coreference", model="llama", marked=MARKED, candidates=f"any {kind}")
    assert app.selectbox(key="candidates").value == kind
    assert not app.error
    assert f"among any {kind}" in app.main.get("html")[-1].proto.body


def test_a_mention_is_chosen_by_name(real):
    app = real("coreference", model="bert", marked="[the cat]1 sat . [it]1 sat . [it]1 sat .", mention="7 it")
    assert app.selectbox(key="mention").value == "7 it"
    assert not app.warning


def test_broken_brackets_are_one_line(real):
    app = real("coreference", model="bert", marked="[the cat sat")
    assert [error.value for error in app.error] == [
        plain("text: a bracket is not closed, before the word 'the': write ] and the cluster's number behind its words")
    ]


def test_a_file_is_read(real, model_folder):
    app = real("coreference", model="bert", **{"from": "File"})
    assert [info.value for info in app.info] == ["Choose a file above; it stays on this machine."]
    app.file_uploader[0].upload("two.txt", (MARKED + "\n" + MARKED).encode(), "text/plain").run()
    assert not app.exception
    assert app.selectbox(key="which").options == ["1 two.txt line 1", "2 two.txt line 2"]


def test_an_unknown_ending_names_the_formats():
    with pytest.raises(DataError, match=r"^the ending of a\.doc names no format: give one of brackets, "):
        annotated.uploaded("a.doc", b"x")
    with pytest.raises(DataError, match="is not UTF-8 text"):
        annotated.uploaded("a.txt", b"\xff\xfe")


def test_examples_are_right():
    (found,) = annotated.typed_brackets(EXAMPLE)
    assert [mention.cluster for mention in found.mentions] == ["1", "2", "1", "2", "1"]
    first, second = answers.sentences(annotated.typed_conllu(SENTENCES))
    assert first.words == ("The", "cat", "chased", "a", "mouse")
    assert second.heads == (1, 1, 4, 4, 1)


def test_dependencies_agree_with_the_library(real, model_folder):
    app = real("dependencies", model="bert", relation="det", direction="to dependent")
    found = dependencies(annotated.typed_conllu(SENTENCES), *load_model(model_folder / "bert"))
    expected = found.heads_on("det", "to dependent")
    shown = app.dataframe[0].value
    assert shown["accuracy"].tolist() == pytest.approx(expected["accuracy"].tolist()[:8], abs=1e-4)
    assert not app.error


def test_dependency_arcs_say_what_is_right(tmp_path):
    model, tokenizer = load_model(save_bert(tmp_path / "bert"))
    (found,) = annotated.typed_conllu("1  cat  _  NOUN  _  _  2  nsubj  _  _\n2  sat  _  VERB  _  _  0  root  _  _\n")
    window = annotated.first_window(found, model, tokenizer, _job())
    above, below = drawn.dependency_arcs(window, 0, 0, "to head")
    assert (above.start, above.stop, above.about) == (0, 1, "cat is nsubj of sat")
    assert (below.start, below.stop, below.right) == (0, 1, True), "of two words there is only one other"


def _job():
    from attnviz.dashboard.jobs import Job

    return Job("test")


def test_one_sentence_has_no_halves(real):
    one = SENTENCES.split("\n\n")[0]
    app = real("dependencies", model="bert", conllu=one)
    assert any("needs two sentences" in text.value for text in app.text)
    assert not app.error


def test_a_file_of_sentences_may_end_in_txt():
    from attnviz.dashboard.annotated import uploaded_conllu

    assert uploaded_conllu("a.txt", b"1\tHi\thi\tINTJ\t_\t_\t0\troot\t_\t_\n")[0].words == ("Hi",)
