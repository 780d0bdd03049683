"""`attnviz doctor`: says what is there and why the rest is not."""

from importlib import metadata
from pathlib import Path

import pytest
import torch

import attnviz
from attnviz.cli import doctor
from attnviz.cli.entry import run
from attnviz_kernels import BACKENDS, unavailable


def report(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    assert run(["doctor"]) == 0
    rows = capsys.readouterr().out.splitlines()[1:]
    width = max(len(f"backend {name}") for name in BACKENDS) + 1
    return {row[:width].strip(): row[width:].strip() for row in rows}


def test_versions_and_backends(capsys: pytest.CaptureFixture[str]) -> None:
    rows = report(capsys)
    assert rows["attnviz"] == attnviz.__version__
    assert rows["torch"] == torch.__version__
    for name in BACKENDS:
        assert rows[f"backend {name}"] == (unavailable(name) or "ready")
    assert torch.backends.cpu.get_cpu_capability() in rows["processor"]


def test_what_is_missing_comes_with_its_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def version(name: str) -> str:
        if name == "captum":
            raise metadata.PackageNotFoundError(name)
        return "1"

    monkeypatch.setattr(doctor.metadata, "version", version)
    monkeypatch.setenv("ATTNVIZ_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", "")
    rows = report(capsys)
    assert rows["captum"] == 'not installed: pip install "attnviz[attribution]"'
    assert rows["model minilm"] == "not fetched: attnviz models fetch minilm"
    assert rows["browser for tests"] == "none: apt-get install chromium chromium-driver"
    assert rows["cache"].startswith(f"{tmp_path}, ")
