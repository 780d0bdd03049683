"""The arcs of an annotated text: above what the annotation says, below what one head answers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..analysis.antecedents import Query
from ..analysis.documents import Document
from ..analysis.windows import Window, word_rows
from .arcs import Arc

if TYPE_CHECKING:
    import pandas as pd


def mention_marks(document: Document) -> dict[int, str]:
    """The entity of every word that lies in a mention; of nested mentions the innermost."""
    marks: dict[int, str] = {}
    for mention in sorted(document.mentions, key=lambda mention: mention.start - mention.stop):
        marks |= dict.fromkeys(range(mention.start, mention.stop), mention.cluster)
    return marks


def coreference_arcs(window: Window, found: Sequence[Query], answers: Sequence[int]) -> list[Arc]:
    """Above: each mention and its nearest antecedent. Below: the word that a head answers with."""
    words = window.document.words
    above = [Arc(query.word, max(query.gold), f"{words[query.word]} is {words[max(query.gold)]}") for query in found]
    below = [
        Arc(query.word, answer, f"{words[query.word]}: the head answers {words[answer]}", False, answer in query.gold)
        for query, answer in zip(found, answers, strict=True)
    ]
    return [*above, *below]


def dependency_arcs(window: Window, layer: int, head: int, direction: str) -> list[Arc]:
    """Above: each word's syntactic head. Below: the word with the head's largest weight, in the direction asked."""
    document = window.document
    assert document.heads is not None
    assert document.relations is not None
    count, words = len(document.words), document.words
    maps = word_rows(window.trace.view(layer), window.owners, range(count), count)[head]
    maps.fill_diagonal_(-1.0)
    answers = maps.argmax(1).tolist()
    above, below = [], []
    for word, (parent, relation) in enumerate(zip(document.heads, document.relations, strict=True)):
        if parent == word or not {word, parent} <= set(window.owners):
            continue
        said = f"{words[word]} is {relation} of {words[parent]}"
        above.append(Arc(word, parent, said, relation=relation, back=True))
        asked, gold = (word, parent) if direction == "to head" else (parent, word)
        answer = answers[asked]
        said = f"{words[asked]}: the head answers {words[answer]} ({relation})"
        below.append(Arc(asked, answer, said, False, answer == gold))
    return above + below


def arc_table(drawn: Sequence[Arc]) -> pd.DataFrame:
    """One row an arc: the words it joins, whether a head answers so, whether that is right, and what it says."""
    import pandas as pd

    rows = [(arc.start, arc.stop, not arc.above, arc.right, arc.about) for arc in drawn]
    return pd.DataFrame(rows, columns=["from", "to", "answer", "right", "about"])
