"""Every command shows tokens as the text has them, case and accents that the model's tokenizer drops included."""

import pytest
from cli.commands import records

TEXT = "Alice met Bob in a Café."
LABELS = ["[CLS]", "Alice", "met", "Bob", "in", "a", "Café", ".", "[SEP]"]
SIMILARITY = ("attribute", "minilm", TEXT, "--with", "Bob saw Alice.")
COMMANDS = {
    "rollout": ("rollout", "minilm", TEXT),
    "relevance": SIMILARITY,
    "integrated gradients": (*SIMILARITY, "--method", "integrated gradients", "--steps", 2),
    "ablation": (*SIMILARITY, "--method", "ablation"),
    "layer conductance": (*SIMILARITY, "--method", "layer conductance", "--layer", 1, "--steps", 2),
}

pytestmark = pytest.mark.usefixtures("minilm")


@pytest.mark.parametrize("name", COMMANDS)
def test_tokens_of_a_table_are_those_of_the_text(attnviz, name):
    found = records(attnviz(*COMMANDS[name], "--json"))
    assert [row["token"] for row in sorted(found, key=lambda row: row["position"])] == LABELS


@pytest.mark.parametrize("name", ["rollout", "relevance"])
def test_tokens_of_a_figure_are_those_of_the_text(attnviz, tmp_path, name):
    attnviz(*COMMANDS[name], "-o", tmp_path / "found.svg")
    drawn = (tmp_path / "found.svg").read_text(encoding="utf-8")
    assert "Alice</text>" in drawn
    assert "alice</text>" not in drawn


def test_tokens_of_a_shuffled_text_are_those_of_the_text(attnviz, tmp_path):
    attnviz("export", "minilm", TEXT, "--view", "order", "-o", tmp_path / "order.svg")
    drawn = (tmp_path / "order.svg").read_text(encoding="utf-8")
    assert "Alice</text>" in drawn
    assert "alice</text>" not in drawn
