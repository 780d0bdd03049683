"""Dependencies on sentences worked by hand, and on the treebank with MiniLM."""

import numpy as np
import pandas as pd
import pytest
from shared import shared
from traces import trace_of

from attnviz.analysis.dependencies import Dependencies, dependencies, score_sentence
from attnviz.analysis.documents import Document, document
from attnviz.analysis.readers import read
from attnviz.analysis.windows import Window, owners
from attnviz.errors import DataError, UsageError

# "old dogs chase cats !": old <- dogs <- chase -> cats, and the mark
SENTENCE = Document(
    "s",
    ("old", "dogs", "chase", "cats", "!"),
    ((0, 5),),
    heads=(1, 2, 2, 2, 2),
    relations=("amod", "nsubj", "root", "obj:x", "punct"),
)


def window(*targets):
    """One head: every word gives everything to one word."""
    weights = [[1.0 if column == target else 0.0 for column in range(5)] for target in targets]
    trace = trace_of([[weights]], list(SENTENCE.words))
    return Window(SENTENCE, trace, owners(trace.tokens, SENTENCE))


def test_both_directions_of_every_arc():
    # old looks at dogs, dogs at chase, chase at dogs, cats at itself (then the lowest index, old, is its answer)
    found = [
        (arc, *(right[way][0] for way in ("to head", "to dependent")))
        for arc, right in score_sentence(window(1, 2, 1, 3, 0))
    ]
    assert found == [
        ({"relation": "amod", "offset": 1}, 1.0, 0.0),  # dogs answers chase, not old
        ({"relation": "nsubj", "offset": 1}, 1.0, 1.0),  # chase answers dogs
        ({"relation": "obj", "offset": -1}, 0.0, 0.0),
    ]


def test_a_word_itself_is_no_answer():
    even = [0.2] * 5
    trace = trace_of([[[[0.6, 0.4, 0, 0, 0], even, [0, 0, 0.5, 0.3, 0.2], even, even]]], list(SENTENCE.words))
    scored = score_sentence(Window(SENTENCE, trace, owners(trace.tokens, SENTENCE)))
    right = {arc["relation"]: (found["to head"][0], found["to dependent"][0]) for arc, found in scored}
    assert right == {"amod": (1.0, 1.0), "nsubj": (0.0, 0.0), "obj": (0.0, 1.0)}


def test_a_word_without_tokens_is_not_asked():
    whole = window(1, 2, 1, 3, 0)
    part = Window(SENTENCE, whole.trace, (0, 1, 2, -1, 4))
    assert [arc["relation"] for arc, _ in score_sentence(part)] == ["amod", "nsubj"]


def result(to_head, to_dependent, relations, sentences, offsets):
    arcs = pd.DataFrame({"sentence": sentences, "relation": relations, "offset": offsets})
    hits = {"to head": np.array(to_head, dtype=float), "to dependent": np.array(to_dependent, dtype=float)}
    return Dependencies(((0, 0), (0, 1)), arcs, hits)


def test_heads_are_scored_on_the_other_half():
    # head 0 finds the subjects of even sentences, head 1 those of odd ones: chosen on one half, both fail on the other
    sentences, offsets = [2, 3, 4, 5, 6, 7], [1, 1, 1, 1, 1, -2]
    found = result([[1, 0], [0, 1]] * 3, [[0, 0]] * 6, ["nsubj"] * 6, sentences, offsets)
    row = found.table(minimum=6).set_index("relation").loc["nsubj"]
    assert row["accuracy"] == 0.0
    assert row["n"] == 6
    assert found.relations(7) == ["all"]
    # +1 is the best offset of both halves, and right in 5 of 6
    assert (row["best fixed offset"], row["offset accuracy"]) == (1, 5 / 6)


def test_head_and_direction_are_those_that_find_most():
    # head 1 finds every dependent, head 0 the heads of one sentence in each half
    found = result([[1, 0], [1, 0], [0, 0], [0, 0]], [[0, 1]] * 4, ["obj"] * 4, [1, 2, 3, 4], [1, 1, 1, 1])
    row = found.table(minimum=1).set_index("relation").loc["obj"]
    assert (row["layer"], row["head"], row["direction"], row["accuracy"]) == (0, 1, "to dependent", 1.0)
    assert found.accuracy("obj", "to head").tolist() == [0.5, 0.0]


def test_one_half_of_the_sentences_is_too_little():
    with pytest.raises(DataError, match="scored on the others: give more sentences"):
        result([[1, 0]] * 2, [[0, 0]] * 2, ["nsubj"] * 2, [1, 3], [1, 1]).table(minimum=1)


def test_one_relation_has_a_row_for_every_head_and_direction():
    found = result([[1, 0], [1, 1]], [[0, 0], [0, 1]], ["nsubj", "obj"], [1, 2], [1, 1])
    table = found.heads_on("all")
    assert table["accuracy"].tolist() == [1.0, 0.5, 0.5, 0.0]
    assert table.iloc[0].to_dict() == {"layer": 0, "head": 0, "direction": "to head", "accuracy": 1.0, "n": 2}
    assert found.heads_on("obj")["n"].unique().tolist() == [1]
    with pytest.raises(UsageError, match="direction must be one of to head, to dependent, got 'up'"):
        found.heads_on("all", "up")
    with pytest.raises(UsageError, match="no arc has the relation 'dobj': there are all, nsubj, obj"):
        found.heads_on("dobj")


def test_documents_without_syntax_are_refused(minilm):
    with pytest.raises(DataError, match="d has no syntactic heads and relations: give CoNLL-U with HEAD and DEPREL"):
        dependencies([document(["a", "b"], name="d")], *minilm)
    alone = Document("d", ("Yes",), ((0, 1),), heads=(0,), relations=("root",))
    with pytest.raises(DataError, match="no sentence has two words joined by a relation"):
        dependencies([alone], *minilm)


def test_heads_of_minilm_beat_fixed_offsets_on_determiners_and_objects(minilm):
    table = dependencies(read(shared("data/ud_ewt"))[:20], *minilm).table(minimum=20).set_index("relation")
    for relation in ("det", "obj", "case"):
        assert table.loc[relation, "accuracy"] > table.loc[relation, "offset accuracy"] + 0.1
