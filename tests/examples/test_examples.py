"""Every example runs, and shows what it says it shows."""

import importlib.util
from pathlib import Path

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
ELSEWHERE = {"export_figure", "train_small_gpt", "translation_alignment", "your_own_model"}
"""Examples that have a test file of their own."""


def example(name):
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_inspect_bert(minilm, capsys):
    trace = example("inspect_bert").main()
    assert len(trace.heads()) == 72
    assert "   0     2" in capsys.readouterr().out  # the previous-token head


def test_long_text(smollm2, capsys):
    trace = example("long_text").main(512)
    assert len(trace.tokens) == 512
    assert trace[29, 8].weights().sum(1).sub(1).abs().max() < 1e-4
    assert "512 tokens" in capsys.readouterr().out


def test_coreference_heads(minilm):
    found = example("coreference_heads").main()
    assert found.table()["accuracy"][0] > found.baselines().set_index("rule").loc["chance", "accuracy"]


def test_induction_heads(smollm2):
    effects = example("induction_heads").main(2)
    assert effects["five strongest"] > 3 * max(0.1, abs(effects["five others"]))


def test_compare_weights(minilm):
    torch.manual_seed(0)
    table = example("compare_weights").main(4)
    assert table["distance"][0] > table["distance"].iloc[-1] > 0


def test_ablate_head(smollm2, capsys):
    table = example("ablate_head").main()
    assert table["change"].abs().max() > 0.1
    assert "the last token may not see ' France'" in capsys.readouterr().out


def test_serve_class(capsys):
    command = example("serve_class").main("models")
    assert command[1:4] == ["-m", "attnviz", "dashboard"]
    assert "--model-root" in command
    assert capsys.readouterr().out.startswith("open http://")


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_tested_and_says_how_to_run_it(path):
    assert f"test_{path.stem}" in globals() or path.stem in ELSEWHERE
    assert f"python examples/{path.name}" in path.read_text(encoding="utf-8")
