"""Hub ids: the hub's cache is used as it is, and each way in which the hub says no is one line."""

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import HfApi, constants
from huggingface_hub.errors import GatedRepoError, RepositoryNotFoundError
from tiny_models import save_bert

from attnviz.errors import ModelError
from attnviz.models import load_model


@pytest.fixture
def hub_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hub cache that holds org/tiny."""
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    commit = "0" * 40
    folder = tmp_path / "models--org--tiny"
    save_bert(folder / "snapshots" / commit)
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text(commit)
    return folder / "snapshots" / commit


RESPONSE: Any = SimpleNamespace(headers={}, request=None, status_code=404)
ABSENT = 'no model "org/x": not on this machine, and'


def answer(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """Let the hub be asked, and answer with this."""

    def model_info(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(HfApi, "model_info", model_info)


@pytest.mark.parametrize("allow_hub", [True, False])
def test_cached_model_loads_offline(hub_cache: Path, allow_hub: bool) -> None:
    model, tokenizer = load_model("org/tiny", allow_hub=allow_hub)
    assert (type(model).__name__, len(tokenizer)) == ("BertModel", 10)


def test_cached_model_loads_when_the_hub_cannot_be_reached(hub_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer(monkeypatch, ConnectionError("no route"))
    assert type(load_model("org/tiny")[0]).__name__ == "BertModel"


def test_cached_model_without_its_tokenizer(hub_cache: Path) -> None:
    (hub_cache / "vocab.txt").unlink()
    (hub_cache / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"org/tiny has no tokenizer files"):
        load_model("org/tiny")


def test_half_a_model_in_the_cache(hub_cache: Path) -> None:
    (hub_cache / "model.safetensors").unlink()
    with pytest.raises(ModelError, match='no model "org/tiny": not on this machine, and HF_HUB_OFFLINE is set'):
        load_model("org/tiny")


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (ConnectionError("no route"), rf"{ABSENT} the hub cannot be reached \(no route\); did you mean org/tiny"),
        (RepositoryNotFoundError("?", response=RESPONSE), f"{ABSENT} the hub has none, or only a private one, of that"),
        (GatedRepoError("?", response=RESPONSE), r'"org/x" is gated: ask for access on its hub page, then log in'),
    ],
)
def test_answers_of_the_hub(hub_cache: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, message: str) -> None:
    answer(monkeypatch, error)
    with pytest.raises(ModelError, match=message):
        load_model("org/x")


def test_hub_that_may_not_be_asked(hub_cache: Path) -> None:
    with pytest.raises(ModelError, match=f"{ABSENT} allow_hub=False keeps from asking the hub"):
        load_model("org/x", allow_hub=False)


def test_empty_snapshot(hub_cache: Path) -> None:
    shutil.rmtree(hub_cache)
    with pytest.raises(ModelError, match='no model "org/tiny": not on this machine'):
        load_model("org/tiny")
