"""Dependencies: does a head's largest weight from a word fall on its syntactic head, or the other way round?

After Clark et al. 2019 (arXiv 1906.04341, 4.2), on Universal Dependencies: the answer is the other word of the sentence
with the largest word-level weight, the lowest index on ties; root and punct are not scored. "to head" asks the
dependent's row for its head, "to dependent" asks the head's row for that dependent; a model that only looks back can
answer only one of the two for each pair.

A high score means the positions agree; the best fixed offset beside it shows how much of that is word order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DataError, UsageError
from .coreference import Hits
from .documents import Document
from .tables import Tabular
from .windows import Window, windows, word_rows

if TYPE_CHECKING:
    import pandas as pd

DIRECTIONS = ("to head", "to dependent")
OFFSETS = (*range(-5, 0), *range(1, 6))
_UNSCORED = ("root", "punct")


@dataclass(frozen=True)
class Dependencies(Tabular):
    """hits[direction] is [arcs, heads] of 0 and 1; arcs holds sentence, relation and offset (head minus dependent)."""

    heads: tuple[tuple[int, int], ...]
    arcs: pd.DataFrame
    hits: dict[str, Hits]
    model: str = "model"

    def table(self, minimum: int = 50) -> pd.DataFrame:
        """One row per relation with at least `minimum` arcs: the head and direction chosen on one half of the
        sentences, its accuracy on the other half (mean of both ways), and the best fixed offset, chosen the same way.
        Raises DataError where all arcs stand in one half.
        """
        import pandas as pd

        rows = [row for relation in self.relations(minimum) if (row := self._relation(relation)) is not None]
        if not rows:
            raise DataError("a head is chosen on every second sentence and scored on the others: give more sentences")
        return pd.DataFrame(rows).sort_values("n", ascending=False, kind="stable", ignore_index=True)

    def relations(self, minimum: int = 50) -> list[str]:
        """ "all", then the relations with at least `minimum` arcs, most frequent first."""
        counts = self.arcs["relation"].value_counts()
        return ["all", *counts[counts >= minimum].index]

    def accuracy(self, relation: str, direction: str) -> Hits:
        """[heads]: every head's accuracy on one relation in one direction, over all sentences."""
        found: Hits = self.hits[direction][self._which(relation)].mean(0)
        return found

    def heads_on(self, relation: str, direction: str | None = None) -> pd.DataFrame:
        """One row per head and direction (both if None), best first: its accuracy on one relation over all sentences,
        and n."""
        import pandas as pd

        check_direction(direction)

        count = int(self._which(relation).sum())
        if not count:
            raise UsageError(f"no arc has the relation {relation!r}: there are {', '.join(self.relations(1))}")
        rows = [
            {"layer": layer, "head": head, "direction": direction, "accuracy": accuracy, "n": count}
            for direction in (DIRECTIONS if direction is None else (direction,))
            for (layer, head), accuracy in zip(self.heads, self.accuracy(relation, direction).tolist(), strict=True)
        ]
        return pd.DataFrame(rows).sort_values("accuracy", ascending=False, kind="stable", ignore_index=True)

    def _which(self, relation: str) -> np.ndarray[Any, np.dtype[np.bool_]]:
        if relation == "all":
            return np.ones(len(self.arcs), dtype=bool)
        return (self.arcs["relation"] == relation).to_numpy()

    def _relation(self, relation: str) -> dict[str, Any] | None:
        which = self._which(relation)
        even = (self.arcs["sentence"].to_numpy() % 2 == 0)[which]
        if even.all() or not even.any():
            return None
        stacked = np.concatenate([self.hits[direction][which] for direction in DIRECTIONS], axis=1)
        offsets = self.arcs["offset"].to_numpy()[which, None] == np.array(OFFSETS)
        index = int(stacked.mean(0).argmax())
        layer, head = self.heads[index % len(self.heads)]
        return {
            "relation": relation,
            "layer": layer,
            "head": head,
            "direction": DIRECTIONS[index // len(self.heads)],
            "accuracy": _other_half(stacked, even),
            "best fixed offset": OFFSETS[int(offsets.mean(0).argmax())],
            "offset accuracy": _other_half(offsets, even),
            "n": int(which.sum()),
        }


def check_direction(direction: str | None) -> None:
    """UsageError for a direction that there is not."""
    if direction not in (None, *DIRECTIONS):
        raise UsageError(f"direction must be one of {', '.join(DIRECTIONS)}, got {direction!r}")


def dependencies(
    documents: Sequence[Document],
    model: Any,
    tokenizer: Any,
    *,
    window: int = 510,
    start: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Dependencies:
    """Score every head of a model on sentences with syntactic heads, one sentence at a time.

    Sentences longer than `window` tokens are cut; start puts the tokenizer's start token before each.
    progress(done, total) is called after each sentence. Raises DataError for documents without heads and relations.
    """
    import pandas as pd

    sentences = [document.part(*span) for document in documents for span in document.sentences]
    arcs: list[dict[str, Any]] = []
    hits: dict[str, list[Hits]] = {direction: [] for direction in DIRECTIONS}
    heads: tuple[tuple[int, int], ...] = ()
    for done, sentence in enumerate(sentences, 1):
        if sentence.heads is None or sentence.relations is None:
            raise DataError(f"{sentence.name} has no syntactic heads and relations: give CoNLL-U with HEAD and DEPREL")
        whole = replace(sentence, sentences=((0, len(sentence.words)),))
        for part in list(windows(whole, model, tokenizer, window, start=start))[:1] if len(whole.words) > 1 else []:
            heads = tuple((head.layer, head.head) for head in part.trace.every_head())
            for arc, right in score_sentence(part):
                arcs.append({"sentence": done, **arc})
                for direction in DIRECTIONS:
                    hits[direction].append(right[direction])
        if progress is not None:
            progress(done, len(sentences))
    if not arcs:
        raise DataError("no sentence has two words joined by a relation")
    return Dependencies(
        heads,
        pd.DataFrame(arcs),
        {direction: np.stack(rows) for direction, rows in hits.items()},
        getattr(model, "name_or_path", "") or "model",
    )


def score_sentence(window: Window) -> list[tuple[dict[str, Any], dict[str, Hits]]]:
    """Every arc of one sentence: its relation and offset, and which heads were right ([heads]) in each direction."""
    document, trace = window.document, window.trace
    assert document.heads is not None
    assert document.relations is not None
    count = len(document.words)
    views = [trace.view(layer) for layer in trace.layers]
    maps = np.concatenate([word_rows(view, window.owners, range(count), count).cpu().numpy() for view in views])
    maps[:, np.arange(count), np.arange(count)] = -1.0
    answers = maps.argmax(2)
    known = set(window.owners)
    scored = []
    for word, (head, relation) in enumerate(zip(document.heads, document.relations, strict=True)):
        if head == word or relation.partition(":")[0] in _UNSCORED or not {word, head} <= known:
            continue
        right = {
            "to head": (answers[:, word] == head).astype(float),
            "to dependent": (answers[:, head] == word).astype(float),
        }
        scored.append(({"relation": relation.partition(":")[0], "offset": head - word}, right))
    return scored


def _other_half(hits: Any, even: Any) -> float:
    """Accuracy of the column best on one half, on the other half; both ways, weighted by their sizes."""
    right = 0.0
    for chosen, scored in ((even, ~even), (~even, even)):
        right += float(hits[scored, int(hits[chosen].mean(0).argmax())].sum())
    return right / len(even)
