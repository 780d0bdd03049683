"""`attnviz models`: list, fetch, remove."""

from pathlib import Path

import pytest
from tiny_models import llama, save_gguf

from attnviz.cli.entry import run
from attnviz.models import load_model


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNVIZ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def test_list_of_an_empty_cache(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert lines[1][:6] == ["minilm", "not", "fetched", "6", "x", "12"]
    assert lines[2][:6] == ["smollm2", "not", "fetched", "30", "x", "9"]
    assert not home.exists()


def test_list_shows_what_is_there(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = home / "models" / "minilm-0.1.0"
    folder.mkdir(parents=True)
    (folder / "model.safetensors").write_bytes(bytes(2048))
    assert run(["models"]) == 0
    assert "minilm   2.0 KiB" in capsys.readouterr().out


def test_converted_file_is_listed_and_removed(home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_model(save_gguf(tmp_path / "tiny.gguf", llama()))
    run(["models"])
    line = capsys.readouterr().out.splitlines()[3].split()
    assert line[0].startswith("tiny-")
    assert line[3:6] == ["2", "x", "4"]
    assert run(["models", "remove", line[0]]) == 0
    assert [path.name for path in (home / "models").glob("[!.]*")] == []


def test_bundled_model_is_removed_by_its_name(home: Path) -> None:
    folder = home / "models" / "minilm-0.1.0"
    folder.mkdir(parents=True)
    assert run(["models", "remove", "minilm"]) == 0
    assert not folder.exists()


def test_fetched_model_prints_where_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("minilm-0.1.0", "smollm2-0.1.2"):
        (home / "models" / name).mkdir(parents=True)
    assert run(["models", "fetch", "--all"]) == 0
    models = home / "models"
    assert capsys.readouterr().out == f"minilm: {models / 'minilm-0.1.0'}\nsmollm2: {models / 'smollm2-0.1.2'}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fetch", "minlm"], 'error: no bundled model "minlm": there are minilm, smollm2'),
        (["remove", "minlm"], 'error: no model called "minlm" is in the cache'),
    ],
)
def test_unknown_names(home: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["models", *arguments]) == 1
    assert capsys.readouterr().err.startswith(message)
