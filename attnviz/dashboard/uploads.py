"""Files that a visitor brings: a text, or a trace, which is kept in a folder of the visit and goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import streamlit as st

from ..errors import AttnvizError, UsageError
from ..estimate import readable
from .choices import TRACE
from .jobs import Job
from .runs import open_file
from .safe import plain
from .session import folder
from .settings import settings

KEPT = 3
"""Traces of one visit that are kept; a further one takes the place of the first."""
PASTED = "The pasted text"
CHARACTERS = 20
"""Characters a token may have on average in a text that is read at all."""


@dataclass(frozen=True)
class Upload:
    """A trace that was brought: where it lies, its content's fingerprint, and what its file was called."""

    path: Path
    fingerprint: str
    file: str


def brought() -> dict[str, Upload]:
    """The traces of this visit by the names they are offered under."""
    found: dict[str, Upload] = st.session_state.setdefault("brought", {})
    return found


def text_brought() -> tuple[str, str] | None:
    """(file name, text) of a text too long for the text box, or None."""
    found: tuple[str, str] | None = st.session_state.get("text_brought")
    return found


def drop_text() -> None:
    """Back to the text box."""
    st.session_state.pop("text_brought", None)
    forget_file()


def forget_file() -> None:
    """The address no longer names a file."""
    st.query_params.pop("file", None)


def say_gone(limit: int) -> None:
    """A line where the address names a file whose text went with the visit that brought it. Texts up to limit are
    those of the text box."""
    name = st.query_params.get("file")
    # a pasted text may still stand in the address
    if name and not (name == PASTED and len(st.query_params.get("text", "")) > limit):
        line = f"{name} was kept only as long as the visit that brought it: give it again. This is another text."
        st.warning(plain(line), icon=":material/info:")


def keep_pasted(text: str) -> None:
    """Keep a pasted text that is too long for the text box, as if it came in a file."""
    try:
        st.session_state["text_brought"] = (PASTED, checked(PASTED, text))
    except UsageError as error:
        st.session_state["upload_error"] = str(error)


def file_box(text_limit: int) -> None:
    """The button to open a file, and what was wrong with the last one. Texts up to text_limit go into the text box."""
    turn = st.session_state.setdefault("uploads", 0)
    with st.popover("File", icon=":material/upload_file:", width="stretch"):
        st.file_uploader(
            "A text (.txt) or a trace (.attn)",
            ["txt", "attn"],
            key=f"upload{turn}",
            on_change=_take,
            args=(turn, text_limit),
        )
    if wrong := st.session_state.pop("upload_error", None):
        st.error(plain(wrong), icon=":material/error:")


def _take(turn: int, text_limit: int) -> None:
    """Take the file, and put an empty box in place of the one that held it, so that its bytes are not kept twice."""
    file = st.session_state[f"upload{turn}"]
    st.session_state["uploads"] = turn + 1
    if file is None:
        return
    try:
        if file.name.endswith(TRACE):
            _take_trace(file.name, file.getvalue())
        else:
            _take_text(file.name, file.getvalue(), text_limit)
    except AttnvizError as error:
        st.session_state["upload_error"] = str(error)


def _take_text(name: str, content: bytes, limit: int) -> None:
    text = decoded(name, content)
    if len(text) <= limit:
        drop_text()
        st.session_state["text"] = text
    else:
        st.session_state["text_brought"] = (name, text)


def decoded(name: str, content: bytes) -> str:
    """The text of a file. Raises UsageError for one that is no text, empty, or longer than any the server records."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text: save it as UTF-8") from None
    return checked(name, text)


def checked(name: str, text: str) -> str:
    """The text. Raises UsageError for one that is empty, or longer than any the server records."""
    if not text.strip():
        raise UsageError(f"{name} is empty: choose a text")
    if len(text) > CHARACTERS * settings().max_tokens:
        raise UsageError(
            f"{name} has {len(text):,} characters, this server takes {settings().max_tokens:,} tokens: shorten it"
        )
    return text


def _take_trace(name: str, content: bytes) -> None:
    if len(content) > settings().budget:
        raise UsageError(f"{name} has {readable(len(content))}, this server keeps {readable(settings().budget)} in all")
    fingerprint = sha256(content).hexdigest()
    path = folder() / f"{fingerprint}{TRACE}"
    path.write_bytes(content)
    try:
        open_file(path, name, Job(name))
    except AttnvizError:
        path.unlink()
        raise
    kept = brought()
    kept[f"{name.removesuffix(TRACE)} (uploaded){TRACE}"] = Upload(path, fingerprint, name)
    while len(kept) > KEPT:
        kept.pop(next(iter(kept))).path.unlink(missing_ok=True)
    st.session_state["model"] = f"{name.removesuffix(TRACE)} (uploaded){TRACE}"
