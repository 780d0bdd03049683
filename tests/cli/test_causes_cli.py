"""`attnviz attribute` and `ablate`: what they print is what the library computes."""

import pytest
import torch
from cli.commands import TEXT, records

from attnviz.analysis.attribution import attribute_tokens
from attnviz.analysis.measures import cosine

pytestmark = pytest.mark.usefixtures("minilm")


def test_relevance_of_a_similarity_is_a_mean_over_all_positions(attnviz):
    told = attnviz("attribute", "minilm", "The bank.", "--with", "A mill.").out
    assert "mean over the 5 positions that it is read from" in told


def test_small_scores_are_printed_with_three_digits_of_the_largest(attnviz):
    asked = ("attribute", "minilm", "The bank.", "--with", "A mill.")
    wanted = max(row["score"] for row in records(attnviz(*asked, "--json")))
    assert 0.001 < wanted < 0.01
    assert f" {wanted:.5f}\n" in attnviz(*asked).out


def test_attribution_of_similarity_agrees_with_the_library(attnviz, minilm):
    model, tokenizer = minilm
    inputs = tokenizer([TEXT, "A river side."], return_tensors="pt", padding=True)
    measure = cosine(inputs["attention_mask"])
    wanted = attribute_tokens(model, tokenizer, inputs, measure, method="ablation").scores.tolist()
    found = records(attnviz("attribute", "minilm", TEXT, "--with", "A river side.", "--method", "ablation", "--json"))
    assert {row["position"]: row["score"] for row in found} == pytest.approx(dict(enumerate(wanted)), abs=1e-6)


@pytest.mark.parametrize("method", ["relevance", "importance", "integrated attention", "attention conductance"])
def test_every_method_of_attribution_takes_two_texts(attnviz, tmp_path, method):
    asked = ("attribute", "minilm", "A bank.", "--with", "A river.", "--method", method)
    if "attention" in method:
        asked += ("--layer", 2, "--steps", 8)
    found = records(attnviz(*asked, "--json", "-o", tmp_path / "found.svg"))
    assert len(found) == {"relevance": 5, "importance": 72}.get(method, 12)
    assert "<svg" in (tmp_path / "found.svg").read_text()


def test_conductance_of_a_layer_says_how_far_to_trust_it(attnviz):
    asked = ("attribute", "minilm", "A bank.", "--with", "A river.", "--method", "layer conductance")
    told = attnviz(*asked, "--layer", 1, "--steps", 2).out
    assert "similarity of the two texts, layer 1" in told
    assert "error of the sum" in told
    assert attnviz(*asked, code=2).err == "error: layer conductance needs the layer: give --layer\n"


def test_continuation_names_the_next_tokens(attnviz):
    asked = ("attribute", "smollm2", "One two", "--method", "continuation", "--target", " three four", "--json")
    found = records(attnviz(*asked))
    named = {(row["position"], row["next"]) for row in found}
    assert named == {(place, word) for place in (0, 1) for word in ("three", "four")}


def test_links_between_tokens_are_cut(attnviz, minilm):
    """Hiding the last token from all six is what a shorter attention mask does; of two texts only the first changes."""
    model, tokenizer = minilm
    other = tokenizer("A river.", return_tensors="pt")
    inputs = tokenizer("A bank !", return_tensors="pt")
    asked = ("ablate", "minilm", "A bank !", "--with", "A river.", "--queries", "0-4", "--keys", "3")
    (row,) = records(attnviz(*asked, "--json"))
    assert row["heads"] == "all"
    mask = inputs["attention_mask"].clone()
    mask[0, 3] = 0
    with torch.inference_mode():
        fixed = model(**other).last_hidden_state[0].mean(0)
        numbers = [
            torch.cosine_similarity(model(**changed).last_hidden_state[0].mean(0), fixed, dim=0).item()
            for changed in (inputs, {**inputs, "attention_mask": mask})
        ]
    assert [row["before"], row["after"]] == pytest.approx(numbers, abs=1e-5)
    (one,) = records(attnviz(*asked, "--heads", "5.3", "--json"))
    assert 0 < abs(one["change"]) < abs(row["change"])


def test_ablate_named_heads(attnviz):
    (row,) = records(attnviz("ablate", "minilm", TEXT, "--with", "A river side.", "--heads", "0.2, 5.7", "--json"))
    assert row["change"] == pytest.approx(row["after"] - row["before"])
    assert row["change"] != 0
