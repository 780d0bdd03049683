"""Files appear whole or not at all, and what was there stays."""

import errno
import os
import stat
import threading
from pathlib import Path

import pytest

from attnviz.errors import AttnvizError, UsageError
from attnviz.files import check_place, write


def test_new_file_and_replaced_file(tmp_path):
    path = tmp_path / "a.svg"
    write(path, b"one")
    path.chmod(0o640)
    write(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert list(tmp_path.iterdir()) == [path]


def test_new_file_has_the_usual_permissions(tmp_path):
    mask = os.umask(0o027)
    try:
        write(tmp_path / "a.svg", b"one")
    finally:
        os.umask(mask)
    assert (tmp_path / "a.svg").stat().st_mode & 0o777 == 0o640


def test_full_disk_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    write(path, b"old")

    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(AttnvizError, match=r"a\.svg could not be written: No space left on device$"):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_interruption_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "a.svg"
    write(path, b"old")

    def interrupted(_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write(path, b"new")
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_be(tmp_path):
    with pytest.raises(UsageError, match=r" is a folder: name a file in it$"):
        check_place(tmp_path)
    with pytest.raises(UsageError, match=r"/no does not exist: create it first or choose another place$"):
        check_place(tmp_path / "no" / "a.svg")
    with pytest.raises(UsageError, match=r"^- is no file: name one with an ending such as figure\.svg or table\.csv$"):
        check_place(Path("-"))
    (tmp_path / "lost").symlink_to(tmp_path / "no" / "a.svg")
    with pytest.raises(UsageError, match=r"/no does not exist: create it first"):
        check_place(tmp_path / "lost")


def test_symbolic_links_are_followed(tmp_path):
    (tmp_path / "folder").mkdir()
    target, link = tmp_path / "folder" / "a.svg", tmp_path / "link.svg"
    link.symlink_to(target)
    for content in (b"new", b"replaced"):
        write(link, content)
        assert link.is_symlink()
        assert target.read_bytes() == content
    assert list((tmp_path / "folder").iterdir()) == [target]


def test_pipes_are_written_to_and_stay(tmp_path):
    pipe, read = tmp_path / "pipe", []
    os.mkfifo(pipe)
    for path in (pipe, tmp_path / "link"):
        if path != pipe:
            path.symlink_to(pipe)
        reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
        reader.start()
        write(path, b"content" * 40_000)
        reader.join(10)
    assert read == [b"content" * 40_000] * 2
    assert stat.S_ISFIFO(pipe.stat().st_mode)
    assert (tmp_path / "link").is_symlink()
