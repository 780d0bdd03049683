"""Word alignment from encoder-decoder cross-attention: how often a head's largest weight is a gold link.

A source word is linked to every target word whose row gives it the largest word-level weight (lowest index on ties),
after Ghader and Monz 2017 (arXiv 1710.03348), who also show that attention and alignment differ: a decoder needs more
than the aligned word, so a high error rate is no proof of a bad model. Alignment error rate after Och and Ney 2003:

    AER = 1 - (|A and sure| + |A and possible|) / (|A| + |sure|),  sure links being possible too
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..errors import DataError, UsageError
from ..tokens import Word, from_ids, words
from ..trace import Trace

if TYPE_CHECKING:
    import pandas as pd

Link = tuple[int, int]
"""(target word, source word), from zero."""

MOMENTS = ("producing", "produced")
"""Which row speaks for a target token: the one that produces it (the row before, read while choosing it), or the row at
which it is read back as input, just produced."""


@dataclass(frozen=True)
class Gold:
    """Gold links of one sentence pair. possible need not repeat the sure ones."""

    sure: frozenset[Link]
    possible: frozenset[Link] = frozenset()

    @property
    def all_possible(self) -> frozenset[Link]:
        """Possible links, the sure ones included."""
        return self.possible | self.sure


def parse_links(text: str) -> Gold:
    """Gold links in Pharaoh notation, source first: "0-0 1-2 3p4" ("-" sure, "p" possible).

    Raises DataError for anything else.
    """
    sure: set[Link] = set()
    possible: set[Link] = set()
    for item in text.split():
        source, mark, target = item.partition("-") if "-" in item else item.partition("p")
        if not mark or not source.isdigit() or not target.isdigit():
            raise DataError(f'{item!r} is no link: write source-target, such as "0-0 1-2", or 3p4 for a possible one')
        (sure if mark == "-" else possible).add((int(target), int(source)))
    if not sure:
        raise DataError("there is no sure link: at least one is needed to score against")
    return Gold(frozenset(sure), frozenset(possible))


def check_links(gold: Gold, targets: Sequence[Word], sources: Sequence[Word]) -> None:
    """DataError for a link to a word that is not there."""
    for target, source in sorted(gold.all_possible):
        if target >= len(targets) or source >= len(sources):
            raise DataError(
                f"link {source}-{target} lies outside the text of {len(sources)} source and {len(targets)} target words"
            )


def words_of(trace: Trace) -> tuple[list[Word], list[Word]]:
    """The target words (ranges of rows) and the source words (ranges of columns) of a trace of cross attention, cut at
    white space, without special tokens."""
    head = trace.every_head()[0]
    return _plain(head.row_words("whitespace")), _plain(head.col_words("whitespace"))


def read_pair(model: Any, tokenizer: Any, source: str, target: str) -> tuple[Trace, list[Word], list[Word]]:
    """The cross attention of an encoder-decoder model while it reads a translation, with the words of `words_of`.

    Raises UsageError for a model that has none.
    """
    from ..recording import record

    if not getattr(model.config, "is_encoder_decoder", False):
        raise UsageError("this model has no cross attention: give an encoder-decoder model")
    inputs = tokenizer(source, text_target=target, return_tensors="pt")
    labels = inputs.pop("labels")
    with torch.inference_mode(), record(model, tokenizer=tokenizer, text=source) as trace:
        model(**inputs, labels=labels)
    targets = words(from_ids(tokenizer, labels[0].tolist(), target), target, "whitespace")
    sources = words(from_ids(tokenizer, inputs["input_ids"][0].tolist(), source), source, "whitespace")
    # the decoder reads a start token first, so that each target token stands one row later than in the labels
    moved = [replace(word, start=word.start + 1, stop=word.stop + 1) for word in targets]
    return trace.cross, _plain(moved), _plain(sources)


def _plain(found: Iterable[Word]) -> list[Word]:
    return [word for word in found if not word.special]


def word_map(trace: Trace, layer: int, targets: Sequence[Word], sources: Sequence[Word], moment: str) -> Tensor:
    """[H, target words, source words]: a layer's word-level cross-attention at the chosen moment.

    "producing" reads a token's weights one row earlier; the very first token, which has none, is left out of its word,
    or keeps its own row where it is the whole word.
    """
    if moment not in MOMENTS:
        raise UsageError(f"moment must be one of {', '.join(MOMENTS)}, got {moment!r}")
    shift = 1 if moment == "producing" else 0
    weights = trace.view(layer).tile(slice(None), slice(None))[0].float()
    summed = torch.stack([weights[:, :, word.start : word.stop].sum(2) for word in sources], dim=2)
    rows = [summed[:, max(0, word.start - shift) : max(1, word.stop - shift)].mean(1) for word in targets]
    return torch.stack(rows, dim=1)


def links(weights: Tensor, symmetric: bool = False) -> frozenset[Link]:
    """The largest source word of every target word, [targets, sources]; symmetric keeps only mutual choices."""
    rows = {(target, int(source)) for target, source in enumerate(weights.argmax(1))}
    if not symmetric:
        return frozenset(rows)
    return frozenset(rows & {(int(target), source) for source, target in enumerate(weights.argmax(0))})


def error_rate(found: Iterable[Link], gold: Gold) -> float:
    """Alignment error rate, 0 (all right) to 1."""
    chosen = frozenset(found)
    right = len(chosen & gold.sure) + len(chosen & gold.all_possible)
    return 1 - right / (len(chosen) + len(gold.sure))


def cells(weights: Tensor, gold: Gold | None = None, symmetric: bool = False) -> pd.DataFrame:
    """One row per target and source word of a word-level map: weight, whether it is a link (see `links`), and what the
    gold links say: "sure", "possible" or ""."""
    import pandas as pd

    found, count = links(weights, symmetric), weights.shape[1]
    said = {} if gold is None else dict.fromkeys(gold.all_possible, "possible") | dict.fromkeys(gold.sure, "sure")
    places = [divmod(place, count) for place in range(weights.numel())]
    return pd.DataFrame(
        {
            "target": [target for target, _ in places],
            "source": [source for _, source in places],
            "weight": weights.flatten().tolist(),
            "link": [place in found for place in places],
            "gold": [said.get(place, "") for place in places],
        }
    )


def alignment(
    trace: Trace,
    gold: Gold,
    targets: Sequence[Word],
    sources: Sequence[Word],
    *,
    moment: str = "producing",
) -> pd.DataFrame:
    """One row per layer and head, best first: error rate of its argmax links and of the mutual ones; and layer means.

    trace holds cross attention (`trace.cross`); targets and sources are the words the links count, as ranges of rows
    and columns. head is -1 for the mean of a layer's heads.
    """
    import pandas as pd

    check_links(gold, targets, sources)
    rows = []
    for layer in trace.layers:
        maps = word_map(trace, layer, targets, sources, moment)
        for head, weights in [*zip(trace.record(layer).head_numbers, maps, strict=True), (-1, maps.mean(0))]:
            one_way, mutual = error_rate(links(weights), gold), error_rate(links(weights, True), gold)
            rows.append({"layer": layer, "head": head, "error rate": one_way, "error rate, mutual": mutual})
    return pd.DataFrame(rows).sort_values("error rate", kind="stable", ignore_index=True)


def by_rate(table: pd.DataFrame, mutual: bool = False) -> tuple[pd.DataFrame, str]:
    """The heads of a table of `alignment` without layer means, best first by the rate that is asked for, and that
    rate's column."""
    column = "error rate, mutual" if mutual else "error rate"
    return table[table["head"] >= 0].sort_values(column, kind="stable", ignore_index=True), column
