"""Annotated texts on a page: what a visitor typed or uploaded, scored by a job, and one text of it in detail."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ..analysis.antecedents import Query, candidates, queries
from ..analysis.coreference import Coreference, coreference
from ..analysis.dependencies import Dependencies, dependencies
from ..analysis.documents import Document
from ..analysis.readers import brackets, conllu, parse
from ..analysis.windows import Window, windows, word_rows
from ..charts.arcs import Arc
from .causing import counted
from .jobs import Job, watched
from .runs import twin

if TYPE_CHECKING:
    import pandas as pd

WINDOW = 126
"""Tokens of whole sentences read together."""
IMPORTS = (
    "from attnviz.analysis.readers import read",
    "from attnviz.dashboard import annotated",
    "from attnviz.dashboard.jobs import Job",
)
"""What lines of Python need that draw a text."""
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


def answer_of(window: Window, query: Query, kind: str, layer: int, head: int) -> int:
    """The word one head answers with."""
    table = pointing(window, query, kind)
    here = table[(table["layer"] == layer) & (table["head"] == head)]
    return int(here["word"].iloc[0])


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
        above.append(Arc(word, parent, f"{words[word]} is {relation} of {words[parent]}"))
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


def sentences(documents: Sequence[Document]) -> list[Document]:
    """Every sentence of more than one word as a document of its own."""
    parts = [document.part(*span) for document in documents for span in document.sentences]
    return [part for part in parts if len(part.words) > 1]


def scores(found: Dependencies, relation: str, direction: str) -> pd.DataFrame:
    """One row per head, best first."""
    import pandas as pd

    accuracy = found.accuracy(relation, direction)
    rows = [(layer, head, value) for (layer, head), value in zip(found.heads, accuracy.tolist(), strict=True)]
    table = pd.DataFrame(rows, columns=["layer", "head", "accuracy"])
    return table.sort_values("accuracy", ascending=False, kind="stable", ignore_index=True)
