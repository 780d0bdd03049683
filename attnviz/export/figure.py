"""A view of a trace as something to export: its chart, and the exact numbers behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from .. import charts
from ..arguments import check_whole, refuse
from ..charts.sources import check_trace
from ..errors import UsageError
from ..head import Head
from ..tokens import Cut
from ..trace import Trace
from ..variants import by_words, share_kept, without_special
from ..viewer import map_page
from . import data, lessons, shuffling
from .lines import lines_page

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class View:
    """A way to look: of one head, of the whole trace, or of either (`of` is "head", "trace" or "both").

    chart makes pictures, numbers what JSON holds, table the rows of CSV, and page the HTML of views that have one of
    their own.
    """

    of: str
    chart: Callable[..., Any] | None
    numbers: Callable[..., dict[str, Any]] | None
    table: Callable[..., pd.DataFrame] | None
    page: Callable[..., str] | None = None


VIEWS = {
    "heatmap": View("head", charts.heatmap, data.heatmap, data.heatmap_table),
    "heads": View("trace", charts.head_grid, data.heads, data.heads_table),
    "entropy": View("both", charts.entropy, data.entropy, data.entropy_table),
    "links": View("head", charts.links, data.links, data.links_table),
    "thumbnails": View("trace", charts.thumbnails, data.thumbnails, data.thumbnails_table),
    "scaling": View("head", charts.scaling, data.scaling, data.scaling_table),
    "map": View("head", charts.heatmap, data.heatmap, data.heatmap_table, map_page),
    "gradients": View(
        "head",
        lessons.gradients_chart,
        lessons.gradients_numbers,
        lessons.gradients_table,
    ),
    "mask": View("head", lessons.mask_chart, data.as_records("cells", lessons.mask_table), lessons.mask_table),
    "one-or-many": View("head", lessons.many_chart, data.as_records("heads", lessons.one_or_many), lessons.one_or_many),
    "order": View(
        "head", shuffling.order_chart, data.as_records("cells", shuffling.order_table), shuffling.order_table
    ),
    "cost": View("head", lessons.cost_chart, data.as_records("lengths", lessons.costs), lessons.costs),
    "lines": View("trace", None, None, None, lines_page),
}
"""The views by name."""


@dataclass(frozen=True)
class Figure:
    """One view of a trace or of one of its heads. options go to its chart, page_options to its page, and what chooses
    the numbers (choice) to the chart, the document and the table."""

    name: str
    source: Trace | Head
    options: dict[str, Any] = field(default_factory=dict)
    page_options: dict[str, Any] = field(default_factory=dict)
    choice: dict[str, Any] = field(default_factory=dict)

    def chart(self, width: int | None = None) -> Any:
        """The altair chart without a theme, laid out for `width` pixels."""
        return self._make("chart")(self.source, **self.options, **self.choice, theme=None, width=width)

    def page(self, theme: str) -> str | None:
        """The HTML of a view that has a page of its own, else None."""
        page = VIEWS[self.name].page
        return None if page is None else page(self.source, **self.page_options, theme=theme)

    def document(self) -> dict[str, Any]:
        """Everything behind the figure, ready for JSON: view, model, place, tokens, numbers."""
        return {**data.about(self.name, self.source), **self._make("numbers")(self.source, **self.choice)}

    def table(self) -> pd.DataFrame:
        """The numbers behind the figure, one row per mark, with model, layer and head."""
        table: pd.DataFrame = self._make("table")(self.source, **self.choice)
        place = {name: value for name, value in data.place(self.source).items() if name not in table}
        for at, (name, value) in enumerate(place.items()):
            table.insert(at, name, value)
        return table

    def _make(self, what: str) -> Callable[..., Any]:
        made: Callable[..., Any] | None = getattr(VIEWS[self.name], what)
        if made is None:
            raise UsageError(f"the view {self.name} is a page: choose the format html")
        return made


SPECIAL = ("shown", "hidden", "renormalised")
"""What may happen to special tokens: renormalised means hidden, with each row divided by what is left of it."""


def figure(
    trace: Trace,
    view: str = "heatmap",
    layer: int | None = None,
    head: int | None = None,
    *,
    column: str | None = None,
    shared: bool = False,
    normalised: bool = False,
    words: bool | Cut = False,
    special: str = "shown",
    region: tuple[int, int] | None = None,
    count: int | None = None,
    query: int | None = None,
    table: pd.DataFrame | None = None,
    shuffled: shuffling.Both | None = None,
) -> Figure:
    """A view of a trace. Views of a head take the first layer and head 0 where none is named.

    - `entropy` shows all heads, or the queries of one head where layer or head is given.
    - column: what `heads` is coloured by.
    - shared: one scale of colours for all `thumbnails`.
    - normalised: `entropy` divided by the most there could be.
    - words (True, or a `tokens.Cut`) and special (see `SPECIAL`): for `heatmap` and `map`.
    - region: the row and column where the 1,024 queries and keys begin that the html of a `map` holds at full
      resolution; of all others it holds coarser levels.
    - count: how many `links` there are (40).
    - query: the position that `gradients` are of and that `scaling` shows first (the last that is no special token).
    - table: stands in for `trace.heads()` in `heads`, with further columns.
    - shuffled: what `order` shows, from `attnviz.export.shuffling`.
    """
    check_trace(trace)
    check_view(view)
    asked = {"column": column, "shared": shared, "normalised": normalised, "words": words, "special": special}
    choice = {"count": count, "query": query, "table": table, "shuffled": shuffled}
    choice = {name: value for name, value in choice.items() if value is not None}
    check_options(view, **asked, region=region, count=count, query=query)
    for name, value, of in (("table", table, "heads"), ("shuffled", shuffled, "order")):
        if value is not None and view != of:
            raise UsageError(f"{name} is for the view {of}, not for {view}")
    if view == "order" and shuffled is None:
        raise UsageError("the view order runs the model again: give what attnviz.export.shuffling finds as shuffled=")
    options = {
        name: value for name, value in (("column", column), ("shared", shared), ("normalised", normalised)) if value
    }
    named = layer is not None or head is not None
    if VIEWS[view].of == "trace" and named:
        raise UsageError(f"the view {view} shows all heads: leave out layer and head")
    if VIEWS[view].of == "trace" or (VIEWS[view].of == "both" and not named):
        return Figure(view, trace, options, choice=choice)
    if layer is None:
        layer = trace.layers[0] if trace.layers else 0
    page_options = {} if region is None else {"at": region}
    return Figure(view, _as_wanted(trace[layer, head or 0], words, special), options, page_options, choice)


def _as_wanted(head: Head, words: bool | Cut, special: str) -> Head:
    """The head word by word, or without special tokens."""
    if words:
        head = by_words(head, "punctuation" if words is True else words)
    if special == "shown":
        return head
    return without_special(head, share_kept(head) if special == "renormalised" else None)


OPTIONS = {
    "column": ("heads",),
    "shared": ("thumbnails",),
    "normalised": ("entropy",),
    "words": ("heatmap", "map"),
    "special": ("heatmap", "map"),
    "region": ("map",),
    "count": ("links",),
    "query": ("scaling", "gradients"),
}
"""The views that an option is for."""


def check_options(view: str, **options: Any) -> None:
    """UsageError for an option that the view does not have, or that there is not."""
    if options.get("special") not in (None, *SPECIAL):
        raise UsageError(f"special must be one of {', '.join(SPECIAL)}, got {options['special']!r}")
    for name, value in options.items():
        if not (value is None or value is False or value == "shown") and view not in OPTIONS[name]:
            raise UsageError(f"{name} is for the view {' or '.join(OPTIONS[name])}, not for {view}")
    for name, least in (("count", 1), ("query", 0)):
        if options.get(name) is not None:
            check_whole(name, options[name], least)
    _check_region(options.get("region"))


def _check_region(region: Any) -> None:
    """UsageError unless it is None or a row and a column."""
    if region is not None and not (isinstance(region, Sequence) and [*map(type, region)] == [int, int]):
        raise refuse("region", "a row and a column, such as (4000, 6000)", region)


def check_view(view: str, kind: str = "html") -> None:
    """UsageError unless there is such a view and it can have that format."""
    if view not in VIEWS:
        raise UsageError(f"view must be one of {', '.join(VIEWS)}, got {view!r}")
    if VIEWS[view].chart is None and kind != "html":
        raise UsageError(f"the view {view} is a page: choose the format html, not {kind}")
