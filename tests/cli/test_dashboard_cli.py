import os
import runpy
import socket

import pytest

from attnviz.cli.entry import run
from attnviz.dashboard.settings import from_environment


@pytest.fixture
def served(monkeypatch):
    """The settings of every dashboard that would be served."""
    found = []
    for name in [name for name in os.environ if name.startswith("ATTNVIZ_")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(runpy, "run_module", lambda *_, **__: found.append(from_environment(dict(os.environ))))
    return found


def test_options_reach_the_server(served, tmp_path):
    for name in ("one.attn", "two.attn"):
        (tmp_path / name).touch()
    words = [str(tmp_path / "one.attn"), str(tmp_path / "two.attn"), "--model-root", str(tmp_path)]
    assert run(["dashboard", *words, "--max-tokens", "99", "--memory", "0.5", "--name", "a.example"]) == 0
    [settings] = served
    assert [path.name for path in settings.traces] == ["one.attn", "two.attn"]
    assert (settings.model_root, settings.max_tokens, settings.budget) == (tmp_path.resolve(), 99, 2**29)
    assert "a.example" in settings.hosts
    assert not settings.allow_hub


def test_a_trace_that_is_not_there_is_a_line(served, capsys):
    assert run(["dashboard", "nothing.attn"]) != 0
    line = "error: nothing.attn is not there or no trace: give .attn files written by attnviz record"
    assert capsys.readouterr().err.strip() == line


def test_a_port_in_use_is_a_line(served, capsys):
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert run(["dashboard", "--port", str(port)]) == 2
    line = capsys.readouterr().err.strip()
    assert line.startswith(f"error: cannot serve at 127.0.0.1, port {port} (")
    assert line.endswith("): choose another --port, or leave it out")
    assert not served
    assert run(["dashboard", "--port", str(port)]) == 0
    assert len(served) == 1
