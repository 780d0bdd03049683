"""A head seen in other ways: word by word, or without special tokens. Each is a `Head` again."""

# ruff: noqa: D102 - `WeightView` says what the methods of every view do

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import torch
from torch import Tensor

from attnviz_kernels import Statistics, pool_edges

from .composed import join_statistics
from .errors import UsageError
from .head import BUDGET, Head
from .tokens import Cut, Token, TokenAxis, Word
from .views import Dense, QueryKey, Shape, WeightView, dense_statistics, pool_dense

_BAND = 1 << 22
"""Weights computed together."""


def by_words(head: Head, rule: Cut = "punctuation", *, budget: int = BUDGET) -> Head:
    """The head with words in place of tokens; its weights are `Head.word_weights`. Takes memory of a whole map."""
    weights = head.word_weights(rule, budget=budget)
    made = Dense(weights[None, None])
    record = replace(head.record, view=made, statistics=None, value=None, numbers=(head.head,))
    rows, cols = (
        TokenAxis(tuple(_word(word, tokens) for word in words), slice(0, len(words)), axis.text)
        for words, tokens, axis in (
            (head.row_words(rule), head.rows, head.row_axis),
            (head.col_words(rule), head.cols, head.col_axis),
        )
    )
    return replace(head, record=record, batch=0, row_axis=rows, col_axis=cols, altered=_told(head, _by(rule)))


def _by(rule: Cut) -> str:
    cut = ("at punctuation" if rule == "punctuation" else "at white space") if isinstance(rule, str) else "as given"
    return f"words cut {cut} (sums over keys, means over queries)"


def _told(head: Head, done: str) -> str:
    """What was done to a map before, and what is done now."""
    return f"{head.altered}; {done}" if head.altered else done


def _word(word: Word, tokens: tuple[Token, ...]) -> Token:
    first, last = tokens[word.start], tokens[word.stop - 1]
    return Token(None, word.text, word.text, first.start, last.end, special=word.special)


def share_kept(head: Head) -> Tensor:
    """[M]: what of each row falls on tokens that are not special; one pass over the map."""
    kept = torch.zeros(1, 1, head.shape[1], 1, dtype=head.view.tile(slice(0, 1), slice(0, 1)).dtype)
    kept[0, 0, positions_kept(head.cols)] = 1
    return head.view.push(kept)[0, 0, :, 0]


def without_special(head: Head, share: Tensor | None = None) -> Head:
    """The head without the rows and columns of special tokens ([CLS], [SEP], BOS ...).

    With `share_kept(head)` as share each row is divided by what is left of it, so that it sums to one again; a row
    with nothing left sees no key then. Raises UsageError where nothing but special tokens is there.
    """
    rows, cols = positions_kept(head.rows), positions_kept(head.cols)
    if not len(rows) or not len(cols):
        raise UsageError("there are only special tokens here: leave them in")
    view, done = head.view, "special tokens hidden" + ("" if share is None else ", rows renormalised")
    if share is not None and isinstance(view, QueryKey) and len(cols) == cols[-1] - cols[0] + 1:
        # dividing a row by its share is adding ln(share) to its logsumexp
        left = torch.where(share > 0, view.view.logsumexp + share.log(), torch.inf)
        view, share = QueryKey(replace(view.view, logsumexp=left, sinks=None)), None
    record = replace(head.record, view=Picked(view, rows, cols, share), statistics=None, numbers=(head.head,))
    row_axis, col_axis = _axis(head.row_axis, rows), _axis(head.col_axis, cols)
    return replace(head, record=record, batch=0, row_axis=row_axis, col_axis=col_axis, altered=_told(head, done))


def positions_kept(tokens: tuple[Token, ...]) -> Tensor:
    """Where the tokens stand that are not special."""
    return torch.tensor([place for place, token in enumerate(tokens) if not token.special], dtype=torch.long)


def _axis(axis: TokenAxis, kept: Tensor) -> TokenAxis:
    tokens = axis.real
    return TokenAxis(tuple(tokens[place] for place in kept.tolist()), slice(0, len(kept)), axis.text)


@dataclass(frozen=True)
class Picked:
    """Some rows and columns of one head (B = H = 1), in order; rows divided by share [M of the whole] if given."""

    view: WeightView
    rows: Tensor
    cols: Tensor
    share: Tensor | None = None

    @property
    def shape(self) -> Shape:
        return 1, 1, len(self.rows), len(self.cols)

    def sequence(self, batch: int) -> Picked:
        return self

    def select(self, batch: int, head: int) -> Picked:
        return self

    def crop(self, rows: slice, cols: slice) -> Picked:
        return replace(self, rows=self.rows[rows], cols=self.cols[cols])

    def tile(self, rows: slice, cols: slice) -> Tensor:
        down, across = self.rows[rows], self.cols[cols]
        found = self.view.tile(_span(down), _span(across))
        return self._divided(_pick(_pick(found, down, -2), across, -1), down)

    def pool(self, shape: tuple[int, int], rows: slice, cols: slice, reduce: str) -> Tensor:
        down, across = self.rows[rows], self.cols[cols]
        if self.share is None and _contiguous(down) and _contiguous(across):
            return self.view.pool(shape, _span(down), _span(across), reduce)
        start, stop, _ = rows.indices(len(self.rows))
        seeing = self.visible() > 0
        edges = [start + edge for edge in pool_edges(stop - start, shape[0])]
        bands = [slice(top, bottom) for top, bottom in pairwise(edges)]
        pooled = [pool_dense(self.tile(band, cols), seeing[:, :, band], (1, shape[1]), reduce) for band in bands]
        return torch.cat(pooled, -2)

    def received(self) -> Tensor:
        return self.pull(torch.ones(1, 1, len(self.rows), 1))[..., 0]

    def push(self, vector: Tensor) -> Tensor:
        whole = vector.new_zeros(1, 1, self.view.shape[3], vector.shape[3])
        whole[:, :, self.cols] = vector
        return self._divided(self.view.push(whole)[:, :, self.rows], self.rows)

    def pull(self, vector: Tensor) -> Tensor:
        whole = vector.new_zeros(1, 1, self.view.shape[2], vector.shape[3])
        whole[:, :, self.rows] = self._divided(vector, self.rows)
        return self.view.pull(whole)[:, :, self.cols]

    def statistics(self) -> Statistics:
        count, offset = len(self.rows), int(self.own_keys()[0])
        height = max(1, _BAND // len(self.cols))
        bands = [slice(top, min(top + height, count)) for top in range(0, count, height)]
        found = [dense_statistics(self.tile(band, slice(None)), offset + band.start) for band in bands]
        return join_statistics(found, (0,) * len(found))

    def visible(self) -> Tensor:
        left_out = torch.ones(self.view.shape[3], dtype=torch.bool).index_fill(0, self.cols, False).nonzero()[:, 0]
        seen = self.view.visible()[:, :, self.rows]
        for place in left_out.tolist():
            seen = seen - (self.view.tile(slice(None), slice(place, place + 1))[:, :, self.rows, 0] > 0).long()
        return seen

    def own_keys(self) -> Tensor:
        return torch.searchsorted(self.cols, self.view.own_keys()[self.rows])

    def _divided(self, values: Tensor, rows: Tensor) -> Tensor:
        """Values [1, 1, rows, ...] divided by the rows' shares; 0 where nothing is left."""
        if self.share is None:
            return values
        return torch.nan_to_num(values / self.share[rows, None], nan=0.0, posinf=0.0)


def _span(places: Tensor) -> slice:
    return slice(int(places[0]), int(places[-1]) + 1)


def _contiguous(places: Tensor) -> bool:
    return len(places) == int(places[-1] - places[0]) + 1


def _pick(tensor: Tensor, places: Tensor, axis: int) -> Tensor:
    """The places of an axis that begins at the first of them."""
    return tensor if _contiguous(places) else tensor.index_select(axis, places - places[0])
