"""Annotated texts on a page: what a visitor typed or uploaded, scored by a job."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..analysis.coreference import Coreference, coreference
from ..analysis.dependencies import Dependencies, dependencies
from ..analysis.documents import Document
from ..analysis.readers import brackets, conllu, parse
from ..analysis.windows import Window, windows
from .causing import counted
from .jobs import Job, watched
from .runs import twin

WINDOW = 126
"""Tokens of whole sentences read together."""
UPLOAD = 2_000_000
"""Bytes of a file of annotated texts."""


def typed_brackets(text: str) -> tuple[Document, ...]:
    """One document in inline brackets."""
    return (brackets(text),)


def typed_conllu(text: str) -> tuple[Document, ...]:
    """Sentences in CoNLL-U, in which spaces may stand for tabs, since nobody can type those into a text box."""
    return tuple(conllu("\n".join(_tabbed(line) for line in text.splitlines()), "text"))


def _tabbed(line: str) -> str:
    return line if line.startswith("#") or "\t" in line else "\t".join(line.split())


def uploaded(name: str, content: bytes) -> tuple[Document, ...]:
    """The documents of a file."""
    return tuple(parse(content, name))


def uploaded_conllu(name: str, content: bytes) -> tuple[Document, ...]:
    """The sentences of a file in CoNLL-U, whatever its ending."""
    return tuple(parse(content, name, "conllu"))


def score(documents: Sequence[Document], model: Any, tokenizer: Any, job: Job) -> Coreference:
    """Every head and rule on every mention that has an antecedent."""
    progress = counted(job, "Reading texts")
    own = twin(model)
    with watched(own, job, "Reading texts"):
        return coreference(documents, own, tokenizer, window=WINDOW, progress=progress)


def score_arcs(documents: Sequence[Document], model: Any, tokenizer: Any, job: Job) -> Dependencies:
    """Every head on every arc."""
    progress = counted(job, "Reading sentences")
    own = twin(model)
    with watched(own, job, "Reading sentences"):
        return dependencies(documents, own, tokenizer, progress=progress)


def first_window(document: Document, model: Any, tokenizer: Any, job: Job) -> Window:
    """The first sentences of a document that fit, with their trace."""
    own = twin(model)
    with watched(own, job, "Reading the text"):
        return next(windows(document, own, tokenizer, WINDOW))
