"""Annotated text: words, sentences, mentions in clusters, syntactic heads. What coreference and dependencies score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import DataError
from ..numbers import many

_BREAKS = """of in on at by for from with to about over under who whom whose which that where when , ; : ( -- -"""
_PRONOUNS = """
i me my mine myself you your yours yourself yourselves he him his himself she her hers herself it its itself we us our
ours ourselves they them their theirs themselves this that these those one who whom whose which
"""


@dataclass(frozen=True)
class Mention:
    """Words start to stop (exclusive) that refer to the entity `cluster`; head is the index of their head word."""

    start: int
    stop: int
    head: int
    cluster: str


@dataclass(frozen=True)
class Document:
    """Words, and what is known about them. The text a model reads is the words joined by single spaces.

    sentences are word ranges (start, stop) that cover the words in order. heads gives each word's syntactic head as a
    word index, itself for a root; relations, upos and xpos one label per word.
    """

    name: str
    words: tuple[str, ...]
    sentences: tuple[tuple[int, int], ...]
    mentions: tuple[Mention, ...] = ()
    heads: tuple[int, ...] | None = None
    relations: tuple[str, ...] | None = None
    upos: tuple[str, ...] | None = None
    xpos: tuple[str, ...] | None = None

    @property
    def text(self) -> str:
        """The words joined by single spaces."""
        return " ".join(self.words)

    def spans(self) -> list[tuple[int, int]]:
        """Where each word stands in `text`, as character ranges."""
        result, place = [], 0
        for word in self.words:
            result.append((place, place + len(word)))
            place += len(word) + 1
        return result

    def part(self, start: int, stop: int) -> Document:
        """The words start to stop as a document of their own; mentions that are not wholly inside are left out."""
        inside = [m for m in self.mentions if start <= m.start and m.stop <= stop]
        moved = tuple(Mention(m.start - start, m.stop - start, m.head - start, m.cluster) for m in inside)
        heads = self.heads and tuple(
            head - start if start <= head < stop else word - start
            for word, head in zip(range(start, stop), self.heads[start:stop], strict=True)
        )
        return Document(
            self.name,
            self.words[start:stop],
            tuple((a - start, b - start) for a, b in self.sentences if start <= a and b <= stop)
            or ((0, stop - start),),
            moved,
            heads,
            self.relations and self.relations[start:stop],
            self.upos and self.upos[start:stop],
            self.xpos and self.xpos[start:stop],
        )


def document(
    words: list[str] | tuple[str, ...],
    clusters: dict[str, list[tuple[int, ...]]] | None = None,
    name: str = "document",
) -> Document:
    """A document from words and clusters: {cluster: [(start, stop) or (start, stop, head), ...]}, stop exclusive.

    >>> document("Ann met Bo . She smiled .".split(), {"ann": [(0, 1), (4, 5)]}).mentions[1].head
    4
    """
    if not words:
        raise DataError(f"{name} has no words: a document needs at least one")
    mentions = []
    for cluster, spans in (clusters or {}).items():
        for span in spans:
            start, stop = span[0], span[1]
            if not 0 <= start < stop <= len(words):
                raise DataError(
                    f"{name}: cluster {cluster} has a mention {start} to {stop}, outside the text of"
                    f" {many(len(words), 'word')}: count words from 0, and stop at the first one behind it"
                )
            head = span[2] if len(span) > 2 else head_by_rule(words, start, stop)
            if not start <= head < stop:
                raise DataError(
                    f"{name}: cluster {cluster} has a mention {start} to {stop} with its head {head} outside"
                )
            mentions.append(Mention(start, stop, head, str(cluster)))
    return ordered(Document(name, tuple(words), sentence_ranges(words), tuple(mentions)))


def ordered(found: Document) -> Document:
    """The document with its mentions in the order of the text, the longest first where several begin."""
    mentions = sorted(found.mentions, key=lambda mention: (mention.start, -mention.stop))
    return replace(found, mentions=tuple(mentions))


def check_clusters(documents: Sequence[Document]) -> None:
    """DataError unless a cluster of some document has two mentions; clusters of one beside it have no antecedents."""
    sizes = Counter((place, mention.cluster) for place, one in enumerate(documents) for mention in one.mentions)
    if not sizes:
        raise DataError("no mention is marked in these documents: coreference needs clusters of mentions")
    if max(sizes.values()) < 2:
        place, cluster = next(iter(sizes))
        raise DataError(
            f"every cluster has one mention, {cluster} of {documents[place].name} too:"
            " mark at least two mentions of one entity"
        )


def sentence_ranges(words: list[str] | tuple[str, ...]) -> tuple[tuple[int, int], ...]:
    """Sentences by rule, for text that comes without: a sentence ends after . ! ? that no quote or bracket follows."""
    ranges, start = [], 0
    for index, word in enumerate(words):
        closes = word in (".", "!", "?") or (
            len(word) > 1 and word[-1] in ".!?" and word[:-1].isalpha() and word[0].islower()
        )
        if closes and index + 1 < len(words) and words[index + 1] not in ('"', "''", "'", "”", "’", ")"):
            ranges.append((start, index + 1))
            start = index + 1
    ranges.append((start, len(words)))
    return tuple(ranges)


def head_by_syntax(heads: tuple[int, ...] | list[int], start: int, stop: int) -> int:
    """The leftmost word of the span whose syntactic head lies outside the span (or is itself, a root)."""
    for word in range(start, stop):
        if not start <= heads[word] < stop or heads[word] == word:
            return word
    return stop - 1


def head_by_rule(words: list[str] | tuple[str, ...], start: int, stop: int) -> int:
    """Without syntax: the last word before the first preposition, relative pronoun or comma, else the last word."""
    for index in range(start + 1, stop):
        if words[index].lower() in _BREAKS.split():
            return index - 1
        if words[index] in ("'s", "’s") and index == stop - 1:
            return index - 1
    return stop - 1


def mention_type(found: Document, mention: Mention) -> str:
    """ "pronoun", "name" or "noun", from the head word's tag where there is one, else from its form."""
    word = found.words[mention.head]
    if found.upos is not None:
        tag = found.upos[mention.head]
        return {"PRON": "pronoun", "DET": "pronoun", "PROPN": "name"}.get(tag, "noun")
    if word.lower() in _PRONOUNS.split():
        return "pronoun"
    return "name" if word[:1].isupper() else "noun"
