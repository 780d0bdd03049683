"""One attention module of a run, a `Record`, and one head of it to look at, a `Head`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnviz_kernels import ArgumentError, Statistics

from .arguments import check_numbers, check_whole, refuse
from .composed import each
from .errors import BudgetError, UsageError
from .estimate import readable
from .tokens import Cut, Token, TokenAxis, Word, printable, to_words, words
from .views import WeightView

if TYPE_CHECKING:
    import pandas as pd

BUDGET = 1 << 30
"""Bytes a whole map may take when nothing else is said: 1 GiB."""


@dataclass(frozen=True)
class Record:
    """One attention module of one run: where it stands, how it was recorded, and its view of the weights.

    layer is the model's own number; kind a key of `trace.AXES`, or "linear" for a layer without weights (then no view);
    branch names one of several attentions of a layer; rung says how it was recorded; statistics are [B, H, M];
    value [B, G, N, E] is there when asked for. numbers are the model's own numbers of the heads where only some were
    kept; row_start is the position of the first row where recording began in the middle of a text.
    """

    name: str
    layer: int
    kind: str
    rung: str
    backend: str
    view: WeightView | None
    branch: str | None = None
    statistics: Statistics | None = None
    value: Tensor | None = None
    notes: tuple[str, ...] = ()
    numbers: tuple[int, ...] | None = None
    row_start: int = 0

    @property
    def heads(self) -> int:
        """Number of query heads; 0 for a layer without weights."""
        return 0 if self.view is None else self.view.shape[1]

    @property
    def head_numbers(self) -> tuple[int, ...]:
        """The model's own numbers of the heads, in the order of the view's axis H."""
        return tuple(range(self.heads)) if self.numbers is None else self.numbers


@dataclass(frozen=True)
class Head:
    """One head of one sequence, without padding. M rows are queries, N columns are keys.

    altered says what was done to its map (`attnviz.variants`); figures show it.
    """

    layer: int
    head: int
    record: Record
    batch: int
    row_axis: TokenAxis
    col_axis: TokenAxis
    model: str = "model"
    altered: str = ""

    def __repr__(self) -> str:
        """One line: which head, and the size of its map."""
        rows, cols = self.shape
        place = f"layer {self.layer}, head {self.head} of {printable(self.model)}"
        return f"<Head: {place}, {rows} queries x {cols} keys>"

    def _repr_html_(self) -> str:
        """What a notebook shows: the map."""
        from .export.notebook import head_html

        return head_html(self)

    @property
    def shape(self) -> tuple[int, int]:
        """(M, N)."""
        return self.view.shape[2], self.view.shape[3]

    @property
    def rows(self) -> tuple[Token, ...]:
        """The query tokens."""
        return self.row_axis.real

    @property
    def cols(self) -> tuple[Token, ...]:
        """The key tokens."""
        return self.col_axis.real

    @cached_property
    def view(self) -> WeightView:
        """The weights on demand, with axes B = H = 1."""
        assert self.record.view is not None
        index = self.record.head_numbers.index(self.head)
        return self.record.view.select(self.batch, index).crop(self.row_axis.valid, self.col_axis.valid)

    def weights(self, rows: slice = slice(None), cols: slice = slice(None), *, budget: int = BUDGET) -> Tensor:
        """Exact weights [rows, cols]; the whole map unless ranges are given.

        Raises BudgetError when they would take more than `budget` bytes.
        """
        for name, part in (("rows", rows), ("cols", cols)):
            if not isinstance(part, slice):
                raise refuse(name, "a range, such as slice(0, 16)", part)
        count = len(range(*rows.indices(self.shape[0]))) * len(range(*cols.indices(self.shape[1])))
        if count == 0:
            raise UsageError(
                f"rows and cols must select a part of the map of {self.shape[0]} x {self.shape[1]}, got none"
            )
        if count * 4 > budget:
            raise BudgetError(
                f"these weights of layer {self.layer} head {self.head} need {readable(count * 4)}, the budget is"
                f" {readable(budget)}: take a tile with rows= and cols=, a pooled map, or pass budget="
            )
        return self.view.tile(rows, cols)[0, 0]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """`numpy.asarray(head)`: the whole map [M, N], within the default budget."""
        import numpy as np

        if copy is False:
            raise ValueError("the weights of a head are computed anew, so numpy cannot have them without a copy")
        return np.asarray(self.weights().cpu().numpy(), dtype)

    def __dlpack__(self, **options: Any) -> Any:
        """The whole map for any library that speaks DLPack, within the default budget."""
        return self.weights().__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        """Where `__dlpack__` puts the map."""
        return self.weights(slice(0, 1)).__dlpack_device__()

    def pooled(
        self,
        shape: tuple[int, int],
        rows: slice = slice(None),
        cols: slice = slice(None),
        reduce: str = "mean",
    ) -> Tensor:
        """Exact block means (reduce="mean") or maxima ("max") of the map or a part of it, at most `shape` blocks."""
        try:
            return self.view.pool(shape, rows, cols, reduce)[0, 0]
        except ArgumentError as error:
            raise UsageError(str(error)) from error

    @cached_property
    def statistics(self) -> Statistics:
        """Every row's statistics, each [M]; NaN for rows that see no key."""
        recorded = self.record.statistics
        if recorded is None:
            return each(self.view.statistics(), lambda tensor: tensor[0, 0])
        index = self.record.head_numbers.index(self.head)
        found = each(recorded, lambda tensor: tensor[self.batch, index, self.row_axis.valid])
        moved = self.col_axis.valid.start or 0
        key = found.largest_key
        return replace(found, largest_key=torch.where(key < 0, key, key - moved))

    @property
    def steps(self) -> tuple[int, ...] | None:
        """For each row the forward pass that produced it, from zero for the prompt; None outside generation."""
        steps = self.row_axis.steps
        return None if steps is None else steps[self.row_axis.valid]

    @property
    def entropy(self) -> Tensor:
        """[M], in nats."""
        return self.statistics.entropy

    @cached_property
    def visible(self) -> Tensor:
        """[M] int64: how many keys each query may see."""
        return self.view.visible()[0, 0]

    @cached_property
    def received(self) -> Tensor:
        """[N]: what each key receives from all queries together."""
        return self.view.received()[0, 0]

    def row_words(self, rule: Cut = "punctuation") -> tuple[Word, ...]:
        """The words on the rows, as ranges of rows; rule is a `tokens.Cut`."""
        return words(self.rows, self.row_axis.text, rule)

    def col_words(self, rule: Cut = "punctuation") -> tuple[Word, ...]:
        """The words on the columns, as ranges of columns; rule is a `tokens.Cut`."""
        return words(self.cols, self.col_axis.text, rule)

    def word_weights(self, rule: Cut = "punctuation", cols: Cut | None = None, *, budget: int = BUDGET) -> Tensor:
        """Word-level map: to a word the sum over its tokens, from a word their mean (see `tokens.to_words`).

        rule is "punctuation", "whitespace", the words in order or their character ranges; cols is that of the columns
        where they stand for another text.
        """
        rows, others = self.row_words(rule), self.col_words(rule if cols is None else cols)
        return to_words(self.weights(budget=budget), rows, others)

    def links(self, count: int = 10, *, rows: Sequence[int] | None = None) -> pd.DataFrame:
        """The `count` strongest links, of the whole map or of some rows: row, column, weight, strongest first."""
        from .analysis.links import strongest_links

        check_whole("count", count)
        check_numbers("rows", rows)
        return strongest_links(self, count, rows)
