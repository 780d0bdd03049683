"""Files that a visitor brings: a text, or a trace, which is kept in a folder of the visit and goes with it."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import streamlit as st

from ..errors import AttnvizError, UsageError
from ..estimate import readable
from .boxes import LIMIT, checked, drop, keep
from .choices import TRACE
from .jobs import Job
from .runs import open_file
from .safe import plain
from .session import folder
from .settings import settings

KEPT = 3
"""Traces of one visit that are kept; a further one takes the place of the first."""


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


def file_box() -> None:
    """The button to open a file, and what was wrong with the last one. Short texts go into the text box."""
    turn = st.session_state.setdefault("uploads", 0)
    with st.popover("File", icon=":material/upload_file:", width="stretch"):
        st.file_uploader(
            "A text (.txt) or a trace (.attn)",
            ["txt", "attn"],
            key=f"upload{turn}",
            on_change=_take,
            args=(turn,),
        )
    if wrong := st.session_state.pop("upload_error", None):
        st.error(plain(wrong), icon=":material/error:")


def _take(turn: int) -> None:
    """Take the file, and put an empty box in place of the one that held it, so that its bytes are not kept twice."""
    file = st.session_state[f"upload{turn}"]
    st.session_state["uploads"] = turn + 1
    if file is None:
        return
    try:
        if file.name.endswith(TRACE):
            _take_trace(file.name, file.getvalue())
        else:
            _take_text(file.name, file.getvalue())
    except AttnvizError as error:
        st.session_state["upload_error"] = str(error)


def _take_text(name: str, content: bytes) -> None:
    text = decoded(name, content)
    if len(text) <= LIMIT:
        drop("text")
        st.session_state["text"] = text
    else:
        keep("text", name, text)


def decoded(name: str, content: bytes) -> str:
    """The text of a file. Raises UsageError for one that is no text, empty, or longer than any the server records."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UsageError(f"{name} is not UTF-8 text: save it as UTF-8") from None
    return checked(name, text)


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
