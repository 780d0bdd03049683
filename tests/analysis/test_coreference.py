from dataclasses import replace

import numpy as np
import pytest
import torch
from shared import shared
from traces import make_axis, trace_of

from attnviz.analysis.antecedents import CANDIDATES, OFFSETS, agree, candidates, offset_answers, queries, rule_answers
from attnviz.analysis.coreference import Coreference, bootstrap, coreference, score_window
from attnviz.analysis.documents import Document, Mention, document
from attnviz.analysis.readers import brackets, read
from attnviz.analysis.windows import Window, fitting, owners, randomised, recorded, split, word_rows
from attnviz.errors import DataError, UsageError
from attnviz.recording import record
from attnviz.tokens import Token
from attnviz.views import Dense

# 0 Ann  1 met  2 Bo  3 and  4 Cy  5 .  6 She  7 smiled
WORDS = ["Ann", "met", "Bo", "and", "Cy", ".", "She", "smiled"]
TEXT = document(WORDS, {"ann": [(0, 1), (6, 7)], "bo": [(2, 3)], "cy": [(4, 5)]})


def window(weights, text=TEXT):
    trace = trace_of(weights, list(text.words))
    return Window(text, trace, owners(trace.tokens, text))


def rows_to(*columns):
    """One layer whose heads each put everything from word 6 on one column (and every other word on itself)."""
    heads = []
    for column in columns:
        map_ = torch.eye(len(WORDS))
        map_[6] = 0.0
        map_[6, column] = 1.0
        heads.append(map_.tolist())
    return [heads]


def test_queries_are_heads_with_an_earlier_mention_of_their_cluster():
    (query,) = queries(TEXT)
    assert (query.word, query.cluster, query.gold, query.type) == (6, "ann", (0,), "pronoun")
    assert query.distance == 6
    assert not query.same_head


def test_distance_is_to_the_nearest_antecedent_and_any_may_share_the_word():
    # 0 Ann 1 , 2 she 3 , 4 Ann 5 ; 6 Bo
    found = queries(document(["Ann", ",", "she", ",", "Ann", ";", "Bo"], {"ann": [(0, 1), (2, 3), (4, 5)]}))
    assert [(query.word, query.gold, query.distance, query.same_head) for query in found] == [
        (2, (0,), 2, False),
        (4, (0, 2), 2, True),
    ]


def test_candidate_sets():
    (query,) = queries(TEXT)
    found = {kind: np.flatnonzero(candidates(TEXT, query, kind)).tolist() for kind in CANDIDATES}
    assert found == {
        "other word": [0, 1, 2, 3, 4, 5, 7],
        "preceding word": [0, 1, 2, 3, 4, 5],
        "other mention": [0, 2, 4],
        "preceding mention": [0, 2, 4],
    }


def test_rules_on_the_worked_case():
    (query,) = queries(TEXT)
    allowed = candidates(TEXT, query, "preceding mention")
    answers = rule_answers(TEXT, query, allowed, "preceding mention")
    # nothing has the word "She"; the nearest mention that does not contradict it is Cy
    assert answers == {
        "nearest": 4,
        "first": 0,
        "same head word": None,
        "same head word else nearest": 4,
        "sieve": 4,
    }
    offsets = offset_answers(query, allowed, "preceding mention")
    assert [offsets[k] for k in (-1, -2, -3, -4, 1)] == [4, 2, 0, None, None]
    words = offset_answers(query, candidates(TEXT, query, "other word"), "other word")
    assert (words[-6], words[1], words[2]) == (0, 7, None)


def test_sieve_prefers_string_then_head_then_agreement():
    # 0 the 1 king 2 saw 3 him 4 and 5 queens 6 ; 7 she 8 a 9 king
    found = document(
        ["the", "king", "saw", "him", "and", "queens", ";", "she", "a", "king"],
        {"k": [(0, 2, 1), (3, 4), (8, 10, 9)], "q": [(5, 6), (7, 8)]},
    )
    by_word = {query.word: query for query in queries(found)}

    def sieve(word):
        query = by_word[word]
        kind = "preceding mention"
        return rule_answers(found, query, candidates(found, query, kind), kind)["sieve"]

    assert sieve(9) == 1  # same head word, although "she" is nearer
    king = by_word[9]
    answers = rule_answers(found, king, candidates(found, king, "preceding mention"), "preceding mention")
    assert (answers["nearest"], answers["same head word else nearest"]) == (7, 1)
    # around "him": king before it, queens, she and king after it
    offsets = offset_answers(by_word[3], candidates(found, by_word[3], "other mention"), "other mention")
    assert [offsets[k] for k in (-2, -1, 1, 2, 3, 4)] == [None, 1, 5, 7, 9, None]
    assert sieve(3) == 1  # nothing contradicts
    # among mentions with one head word the longest counts, and the same string goes before the nearest same head
    text = ["the", "king", ";", "a", "king", ";", "the", "king"]
    spans = {"one": [(0, 2, 1), (1, 2), (6, 8, 7)], "two": [(3, 5, 4)]}
    again = document(text, spans)
    (last,) = [query for query in queries(again) if query.word == 7]
    answers = rule_answers(again, last, candidates(again, last, "preceding mention"), "preceding mention")
    assert (answers["sieve"], answers["same head word"], answers["nearest"]) == (1, 4, 4)
    assert answers["same head word else nearest"] == 4
    # "she" is singular and "him" is male, so that "queens" (number unknown without tags) is the nearest that agrees
    assert sieve(7) == 5


def test_agreement_needs_no_contradiction():
    words = ("he", "she", "they", "kings", "king")
    found = Document("d", words, ((0, 5),), xpos=("PRP", "PRP", "PRP", "NNS", "NN"))
    mentions = [Mention(i, i + 1, i, "x") for i in range(5)]

    def agrees(i, j):
        return agree(found, mentions[i], mentions[j])

    assert not agrees(0, 1)  # gender
    assert not agrees(0, 2)  # number
    assert agrees(2, 3)
    assert not agrees(1, 3)
    assert agrees(0, 4)


def test_a_head_is_right_when_its_largest_weight_is_an_antecedent():
    (scored,) = score_window(window(rows_to(0, 2, 7)))
    # head 0 points at Ann; head 1 at Bo; head 2 at "smiled", where the lowest of equal candidates, Ann, wins
    assert scored.hits["other word"].tolist() == [1.0, 0.0, 0.0]
    assert scored.hits["preceding mention"].tolist() == [1.0, 0.0, 1.0]
    assert scored.rules["preceding mention"]["chance"] == pytest.approx(1 / 3)
    assert scored.rules["other word"]["chance"] == pytest.approx(1 / 7)
    assert np.isnan(scored.rules["other word"]["sieve"])
    # a rule that has no answer is wrong, and so is an offset at which nothing stands
    assert scored.rules["preceding mention"]["same head word"] == 0.0
    assert [scored.rules["preceding mention"][f"offset {k:+d}"] for k in (-3, -1, 1)] == [1.0, 0.0, 0.0]


def test_word_rows_sum_to_and_average_from():
    # tokens: [CLS] em ##bed ding  -> words 0 (1 piece: "em"), 1 (pieces 2 and 3)
    weights = torch.arange(16.0).reshape(1, 1, 4, 4)
    found = word_rows(Dense(weights), (-1, 0, 1, 1), [1, 0], 2)
    # word 1: mean of rows 2 and 3; to word 0: column 1, to word 1: columns 2 + 3
    assert found[0].tolist() == [[(9 + 13) / 2, (10 + 11 + 14 + 15) / 2], [5.0, 6.0 + 7.0]]


def test_owners_need_offsets():
    with pytest.raises(UsageError, match="gives no character offsets"):
        owners([Token(1, "a", "a")], TEXT)
    assert owners(make_axis(WORDS).tokens, TEXT) == tuple(range(8))


class Letters:
    """A tokenizer of one token a letter."""

    def __call__(self, text, **_):
        return {"input_ids": list(text.replace(" ", ""))}


def test_windows_are_whole_sentences_and_long_sentences_are_cut():
    text = document(["aa", "bb", ".", "cc", ".", "dddd", "ee", "."])
    assert text.sentences == ((0, 3), (3, 5), (5, 8))
    parts = split(text, Letters(), 8)
    assert [part.document.words for part in parts] == [("aa", "bb", ".", "cc", "."), ("dddd", "ee", ".")]
    assert [part.document.words for part in split(text, Letters(), 5)][-1] == ("dddd",)
    assert [part.document.words for part in split(text, Letters(), 6)][-1] == ("dddd", "ee")
    assert [part.repeated for part in parts] == [0, 0]
    with pytest.raises(UsageError, match="at least 2 tokens, got 1"):
        split(text, Letters(), 1)


def test_windows_repeat_sentences_as_far_as_they_fit():
    text = document(["aa", ".", "bb", ".", "cc", ".", "dddd", "."])
    parts = split(text, Letters(), 6, overlap=1)
    # "dddd ." leaves no room for "cc ." before it
    found = [(part.document.text, part.repeated) for part in parts]
    assert found == [("aa . bb .", 0), ("bb . cc .", 2), ("dddd .", 0)]
    assert [part.document.text for part in split(text, Letters(), 9, overlap=2)] == ["aa . bb . cc .", "cc . dddd ."]
    with pytest.raises(UsageError, match="windows overlap by 0 or more sentences, got -1"):
        split(text, Letters(), 6, overlap=-1)


def test_a_mention_in_the_overlap_is_asked_once():
    (whole,) = score_window(window(rows_to(0)))
    assert whole.query["distance"] == 6
    assert list(score_window(replace(window(rows_to(0)), repeated=7))) == []


def test_overlap_finds_antecedents_across_windows(minilm):
    model, tokenizer = minilm
    words = ["Ann", "slept", "late", ".", "She", "woke", "up", ".", "Bo", "saw", "her", "."]
    text = document(words, {"ann": [(0, 1), (4, 5), (10, 11)]})
    apart = coreference([text, text], model, tokenizer, window=8)
    joined = coreference([text, text], model, tokenizer, window=8, overlap=1)
    assert (len(apart.queries), len(joined.queries)) == (2, 4)
    assert joined.queries["distance"].tolist() == [4, 6, 4, 6]
    assert apart.reading == (
        "2 documents in 4 windows of whole sentences, up to 8 tokens each, 0 sentences of overlap;"
        " 2 of 4 mentions with an antecedent have one in view"
    )
    assert "2 documents in 4 windows" in joined.reading
    longer = document(["Ann", "saw", "Ann", "go", "home", "."], {"ann": [(0, 1), (2, 3)]})
    reading = coreference([longer], model, tokenizer, window=4).reading
    assert reading.endswith("2 words of longer sentences were not read")


def test_a_start_token_is_put_before_every_window(smollm2, minilm):
    text = document(["Ann", "slept", "because", "she", "could", "."], {"ann": [(0, 1), (3, 4)]})
    model, tokenizer = smollm2
    (plain,), (started,) = (split(text, tokenizer, 126) for _ in range(2))
    one, two = recorded(plain, model, tokenizer), recorded(started, model, tokenizer, start=True)
    assert two.trace.tokens[0].special
    assert [token.text for token in two.trace.tokens[1:]] == [token.text for token in one.trace.tokens]
    assert two.owners == (-1, *one.owners)
    ids = torch.tensor([[tokenizer.bos_token_id, *tokenizer(text.text).input_ids]])
    with torch.no_grad(), record(model, tokenizer=tokenizer) as trace:
        model(input_ids=ids)
    torch.testing.assert_close(two.trace[9, 2].weights(), trace[9, 2].weights())
    with_start = coreference([text], model, tokenizer, start=True)
    assert "0 sentences of overlap, a start token before each; 1 of 1" in with_start.reading
    with pytest.raises(UsageError, match="this tokenizer has no start token: leave it out"):
        coreference([text], *minilm, start=True)


def test_windows_are_no_longer_than_the_model_reads(tmp_path):
    from tiny_models import save_bert

    from attnviz.models import load_model

    model, tokenizer = load_model(save_bert(tmp_path / "bert"))
    assert fitting(model, tokenizer, 126) == 30
    text = document(["the", "cat", "sat", "."] * 10, {"cat": [(1, 2), (5, 6), (37, 38)]})
    assert "windows of whole sentences, up to 30 tokens each" in coreference([text], model, tokenizer).reading


def result(hits, documents):
    import pandas as pd

    count = len(hits)
    table = pd.DataFrame(
        {"document": documents, "type": ["pronoun"] * count, "distance": [3] * count, "same_head": [False] * count}
    )
    found = np.array(hits, dtype=float)
    return Coreference(((0, 0), (0, 1)), table, dict.fromkeys(CANDIDATES, found), {kind: {} for kind in CANDIDATES})


def test_best_head_is_scored_where_it_was_not_chosen():
    # head 0 is right in documents a and c, head 1 in b and d
    found = result([[1, 0], [0, 1], [1, 0], [0, 1]], ["a", "b", "c", "d"]).best()
    assert found["head"].tolist() == [0, 1]
    assert found["chosen"].tolist() == [1.0, 1.0]
    assert found["accuracy"].tolist() == [0.0, 0.0]
    assert found[["low", "high", "n"]].values.tolist() == [[0.0, 0.0, 2], [0.0, 0.0, 2]]
    with pytest.raises(DataError, match="at least 2 documents, got 1"):
        result([[1, 0]], ["a"]).best()


def test_table_and_split():
    found = result([[1, 0], [1, 1], [0, 1], [1, 0]], ["a", "a", "b", "b"])
    assert found.table()[["head", "accuracy", "n"]].values.tolist() == [[0, 0.75, 4], [1, 0.5, 4]]
    parts = found.split(0, 0).set_index("part")
    assert parts.loc["pronouns", "accuracy"] == 0.75
    assert parts.loc["1 to 5 words", "n"] == 4
    with pytest.raises(UsageError, match="layer 7 head 0 was not scored"):
        found.split(7, 0)
    with pytest.raises(UsageError, match="candidates must be one of other word, preceding word"):
        found.table("any")


def test_split_by_type_distance_and_head_word():
    import pandas as pd

    rows = [("pronoun", 5, False, 1), ("pronoun", 6, False, 0), ("name", 15, True, 1), ("noun", 41, True, 1)]
    table = pd.DataFrame(rows, columns=["type", "distance", "same_head", "hit"]).assign(document="a")
    hits = table["hit"].to_numpy(dtype=float)[:, None]
    found = Coreference(((0, 0),), table, dict.fromkeys(CANDIDATES, hits), {kind: {} for kind in CANDIDATES})
    parts = {row["part"]: (row["accuracy"], row["n"]) for row in found.split(0, 0).to_dict("records")}
    assert parts == {
        "pronouns": (0.5, 2), "names": (1.0, 1), "nouns": (1.0, 1),
        "1 to 5 words": (1.0, 1), "6 to 15 words": (0.5, 2), "over 40 words": (1.0, 1),
        "same head word": (1.0, 2), "other head word": (0.5, 2),
    }  # fmt: skip


def test_baselines_name_the_best_offset_and_leave_out_rules_that_do_not_apply():
    import pandas as pd

    rules = {f"offset {k:+d}": np.array([0.0, 0.0]) for k in OFFSETS} | {
        "offset -2": np.array([1.0, 0.0]),
        "offset +1": np.array([1.0, 0.0]),  # as good, but -2 and +1 tie: the smaller step is named
        "chance": np.array([0.5, 0.25]),
        "nearest": np.array([0.0, 1.0]),
        "first": np.array([1.0, 1.0]),
        "same head word": np.array([0.0, 0.0]),
        "same head word else nearest": np.array([0.0, 1.0]),
        "sieve": np.array([np.nan, np.nan]),
    }
    table = pd.DataFrame({"document": ["a", "b"]})
    hits = dict.fromkeys(CANDIDATES, np.zeros((2, 1)))
    found = Coreference(((0, 0),), table, hits, dict.fromkeys(CANDIDATES, rules)).baselines("other word")
    assert found.set_index("rule")["accuracy"].to_dict() == {
        "chance": 0.375,
        "nearest": 0.5,
        "first": 1.0,
        "same head word": 0.0,
        "same head word else nearest": 0.5,
        "best fixed offset (+1)": 0.5,
    }
    assert found["n"].tolist() == [2] * 6


def test_interval_is_that_of_the_share_of_all_queries():
    # forty documents of one query, half of them right: 1.96 * sqrt(0.25 / 40) to both sides
    low, high = bootstrap(np.tile([0.0, 1.0], 20), np.arange(40), 4000)
    assert (low, high) == pytest.approx((0.345, 0.655), abs=0.02)
    # seven documents of 99 right answers and one of a single wrong one: long documents weigh more
    documents = np.repeat(np.arange(8), [99] * 7 + [1])
    low, high = bootstrap((documents < 7).astype(float), documents, 1000)
    assert 0.98 < low < 1.0
    assert high == 1.0


def test_bootstrap_draws_documents():
    hits = np.array([1.0, 1.0, 0.0, 0.0])
    assert bootstrap(hits, np.array(["a", "a", "b", "b"]), 500) == (0.0, 1.0)
    assert bootstrap(np.ones(4), np.array(["a", "a", "b", "b"]), 500) == (1.0, 1.0)


def test_a_model_with_several_kinds_of_attention_is_refused(tmp_path):
    from dashboard.models import write_pair

    from attnviz.models import load_model

    with pytest.raises(UsageError, match="an encoder-decoder model has several kinds of attention: give an encoder or"):
        coreference([TEXT], *load_model(write_pair(tmp_path) / "t5"))


def test_nothing_to_score(minilm):
    alone = document(["Ann", "slept", "."], {"a": [(0, 1), (2, 3)]})
    model, tokenizer = minilm
    with pytest.raises(DataError, match="no mention has an antecedent in its window"):
        coreference([alone], model, tokenizer, window=2)
    with pytest.raises(DataError, match="no mention is marked in these documents: coreference needs clusters"):
        coreference([document(["Ann", "slept", "."])], model, tokenizer)


def test_ontogum_agrees_with_figures_computed_independently(minilm):
    """Eager weights in float64 over the same windows gave 70 to 76 % for layer 2 head 4, and the rules beside it."""
    model, tokenizer = minilm
    found = coreference(read(shared("data/ontogum"))[:12], model, tokenizer)
    table = found.table("preceding mention").set_index(["layer", "head"])
    assert 0.66 < table.loc[(2, 4), "accuracy"] < 0.80
    rules = found.baselines("preceding mention").set_index("rule")["accuracy"]
    for rule, known in {"chance": 0.30, "nearest": 0.35, "same head word else nearest": 0.66, "sieve": 0.73}.items():
        assert rules[rule] == pytest.approx(known, abs=0.06)


def test_random_weights_stay_near_chance(minilm):
    model, tokenizer = minilm
    found = coreference(read(shared("data/ontogum"))[:6], randomised(model), tokenizer)
    chance = found.baselines().set_index("rule")["accuracy"]["chance"]
    assert found.table()["accuracy"].max() < chance + 0.1
    assert found.best()["accuracy"].mean() < chance + 0.05


def test_a_decoder_only_looks_back(smollm2):
    model, tokenizer = smollm2
    text = brackets("[The king]1 met [Ann]2 when [he]1 was ill , and [she]2 told [him]1 that [Ann]2 knew [the king]1 .")
    found = coreference([text], model, tokenizer)
    assert len(found.queries) == 5
    assert (found.hits["other word"] == found.hits["preceding word"]).all()
    assert (found.hits["other mention"] == found.hits["preceding mention"]).all()
    assert found.rules["other word"]["chance"].mean() < found.rules["preceding word"]["chance"].mean()
