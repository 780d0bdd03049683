"""One annotated text in detail: what one head answers, as arcs; for `attnviz coref` and `deps`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from ..errors import DataError, UsageError
from .results import tell
from .source import working

if TYPE_CHECKING:
    from ..analysis.documents import Document
    from ..analysis.windows import Window
    from ..charts import Arc

Item = TypeVar("Item")
DocumentNumber = Annotated[
    int | None, typer.Option("--document", min=0, help="Of that head: which text, counted from 0.", show_default="0")
]
SentenceNumber = Annotated[
    int | None,
    typer.Option("--sentence", min=0, help="Of that head: which sentence, counted from 0.", show_default="0"),
]


def place_of(layer: int | None, head: int | None, **others: Any) -> tuple[int, int] | None:
    """The head that is named, or None. UsageError for options (name=value) that need one and have none."""
    if (layer is None) != (head is None):
        raise UsageError("one head is named by --layer and --head: give both, or neither")
    if layer is not None and head is not None:
        return layer, head
    for name, value in others.items():
        if value is not None:
            raise UsageError(f"--{name} is about one head: give --layer and --head as well")
    return None


def every_head_only(**options: Any) -> None:
    """UsageError for options that are about all heads where one is named."""
    for name, value in options.items():
        if value:
            raise UsageError(f"--{name.replace('_', '-')} is about every head: leave out --layer and --head")


def coreference_text(
    window: Window, kind: str, place: tuple[int, int], *, as_json: bool, top: int, path: Path | None
) -> None:
    """Tell which word one head answers for every mention that has an antecedent."""
    from ..analysis.answers import answer_of, asked
    from ..charts.annotated import coreference_arcs, mention_marks

    window.trace[place]  # refuses a head that is not there
    queries = asked(window)
    if not queries:
        raise DataError(
            f"no mention has an antecedent in what is drawn of {window.document.name}: choose another --document,"
            " or a longer --window"
        )
    answers = [answer_of(window, query, kind, *place) for query in queries]
    marks, drawn = mention_marks(window.document), coreference_arcs(window, queries, answers)
    _tell(window, drawn, marks, place, "", as_json=as_json, top=top, path=path)


def dependency_text(
    window: Window, direction: str, place: tuple[int, int], *, as_json: bool, top: int, path: Path | None
) -> None:
    """Tell which word one head answers for every arc of a sentence."""
    from ..charts.annotated import dependency_arcs

    window.trace[place]  # refuses a head that is not there
    drawn = dependency_arcs(window, *place, direction)
    _tell(window, drawn, {}, place, direction, as_json=as_json, top=top, path=path)


def _tell(
    window: Window, drawn: Sequence[Arc], marks: dict[int, str], place: tuple[int, int], direction: str, **told: Any
) -> None:
    from ..charts import arcs, titles
    from ..charts.annotated import arc_table

    title = titles.answers(*place, window.trace.model, direction)
    chart = lambda: arcs(window.document.words, drawn, marks, title)  # noqa: E731
    tell(arc_table(drawn), **told, chart=chart, about=title["text"])


def window_of(model: str, document: Document, network: Any, tokenizer: Any, size: int, start: bool) -> Window:
    """The first sentences of a text that fit, with their trace, which figures call by the model's name."""
    from ..analysis.windows import windows

    with working("Reading the text"):
        window = next(windows(document, network, tokenizer, size, start=start))
    window.trace.model = model
    return window


def nth(items: Sequence[Item], number: int | None, what: str) -> Item:
    """One of the texts, the first if None; UsageError for one that is not there."""
    if (number or 0) >= len(items):
        raise UsageError(f"{what} {number or 0} does not exist: there are {len(items)}, counted from 0")
    return items[number or 0]
