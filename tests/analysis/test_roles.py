from dataclasses import replace

import pandas as pd
import pytest
import torch
from traces import make_trace, trace_of

from attnviz.analysis.heads import heads_table
from attnviz.analysis.roles import ROLES, has_offsets, positional, prefix_matching, repeated_tokens, roles
from attnviz.analysis.windows import randomised
from attnviz.composed import Unkept
from attnviz.errors import UsageError
from attnviz.recording import inspect
from tests.tiny_models import llama

TEXT = "The keeper of the lighthouse wrote down the weather every evening, and his daughter read it to the ships."

BACK_TWO = [[1.0, 0, 0, 0], [0.6, 0.4, 0, 0], [0.7, 0.2, 0.1, 0], [0.0, 0.8, 0.1, 0.1]]
OWN = [[1.0, 0, 0, 0], [0.001, 0.999, 0, 0], [0.0, 0.001, 0.999, 0], [0.0, 0.0, 0.001, 0.999]]
PREVIOUS = [[1.0, 0, 0, 0], [0.9, 0.1, 0, 0], [0.1, 0.8, 0.1, 0], [0.5, 0.1, 0.4, 0]]


def test_positional_on_the_worked_case():
    two, previous = positional(trace_of([[BACK_TWO, PREVIOUS]])).to_dict("records")
    # at -2: 0.7 and 0.8; at -1: 0.6, 0.2, 0.1
    assert (two["offset"], two["weight"], two["positional"]) == (-2, pytest.approx(0.75), 1.0)
    # at -1: 0.9, 0.8, 0.4, the largest in two rows of three
    assert (previous["offset"], previous["weight"]) == (-1, pytest.approx(0.7))
    assert previous["positional"] == pytest.approx(2 / 3)


def test_rows_that_see_nothing_are_left_out():
    blind = [[0.0] * 3, [0.9, 0.1, 0.0], [0.0, 0.9, 0.1]]
    (row,) = positional(trace_of([[blind]])).to_dict("records")
    assert (row["offset"], row["weight"], row["positional"]) == (-1, pytest.approx(0.9), 1.0)


def test_rows_behind_a_cache_stand_where_their_keys_are():
    whole = make_trace([str(i) for i in range(9)], layers=1, causal=True)
    part = make_trace([str(i) for i in range(9)], layers=1, causal=True)
    cut = whole.record(0).view.crop(slice(4, 9), slice(0, 9))
    part.records = [replace(part.records[0], view=cut, statistics=None, row_start=4)]
    dense = whole.record(0).view.tile(slice(None), slice(None))[0]
    for row in positional(part).to_dict("records"):
        k, head = row["offset"], row["head"]
        places = [i for i in range(4, 9) if 0 <= i + k < 9]
        assert row["weight"] == pytest.approx(sum(dense[head, i, i + k].item() for i in places) / len(places))
        hits = [dense[head, i].argmax().item() == i + k for i in places]
        assert row["positional"] == pytest.approx(sum(hits) / len(hits))


def test_one_token_has_no_offset():
    with pytest.raises(UsageError, match="offsets of up to 4 need at least 2 tokens, this text has 1"):
        positional(make_trace(["a"]))


def test_offsets_need_weights_between_the_same_tokens():
    trace = make_trace()
    assert has_offsets(trace)
    assert not has_offsets(make_trace(["a"]))
    cross = replace(trace, records=[replace(one, kind="cross") for one in trace.records])
    assert not has_offsets(cross)
    view = trace.record(0).view
    kept = replace(trace, records=[replace(one, view=Unkept(view.shape, view.visible())) for one in trace.records])
    assert not has_offsets(kept)
    assert "offset" not in str(roles(heads_table(kept))["role"].tolist())


def test_roles_name_score_threshold_and_offset():
    trace = trace_of([[BACK_TWO, PREVIOUS, OWN]])
    found = roles(heads_table(trace).merge(positional(trace), on=["layer", "head"]))
    assert found[found["role"] == "offset -2"][["head", "score", "threshold"]].values.tolist() == [[0, 1.0, "> 0.9"]]
    assert found[found["role"] == "collapsed"]["head"].tolist() == [2]
    # the most local head comes first where less is more
    local = found[found["role"] == "local"]
    assert local["head"].tolist()[0] == 2
    assert local["score"].is_monotonic_increasing
    assert set(found["role"]) == {"local", "collapsed", "sink", "previous token", "offset -2"}


def test_every_threshold_is_the_published_one():
    """A head just beyond and one just short of each; head 2 has nothing."""
    published = {
        "previous token": ("previous", 0.5, 1),
        "next token": ("next", 0.5, 1),
        "sink": ("first", 0.3, 1),
        "special tokens": ("special", 0.6, 1),
        "punctuation": ("punctuation", 0.6, 1),
        "broad": ("entropy_normalised", 0.9, 1),
        "collapsed": ("entropy_normalised", 0.1, -1),
        "local": ("distance", 5.0, -1),
        "offset -2": ("positional", 0.9, 1),
        "induction": ("prefix_matching", 0.5, 1),
        "duplicate token": ("duplicate", 0.5, 1),
    }
    for role, (column, threshold, side) in published.items():
        scores = [threshold + side * 0.01, threshold - side * 0.01]
        found = roles(pd.DataFrame({"layer": [3, 3], "head": [0, 1], "offset": [-2, -2], column: scores}))
        assert found[["layer", "head", "role", "score"]].values.tolist() == [[3, 0, role, scores[0]]]
        assert found["threshold"][0] == f"{'>' if side > 0 else '<'} {threshold:g}"
    assert len(published) == len(ROLES)


def test_examples_of_repeated_tokens_differ_and_are_averaged(monkeypatch):
    """Two examples of a tiny model, each with its own tokens, against the model's own weights."""
    model, seeds = llama(), []
    examples = {0: [0, *[5, 9, 7] * 2], 1: [0, *[8, 30, 2] * 2]}

    def drawn(tokenizer, length, repeats, seed):
        seeds.append(seed)
        return examples[seed]

    monkeypatch.setattr("attnviz.analysis.roles.repeated_tokens", drawn)
    seen = []
    options = {"length": 3, "repeats": 2, "examples": 2, "progress": lambda *step: seen.append(step)}
    found = prefix_matching(model, None, **options).set_index(["layer", "head"])
    assert (seeds, seen) == ([0, 1], [(1, 2), (2, 2)])
    model.set_attn_implementation("eager")
    maps = [model(input_ids=torch.tensor([ids]), output_attentions=True).attentions for ids in examples.values()]
    for layer, head in found.index:
        # rows 4, 5 and 6 repeat 1, 2 and 3
        weights = [one[layer][0, head] for one in maps]
        after = sum(map_[4, 2] + map_[5, 3] + map_[6, 4] for map_ in weights).item() / 6
        on = sum(map_[4, 1] + map_[5, 2] + map_[6, 3] for map_ in weights).item() / 6
        assert found.loc[(layer, head)].tolist() == pytest.approx([after, on], abs=1e-6)


def test_repeated_tokens_repeat(smollm2):
    _, tokenizer = smollm2
    ids = repeated_tokens(tokenizer, length=5, repeats=3)
    assert ids[0] == tokenizer.bos_token_id
    tenth = len(tokenizer) // 10
    drawn = repeated_tokens(tokenizer, length=2000, repeats=1)[1:]
    assert (min(drawn) >= tenth, max(drawn) < len(tokenizer) - tenth, len(set(drawn))) == (True, True, 2000)
    body = ids[len(ids) - 15 :]
    assert body[:5] == body[5:10] == body[10:]
    assert len(set(body)) == 5
    assert repeated_tokens(tokenizer, length=5, repeats=3, seed=1) != ids


def test_previous_token_and_sink_heads_of_smollm2(smollm2):
    trace = inspect(smollm2, TEXT)
    found = roles(trace.heads().merge(positional(trace), on=["layer", "head"]))
    counts = found["role"].value_counts()
    assert counts["previous token"] >= 1
    assert counts["sink"] > 100  # of 270: most heads rest on the first token
    assert set(found[found["role"] == "previous token"]["layer"]) < set(range(30))


def test_induction_heads_are_found_and_not_in_a_random_copy(smollm2):
    model, tokenizer = smollm2
    trained = prefix_matching(model, tokenizer, examples=1)["prefix_matching"]
    chance = prefix_matching(randomised(model), tokenizer, examples=1)["prefix_matching"]
    assert trained.max() > 0.8
    assert (trained > 0.5).sum() >= 3
    assert chance.max() < 0.1
    with pytest.raises(UsageError, match="repeats must be at least 2, got 1"):
        prefix_matching(model, tokenizer, repeats=1)
