"""One annotated text in detail: what each head answers where it is asked for an antecedent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from .antecedents import Query, candidates, queries
from .documents import Document
from .windows import Window, word_rows

if TYPE_CHECKING:
    import pandas as pd


def asked(window: Window) -> list[Query]:
    """Mentions with an antecedent in the window, in order."""
    return [query for query in queries(window.document) if query.word in window.owners]


def pointing(window: Window, query: Query, kind: str) -> pd.DataFrame:
    """One row per head: the word it answers with among the candidates, its weight there and on the antecedents.

    Heads whose answer is an antecedent come first, the largest weight on antecedents first.
    """
    import pandas as pd

    count = len(window.document.words)
    allowed = candidates(window.document, query, kind)
    rows = []
    for layer in window.trace.layers:
        weights = word_rows(window.trace.view(layer), window.owners, [query.word], count)[:, 0].numpy()
        for head, row in enumerate(weights):
            answer = int((row * allowed + (allowed - 1.0)).argmax())
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "answer": window.document.words[answer],
                    "word": answer,
                    "right": answer in query.gold,
                    "on antecedents": float(row[list(query.gold)].sum()),
                }
            )
    table = pd.DataFrame(rows)
    return table.sort_values(["right", "on antecedents"], ascending=False, kind="stable", ignore_index=True)


def answer_of(window: Window, query: Query, kind: str, layer: int, head: int) -> int:
    """The word one head answers with."""
    table = pointing(window, query, kind)
    here = table[(table["layer"] == layer) & (table["head"] == head)]
    return int(here["word"].iloc[0])


def sentences(documents: Sequence[Document]) -> list[Document]:
    """Every sentence of more than one word as a document of its own."""
    parts = [document.part(*span) for document in documents for span in document.sentences]
    return [part for part in parts if len(part.words) > 1]
