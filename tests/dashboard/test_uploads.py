"""Files that visitors bring, without a browser: what is taken, what is refused in a line, what goes with the visit."""

import re
from types import SimpleNamespace

import pytest
import streamlit as st
from traces import make_trace

from attnviz.dashboard import boxes, session, uploads
from attnviz.dashboard.settings import settings
from attnviz.errors import UsageError


@pytest.fixture
def state(monkeypatch, tmp_path):
    """The session's state as a dictionary, and its folder."""
    held = {}
    monkeypatch.setattr(st, "session_state", held)
    monkeypatch.setattr(uploads, "folder", lambda: tmp_path)
    return held


def bring(state, name, content):
    turn = state.setdefault("uploads", 0)
    state[f"upload{turn}"] = SimpleNamespace(name=name, getvalue=lambda: content)
    uploads._take(turn)


@pytest.fixture
def trace_file(tmp_path):
    make_trace().save(tmp_path / "made.attn")
    return (tmp_path / "made.attn").read_bytes()


def test_short_texts_go_into_the_text_box(state):
    bring(state, "note.txt", "\ufeffTwo words".encode())
    assert state["text"] == "Two words"
    assert boxes.kept("text") is None


def test_long_texts_are_kept_beside_it_until_dropped(state):
    bring(state, "book.txt", b"word " * 1001)
    assert boxes.kept("text") == ("book.txt", "word " * 1001)
    boxes.drop("text")
    assert boxes.kept("text") is None


def test_a_trace_is_offered_and_shown(state, trace_file, tmp_path):
    bring(state, "run.attn", trace_file)
    assert state["model"] == "run (uploaded).attn"
    found = uploads.brought()["run (uploaded).attn"]
    assert (found.file, found.path.read_bytes()) == ("run.attn", trace_file)
    assert state["uploads"] == 1
    assert "upload_error" not in state


def test_of_many_traces_the_latest_are_kept(state, tmp_path):
    for number in range(uploads.KEPT + 1):
        make_trace(seed=number).save(tmp_path / "made.attn")
        bring(state, f"run{number}.attn", (tmp_path / "made.attn").read_bytes())
    assert list(uploads.brought()) == [f"run{number} (uploaded).attn" for number in (1, 2, 3)]
    assert len(list(tmp_path.iterdir())) == uploads.KEPT + 1


@pytest.mark.parametrize(
    ("name", "content", "line"),
    [
        ("a.txt", b"\xff\xfe\x00", "a.txt is not UTF-8 text: save it as UTF-8"),
        ("a.txt", b" \n", "a.txt is empty: choose a text"),
        ("a.txt", b"x" * 101, "a.txt has 101 characters, this server takes 5 tokens: shorten it"),
        ("a.attn", b"x" * 20_001, "a.attn has 19.5 KiB, this server keeps 19.5 KiB in all"),
        ("a.attn", b"no trace", "a.attn is damaged or no trace file"),
    ],
)
def test_what_is_refused_is_a_line_without_the_servers_paths(state, tmp_path, monkeypatch, name, content, line):
    monkeypatch.setenv("ATTNVIZ_MAX_TOKENS", "5")
    monkeypatch.setenv("ATTNVIZ_TRACE_BUDGET", "20000")
    settings.cache_clear()
    bring(state, name, content)
    assert state["upload_error"].startswith(line)
    assert str(tmp_path) not in state["upload_error"]
    assert list(tmp_path.iterdir()) == []
    assert "model" not in state


def test_taking_a_file_out_of_the_box_changes_nothing(state):
    state["upload0"] = None
    uploads._take(0)
    assert set(state) == {"upload0", "uploads"}


def test_a_text_has_its_limit():
    with pytest.raises(UsageError, match=re.escape("x.txt has")):
        uploads.decoded("x.txt", b"x" * (boxes.CHARACTERS * settings().max_tokens + 1))


def test_the_end_of_a_visit_takes_its_files_and_its_secret(tmp_path):
    from attnviz.dashboard.grants import grants

    secret = grants().open()
    (tmp_path / "kept").mkdir()
    session._leave(session.Visit("somebody", secret, [tmp_path / "kept"]))
    assert not (tmp_path / "kept").exists()
    assert secret not in grants()._maps


def test_a_visit_has_one_folder(monkeypatch):
    visit = session.Visit("somebody", "secret")
    monkeypatch.setattr(session, "_visit", lambda: visit)
    made = session.folder()
    assert made.is_dir()
    assert session.folder() == made
    session._leave(visit)
    assert not made.exists()
