"""What there is to find in one window: queries with antecedents, candidate sets, and what simple rules would answer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from .documents import Document, Mention, mention_type

Flags = npt.NDArray[np.bool_]

CANDIDATES = ("other word", "preceding word", "other mention", "preceding mention")
"""What a head may choose from: any other word, any preceding word, or only head words of mentions among those."""

OFFSETS = (*range(-10, 0), *range(1, 11))
"""Fixed offsets tried as a baseline, in words or in mentions."""

RULES = ("nearest", "first", "same head word", "same head word else nearest", "sieve")

_PRONOUNS = {  # person, number, gender; None is unknown
    **dict.fromkeys(["i", "me", "my", "mine", "myself"], (1, "singular", None)),
    **dict.fromkeys(["we", "us", "our", "ours", "ourselves"], (1, "plural", None)),
    **dict.fromkeys(["you", "your", "yours", "yourself", "yourselves"], (2, None, None)),
    **dict.fromkeys(["he", "him", "his", "himself"], (3, "singular", "male")),
    **dict.fromkeys(["she", "her", "hers", "herself"], (3, "singular", "female")),
    **dict.fromkeys(["it", "its", "itself", "this", "that"], (3, "singular", "neuter")),
    **dict.fromkeys(["they", "them", "their", "theirs", "themselves", "these", "those"], (3, "plural", None)),
}


@dataclass(frozen=True)
class Query:
    """A mention's head word that has an antecedent in view. gold are the head words of its antecedents, in order."""

    word: int
    cluster: str
    gold: tuple[int, ...]
    type: str
    distance: int
    same_head: bool


def queries(document: Document) -> list[Query]:
    """Every unique (cluster, head word) with an earlier mention of its cluster in the document, in order.

    distance is in words to the nearest antecedent; same_head says whether any antecedent has the same head word.
    """
    found: dict[tuple[str, int], Query] = {}
    for mention in document.mentions:
        earlier = {m.head for m in document.mentions if m.cluster == mention.cluster and m.head < mention.head}
        if earlier:
            word = mention.head
            same = any(_form(document, head) == _form(document, word) for head in earlier)
            query = Query(
                word,
                mention.cluster,
                tuple(sorted(earlier)),
                mention_type(document, mention),
                word - max(earlier),
                same,
            )
            found.setdefault((mention.cluster, word), query)
    return sorted(found.values(), key=lambda query: (query.word, query.cluster))


def candidates(document: Document, query: Query, kind: str) -> Flags:
    """[words] bool: what may be chosen for a query."""
    words = np.arange(len(document.words))
    allowed: Flags = words != query.word
    if kind.startswith("preceding"):
        allowed &= words < query.word
    if kind.endswith("mention"):
        heads = np.zeros(len(words), dtype=bool)
        heads[[mention.head for mention in document.mentions]] = True
        allowed &= heads
    return allowed


def rule_answers(document: Document, query: Query, allowed: Flags, kind: str) -> dict[str, int | None]:
    """The word each rule chooses among the allowed ones; None where it has no answer. The sieve needs mentions."""
    places = [int(index) for index in np.flatnonzero(allowed)]
    by_distance = sorted(places, key=lambda place: (abs(place - query.word), place))
    nearest = by_distance[0]
    same = next((place for place in by_distance if _form(document, place) == _form(document, query.word)), None)
    return {
        "nearest": nearest,
        "first": places[0],
        "same head word": same,
        "same head word else nearest": nearest if same is None else same,
        "sieve": _sieve(document, query, by_distance) if kind.endswith("mention") else None,
    }


def offset_answers(query: Query, allowed: Flags, kind: str) -> dict[int, int | None]:
    """The word at each fixed offset: in words, or counted in mentions where only mentions are allowed."""
    if kind.endswith("word"):
        size = len(allowed)
        return {k: query.word + k if 0 <= query.word + k < size and allowed[query.word + k] else None for k in OFFSETS}
    places = np.flatnonzero(allowed)
    before = int(np.searchsorted(places, query.word))
    at = {k: before + k if k < 0 else before + k - 1 for k in OFFSETS}
    return {k: int(places[place]) if 0 <= place < len(places) else None for k, place in at.items()}


def _sieve(document: Document, query: Query, by_distance: list[int]) -> int:
    """Nearest that passes the earliest of: same string, same head word, agreement, anything (after Lee et al. 2013)."""
    own = _mention_at(document, query.word, query.cluster)
    others = [(place, _mention_at(document, place)) for place in by_distance]
    tests: tuple[Callable[[Mention], bool], ...] = (
        lambda mention: _string(document, mention) == _string(document, own),
        lambda mention: _form(document, mention.head) == _form(document, own.head),
        lambda mention: agree(document, mention, own),
        lambda mention: True,
    )
    for passes in tests:
        for place, mention in others:
            if passes(mention):
                return place
    raise AssertionError("the last sieve passes everything")


def agree(document: Document, one: Mention, other: Mention) -> bool:
    """Whether nothing known about person, number and gender contradicts."""
    pairs = zip(_features(document, one), _features(document, other), strict=True)
    return all(a is None or b is None or a == b for a, b in pairs)


def _features(document: Document, mention: Mention) -> tuple[int, str | None, str | None]:
    pronoun = _PRONOUNS.get(_form(document, mention.head))
    if pronoun is not None:
        return pronoun
    tag = document.xpos[mention.head] if document.xpos else ""
    number = {"NN": "singular", "NNP": "singular", "NNS": "plural", "NNPS": "plural"}.get(tag)
    return 3, number, None


def _mention_at(document: Document, head: int, cluster: str | None = None) -> Mention:
    """The longest mention with that head word (of a cluster, where given)."""
    found = [m for m in document.mentions if m.head == head and cluster in (None, m.cluster)]
    return max(found, key=lambda mention: mention.stop - mention.start)


def _string(document: Document, mention: Mention) -> tuple[str, ...]:
    return tuple(word.lower() for word in document.words[mention.start : mention.stop])


def _form(document: Document, word: int) -> str:
    return document.words[word].lower()
