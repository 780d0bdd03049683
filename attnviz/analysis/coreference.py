"""Antecedent selection: does a head's largest weight from a mention fall on one of its antecedents?

After Clark et al. 2019 (arXiv 1906.04341, 4.3), whose candidate set and code were not published; the conventions here
are therefore spelled out. A query is a unique (cluster, head word) with an earlier mention of its cluster in the same
window. The head answers with the candidate word of the largest word-level weight, the lowest index on ties; the word
itself and special tokens are no candidates and nothing is renormalised. The answer is right when it is the head word
of an antecedent. Accuracies are means over queries.

A head that scores well puts its weight there; that the model uses what it finds is a question for ablation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from ..errors import DataError, UsageError
from ..numbers import many
from .antecedents import CANDIDATES, OFFSETS, RULES, candidates, offset_answers, queries, rule_answers
from .documents import Document, check_clusters
from .tables import Tabular
from .windows import Part, Window, fitting, recorded, split, word_rows

if TYPE_CHECKING:
    import pandas as pd

Hits = npt.NDArray[np.float64]

DISTANCES = ((1, 5), (6, 15), (16, 40), (41, None))
"""Bins of distance to the nearest antecedent, in words."""


@dataclass(frozen=True)
class Coreference(Tabular):
    """What was right, query by query. hits[candidates] is [queries, heads] of 0 and 1; rules[candidates][name] is
    [queries], NaN where a rule does not apply; queries holds document, type, distance and same_head of each query;
    reading says in words how the documents were cut into windows."""

    heads: tuple[tuple[int, int], ...]
    queries: pd.DataFrame
    hits: dict[str, Hits]
    rules: dict[str, dict[str, Hits]]
    model: str = "model"
    reading: str = ""

    def table(self, kind: str = CANDIDATES[3]) -> pd.DataFrame:
        """One row per head, best first: accuracy over all queries, and n."""
        import pandas as pd

        hits = self._hits(kind)
        rows = [
            {"layer": layer, "head": head, "accuracy": hits[:, index].mean(), "n": len(hits)}
            for index, (layer, head) in enumerate(self.heads)
        ]
        return pd.DataFrame(rows).sort_values("accuracy", ascending=False, kind="stable", ignore_index=True)

    def baselines(self, kind: str = CANDIDATES[3]) -> pd.DataFrame:
        """One row per rule over the same candidates: accuracy, and n; of the fixed offsets only the best."""
        import pandas as pd

        self._hits(kind)
        rules = self.rules[kind]
        named = [(name, rules[name]) for name in ("chance", *RULES)]
        offset = max(OFFSETS, key=lambda k: (rules[f"offset {k:+d}"].mean(), -abs(k)))
        named.append((f"best fixed offset ({offset:+d})", rules[f"offset {offset:+d}"]))
        return pd.DataFrame(
            [{"rule": name, "accuracy": found.mean(), "n": len(found)} for name, found in named if len(found)]
        ).dropna(ignore_index=True)

    def best(self, kind: str = CANDIDATES[3], samples: int = 1000) -> pd.DataFrame:
        """The best head of every second document, scored on the other documents, both ways; interval over documents.

        The best of many heads is too good by chance on the texts it was chosen on: `chosen` is its accuracy there,
        `accuracy` on the half that had no say, with a 95 % bootstrap interval over that half's documents.
        """
        import pandas as pd

        hits, document = self._hits(kind), self.queries["document"].to_numpy()
        names = list(dict.fromkeys(document))
        if len(names) < 2:
            raise DataError("choosing a head on one half and scoring it on the other needs at least 2 documents, got 1")
        even = np.isin(document, names[::2])
        rows = []
        for label, chosen, scored in (("even", even, ~even), ("odd", ~even, even)):
            index = int(hits[chosen].mean(0).argmax())
            low, high = bootstrap(hits[scored, index], document[scored], samples)
            rows.append(
                {
                    "chosen on": label,
                    "layer": self.heads[index][0],
                    "head": self.heads[index][1],
                    "chosen": hits[chosen, index].mean(),
                    "accuracy": hits[scored, index].mean(),
                    "low": low,
                    "high": high,
                    "n": int(scored.sum()),
                }
            )
        return pd.DataFrame(rows)

    def split(self, layer: int, head: int, kind: str = CANDIDATES[3]) -> pd.DataFrame:
        """One head's accuracy by mention type, by distance, and by whether an antecedent has the same head word."""
        import pandas as pd

        if (layer, head) not in self.heads:
            raise UsageError(f"layer {layer} head {head} was not scored")
        hits = self._hits(kind)[:, self.heads.index((layer, head))]
        table = self.queries
        parts = [(f"{name}s", (table["type"] == name).to_numpy()) for name in ("pronoun", "name", "noun")]
        for low, high in DISTANCES:
            inside = (table["distance"] >= low) & (table["distance"] <= (high or np.inf))
            parts.append((f"{low} to {high} words" if high else f"over {low - 1} words", inside.to_numpy()))
        parts += [
            ("same head word", table["same_head"].to_numpy()),
            ("other head word", ~table["same_head"].to_numpy()),
        ]
        return pd.DataFrame(
            [
                {"part": name, "accuracy": hits[which].mean(), "n": int(which.sum())}
                for name, which in parts
                if which.any()
            ]
        )

    def _hits(self, kind: str) -> Hits:
        if kind not in CANDIDATES:
            raise UsageError(f"candidates must be one of {', '.join(CANDIDATES)}, got {kind!r}")
        return self.hits[kind]


def coreference(
    documents: Sequence[Document],
    model: Any,
    tokenizer: Any,
    *,
    window: int = 126,
    overlap: int = 0,
    start: bool = False,
    progress: Callable[[int, int], None] | None = None,
) -> Coreference:
    """Score every head of a model on annotated documents; memory is O(N) per head beside one window's word map.

    window is the number of tokens, without special ones, of whole sentences read together (126 follows Clark et al.'s
    128), or what the model reads where that is less; overlap is the number of sentences that a window repeats from the
    one before, whose mentions are not asked again. start puts the tokenizer's start token before every window, which a
    decoder's heads may rest on; the tokenizers of many decoders add none. progress(done, total) is called after each
    document. Raises DataError when no cluster has two mentions, or no mention an antecedent in its window.
    """
    import pandas as pd

    check_clusters(documents)
    size = fitting(model, tokenizer, window)
    parts = [split(document, tokenizer, size, overlap) for document in documents]
    found: list[dict[str, Any]] = []
    hits: dict[str, list[Hits]] = {kind: [] for kind in CANDIDATES}
    rules: dict[str, dict[str, list[float]]] = {kind: {} for kind in CANDIDATES}
    heads: tuple[tuple[int, int], ...] = ()
    for done, document in enumerate(documents, 1):
        for part in parts[done - 1]:
            if all(query.word < part.repeated for query in queries(part.document)):
                continue
            read = recorded(part, model, tokenizer, start)
            heads = tuple((head.layer, head.head) for head in read.trace.every_head())
            for row in score_window(read):
                found.append({"document": f"{done} {document.name}", **row.query})
                for kind in CANDIDATES:
                    hits[kind].append(row.hits[kind])
                    for name, right in row.rules[kind].items():
                        rules[kind].setdefault(name, []).append(right)
        if progress is not None:
            progress(done, len(documents))
    if not found:
        raise DataError(
            "no mention has an antecedent in its window: use longer windows or texts with repeated mentions"
        )
    return Coreference(
        heads,
        pd.DataFrame(found),
        {kind: np.stack(rows) for kind, rows in hits.items()},
        {kind: {name: np.array(right) for name, right in named.items()} for kind, named in rules.items()},
        getattr(model, "name_or_path", "") or "model",
        _reading(documents, parts, size, overlap, start, len(found)),
    )


def _reading(
    documents: Sequence[Document], parts: Sequence[list[Part]], size: int, overlap: int, start: bool, asked: int
) -> str:
    """How the documents were read, and what that leaves out."""
    cut = [part for of_one in parts for part in of_one]
    unread = sum(len(found.words) for found in documents) - sum(len(p.document.words) - p.repeated for p in cut)
    told = [
        f"{many(len(documents), 'document')} in {many(len(cut), 'window')} of whole sentences,"
        f" up to {size} tokens each, {many(overlap, 'sentence')} of overlap"
        f"{', a start token before each' if start else ''}",
        f"{asked} of {sum(len(queries(found)) for found in documents)} mentions with an antecedent have one in view",
    ]
    return "; ".join(told + [f"{unread} words of longer sentences were not read"] * (unread > 0))


@dataclass(frozen=True)
class Scored:
    """One query: what it is, which heads were right ([heads] per candidate set), and which rules."""

    query: dict[str, Any]
    hits: dict[str, Hits]
    rules: dict[str, dict[str, float]]


def score_window(window: Window) -> Iterable[Scored]:
    """Every query of one window, scored for all heads and rules.

    A word the tokenizer dropped asks nothing, nor does one that the window before held.
    """
    document, trace = window.document, window.trace
    asked = [query for query in queries(document) if query.word >= window.repeated and query.word in window.owners]
    if not asked:
        return
    words = sorted({query.word for query in asked})
    count = len(document.words)
    views = [trace.view(layer) for layer in trace.layers]
    maps = np.concatenate([word_rows(view, window.owners, words, count).cpu().numpy() for view in views])
    for query in asked:
        rows = maps[:, words.index(query.word)]
        right, ruled = {}, {}
        gold = np.zeros(count, dtype=bool)
        gold[list(query.gold)] = True
        for kind in CANDIDATES:
            allowed = candidates(document, query, kind)
            right[kind] = gold[np.where(allowed, rows, -1.0).argmax(1)].astype(float)
            answers = rule_answers(document, query, allowed, kind)
            named: dict[str, float] = {"chance": float((gold & allowed).sum() / allowed.sum())}
            named |= {name: _right(answer, gold) for name, answer in answers.items()}
            if not kind.endswith("mention"):
                named["sieve"] = np.nan
            named |= {f"offset {k:+d}": _right(a, gold) for k, a in offset_answers(query, allowed, kind).items()}
            ruled[kind] = named
        about = {"type": query.type, "distance": query.distance, "same_head": query.same_head}
        yield Scored(about, right, ruled)


def bootstrap(hits: Hits, document: npt.NDArray[Any], samples: int) -> tuple[float, float]:
    """95 % interval of the mean when documents are drawn with replacement; seeded, so that it is reproducible."""
    names = list(dict.fromkeys(document))
    sums = np.array([hits[document == name].sum() for name in names])
    counts = np.array([(document == name).sum() for name in names])
    drawn = np.random.default_rng(0).integers(0, len(names), size=(samples, len(names)))
    means = sums[drawn].sum(1) / counts[drawn].sum(1)
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def _right(answer: int | None, gold: npt.NDArray[np.bool_]) -> float:
    return 0.0 if answer is None else float(gold[answer])
