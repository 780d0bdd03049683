"""Which map is looked at, as a value; the head behind it is made anew from the kept trace whenever it is needed.

So nothing but the store of traces holds queries and keys, and its budget means what it says.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..errors import UsageError
from ..export.figure import SPECIAL
from ..head import Head
from ..trace import Trace
from ..variants import by_words, positions_kept, share_kept, without_special
from . import runs
from .jobs import READING
from .waiting import obtain

TOKENS, WORDS = "Tokens", "Words"
SHOWN, HIDDEN, DIVIDED = SPECIAL

WORD_LIMIT = 2048
"""Words up to which the map of words is made: it takes the memory of a whole map."""


@dataclass(frozen=True)
class Place:
    """One head of a kept trace: the kind of attention, the sequence, tokens or words, with special ones or without."""

    wanted: runs.Wanted
    kind: str
    sequence: int
    layer: int
    head: int
    unit: str = TOKENS
    special: str = SHOWN

    @property
    def axes(self) -> Place:
        """The same for all heads of a layer: what stands on rows and columns."""
        return replace(self, head=0)

    @property
    def whole(self) -> Place:
        """With special tokens."""
        return replace(self, special=SHOWN)

    @property
    def plain(self) -> Place:
        """Tokens, special ones included."""
        return replace(self.whole, unit=TOKENS)


class GoneError(UsageError):
    """What was asked for is no longer kept."""


def part_of(trace: Trace, kind: str, sequence: int) -> Trace:
    """The part of a trace with one kind of attention and one sequence."""
    return trace.only(kind).sequence(sequence)


def prepared(place: Place) -> Head:
    """The head of a place; what it takes beside the trace is made first, as jobs of the visitor."""
    if place.unit == WORDS:
        plain = head_of(place.plain)
        obtain(runs.traces(), (place.whole, "words"), lambda _: by_words(plain), _map_bytes, READING)
    if place.special == DIVIDED:
        whole = head_of(place.whole)
        obtain(runs.traces(), (place, "share"), lambda _: share_kept(whole), lambda share: share.nbytes, READING)
    return head_of(place)


def head_of(place: Place) -> Head:
    """The head of a place that was prepared; takes no time. Raises GoneError when that is no longer kept."""
    if place.special == SHOWN and place.unit == WORDS:
        return _kept((place, "words"))  # type: ignore[no-any-return]
    if place.special == SHOWN:
        return part_of(_kept(place.wanted), place.kind, place.sequence)[place.layer, place.head]
    return without_special(head_of(place.whole), _kept((place, "share")) if place.special == DIVIDED else None)


def starts(place: Place) -> tuple[Sequence[int], Sequence[int]]:
    """For each drawn row and for each drawn column the position of its first token in the text."""
    plain, whole = head_of(place.plain), head_of(place.whole)
    sides = (plain.row_words, plain.rows, whole.rows), (plain.col_words, plain.cols, whole.cols)
    found: list[Sequence[int]] = []
    for words, tokens, drawn in sides:
        first = [word.start for word in words()] if place.unit == WORDS else range(len(tokens))
        found.append(first if place.special == SHOWN else [first[at] for at in positions_kept(drawn).tolist()])
    return found[0], found[1]


def drawn_at(first: Sequence[int], position: int) -> int:
    """Which drawn row or column holds a position of the text; the one before where none does."""
    return max(0, bisect_right(first, position) - 1)


def _map_bytes(head: Head) -> int:
    return 4 * head.shape[0] * head.shape[1]


def _kept(key: Hashable) -> Any:
    value = runs.traces().get(key)
    if value is None:
        raise GoneError("this run had made room for others: reload the page")
    return value
