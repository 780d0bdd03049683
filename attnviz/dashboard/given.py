"""The box in which annotated text is typed, or the file that brings it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import streamlit as st

from ..analysis.documents import Document
from .annotated import UPLOAD, uploaded
from .boxes import text_box
from .controls import choose, switch

TYPE, FILE = "Type", "File"


def given(
    key: str,
    example: str,
    read: Callable[[str], tuple[Document, ...]],
    endings: tuple[str, ...],
    opened: Callable[[str, bytes], tuple[Document, ...]] = uploaded,
    **box: Any,
) -> tuple[Document, ...]:
    """The documents; the page stops here while there are none. What is typed lives in the URL under `key`; `opened`
    reads a file."""
    if switch("Text from", [TYPE, FILE], "from", label_visibility="collapsed") == TYPE:
        return read(text_box("Annotated text", example, key, **box)[0])
    file = st.file_uploader(
        f"A file of annotated texts ({', '.join(endings)})", key=f"{key}_file", max_upload_size=UPLOAD // 1_000_000
    )
    if file is None:
        st.info("Choose a file above; it stays on this machine.", icon=":material/upload_file:")
        st.stop()
    return opened(file.name, file.getvalue())


def one_of(documents: tuple[Document, ...]) -> Document:
    """The document to look at in detail."""
    if len(documents) == 1:
        return documents[0]
    names = [f"{place} {found.name}" for place, found in enumerate(documents, 1)]
    return documents[names.index(choose("Text to look at", names, "which"))]
