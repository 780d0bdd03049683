"""GGUF files: converted once, weights and tokenizer exactly those of the file."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny_models import llama, save_gguf

from attnviz.errors import BudgetError, ModelError
from attnviz.models import cached, gguf, load_model


@pytest.fixture(autouse=True)
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNVIZ_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def model() -> Any:
    return llama()


def test_model_of_a_file_computes_what_the_model_in_it_computes(tmp_path: Path, model: Any) -> None:
    loaded, tokenizer = load_model(save_gguf(tmp_path / "tiny.gguf", model))
    ids = torch.arange(12)[None]
    assert torch.equal(loaded(ids).logits, model(ids).logits)
    assert type(loaded).__name__ == "LlamaForCausalLM"
    assert tokenizer.model_max_length == 64


def test_second_load_reads_the_converted_folder(tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save_gguf(tmp_path / "tiny.gguf", model)
    load_model(file)
    monkeypatch.setattr(gguf, "convert", lambda *_: pytest.fail("converted again"))
    load_model(file)
    (entry,) = cached()
    assert entry.name.startswith("tiny-")


def test_another_content_under_the_same_name_is_another_model(tmp_path: Path, model: Any) -> None:
    file = save_gguf(tmp_path / "tiny.gguf", model)
    first, _ = load_model(file)
    other = llama()
    other.model.norm.weight.data.fill_(2.0)
    save_gguf(file, other)
    second, _ = load_model(file)
    assert len(cached()) == 2
    assert not torch.equal(first.model.norm.weight, second.model.norm.weight)


def test_numbers_are_cut_into_digits_before_spaces_are_joined(tmp_path: Path, model: Any) -> None:
    _, tokenizer = load_model(save_gguf(tmp_path / "tiny.gguf", model))
    assert tokenizer.tokenize("the  7") == ["the", "ĠĠ", "7"]
    _, plain = load_model(save_gguf(tmp_path / "plain.gguf", model, pre="gpt-2"))
    assert plain.tokenize("the  7") == ["the", "Ġ", "Ġ", "7"]


def test_too_large_is_said_before_anything_is_converted(tmp_path: Path, model: Any) -> None:
    with pytest.raises(BudgetError, match=r"tiny\.gguf takes .* in float32, 10 bytes may be used"):
        load_model(save_gguf(tmp_path / "tiny.gguf", model), max_bytes=10)
    assert cached() == []


@pytest.mark.parametrize("keep", [0, 10, 3000, -200])
def test_truncated_file(tmp_path: Path, model: Any, keep: int) -> None:
    file = save_gguf(tmp_path / "tiny.gguf", model)
    file.write_bytes(file.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"tiny\.gguf is not a complete GGUF file \(.*\); download it again"):
        load_model(file)
    assert cached() == []


def test_file_of_another_kind(tmp_path: Path) -> None:
    file = tmp_path / "text.gguf"
    file.write_text("not a model " * 100)
    with pytest.raises(ModelError, match="is not a complete GGUF file"):
        load_model(file)


def test_without_the_packages_that_read_it(tmp_path: Path, model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    file = save_gguf(tmp_path / "tiny.gguf", model)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match=r'two more packages: pip install "attnviz\[gguf\]"'):
        load_model(file)
