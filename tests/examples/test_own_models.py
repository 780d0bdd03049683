"""The examples that train run here with few steps; what they print at full length is asserted in them."""

import importlib.util
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_your_own_model(capsys):
    trace = example("your_own_model").main()
    assert [record.rung for record in trace.records] == ["torch function", "attention", "tap"]
    assert [token.text for token in trace.tokens] == ["the", "small", "boat", "came", "back", "before", "the", "storm"]
    assert "not recorded" not in capsys.readouterr().out


def test_train_small_gpt(capsys):
    gpt = example("train_small_gpt")
    report = gpt.main(steps=101)
    assert report.stopped_at is None
    assert report.loss < 2.2  # from 3.7
    assert len(report.entropies) == 3
    assert report.entropies[-1] < report.entropies[0] - 0.1
    assert "The lighthouse keeper" in capsys.readouterr().out


def test_train_small_gpt_stops_when_heads_collapse(capsys):
    report = example("train_small_gpt").main(steps=151, learning_rate=0.3)
    assert report.stopped_at in (50, 100, 150)
    assert "half of the heads look at one key only" in capsys.readouterr().out


def test_the_watched_entropy_is_that_of_the_weights():
    gpt = example("train_small_gpt")
    torch.manual_seed(0)
    model, ids = gpt.SmallGPT(layers=1), gpt.encode(gpt.TEXT)[None, :10]
    with torch.no_grad():
        block, x = model.blocks[0], model.characters(ids) + model.places.weight[:10]
        query, key, _ = (p.unflatten(-1, (4, 16)).transpose(1, 2) for p in block.qkv(block.norms[0](x)).chunk(3, -1))
        score = (query @ key.mT / 4).masked_fill(torch.ones(10, 10).triu(1).bool(), -torch.inf)
    weights = score.softmax(-1)[0, :, 1:]
    shares = -torch.xlogy(weights, weights).sum(-1) / torch.arange(2, 11).log()
    torch.testing.assert_close(gpt.entropies(model, ids)[0], shares.mean(-1))


def test_translation_alignment(capsys):
    translation = example("translation_alignment")
    right, aligned = translation.main(steps=250)
    assert right > 0.3
    assert aligned > 0.5  # by chance it would be about 0.2
    assert "forty" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("number", "words", "links"),
    [
        (7, "seven", [(0, 0)]),
        (17, "seventeen", [(0, 0), (1, 0)]),
        (40, "forty", [(0, 0)]),
        (4003, "four thousand three", [(0, 0), (3, 2)]),
        (512, "five hundred twelve", [(0, 0), (1, 2), (2, 2)]),
        (7342, "seven thousand three hundred forty two", [(0, 0), (1, 2), (2, 4), (3, 5)]),
    ],
)
def test_which_word_stands_for_which_digit(number, words, links):
    translation = example("translation_alignment")
    assert " ".join(word for word, _ in translation.spell(number)) == words
    assert translation.gold(number) == links
