"""`attnviz align`: which cross-attention heads look from a word of the translation to its source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .results import Json, Output, tell
from .source import Head, Layer, Model, text_of, trace_of
from .texts import place_of

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.alignment import Gold
    from ..tokens import Word
    from ..trace import Trace

    Pair = tuple[Trace, list[Word], list[Word]]

VIEWS = ("matrix", "links")


def register(app: typer.Typer) -> None:
    """Add `align` to the application."""
    app.command(epilog='Example: attnviz align FOLDER "ein Haus" "a house" --gold "0-0 1-1"')(align)


def align(
    model: Model,
    source: Annotated[str | None, typer.Argument(help="The source sentence.", show_default=False)] = None,
    target: Annotated[
        str | None, typer.Argument(help="Its translation.", show_default="what the model writes itself")
    ] = None,
    gold: Annotated[
        str | None,
        typer.Option(help='Gold links between words, source first: "0-0 1-2", 3p4 for possible.', show_default=False),
    ] = None,
    moment: Annotated[str, typer.Option(help="Which row speaks for a token: producing or produced.")] = "producing",
    mutual: Annotated[bool, typer.Option("--mutual", help="Links that both words choose, in the figure.")] = False,
    layer: Layer = None,
    head: Head = None,
    view: Annotated[str | None, typer.Option(help="Of that head: matrix or links.", show_default="matrix")] = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 15,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Alignment error rate of every cross-attention head of an encoder-decoder model; head -1 is a layer's mean.

    With --layer and --head one head word by word, for which gold links are not needed.
    """
    from ..analysis.alignment import alignment, by_rate, check_links, parse_links
    from ..charts import score_grid, titles

    place = place_of(layer, head, view=view)
    if view not in (None, *VIEWS):
        raise UsageError(f"--view must be one of {', '.join(VIEWS)}, got {view!r}")
    links = None if gold is None else parse_links(gold)
    if links is None and place is None:
        raise UsageError("heads are scored against gold links: give --gold, or --layer and --head to see one head")
    pair = _pair(model, source, target)
    if links is not None:
        check_links(links, *pair[1:])
    if place is not None:
        table, title = _cells(pair, place, links, moment, mutual), titles.head(*place, titles.source(pair[0].model))
        tell(table, as_json=as_json, top=top, path=output, chart=_drawn(view, table, pair, title), about=title["text"])
        return
    assert links is not None
    table = alignment(pair[0], links, *pair[1:], moment=moment)
    heads, column, title = *by_rate(table, mutual), titles.alignment(moment, titles.source(pair[0].model))
    grid = lambda: score_grid(heads, column, title, low_is_best=True)  # noqa: E731
    tell(table, as_json=as_json, top=top, path=output, chart=grid)


def _pair(model: str, source: str | None, target: str | None) -> Pair:
    """Cross attention with target and source words, of a trace or of a model that reads both texts."""
    from ..analysis.alignment import read_pair, words_of
    from ..models import load_reader

    if target is not None and not model.endswith(".attn"):
        network, tokenizer = load_reader(model)
        if not getattr(network.config, "is_encoder_decoder", False):
            raise UsageError(f"{model} has no cross attention: give an encoder-decoder model")
        trace, targets, sources = read_pair(network, tokenizer, text_of(source, None), target)
        trace.model = model
        return trace, targets, sources
    trace = trace_of(model, source, None, "cross")
    pair = (trace, *words_of(trace))
    if not pair[1] or not pair[2]:
        raise UsageError("there are no words to align: the model wrote none, give a translation")
    return pair


def _cells(pair: Pair, place: tuple[int, int], gold: Gold | None, moment: str, mutual: bool) -> pd.DataFrame:
    from ..analysis.alignment import cells, word_map

    layer, head = place
    pair[0][place]  # refuses a head that is not there
    at = pair[0].record(layer).head_numbers.index(head)
    return cells(word_map(pair[0], layer, *pair[1:], moment)[at], gold, mutual)


def _drawn(view: str | None, table: pd.DataFrame, pair: Pair, title: Any) -> Any:
    from ..charts import alignment_links, alignment_matrix

    chart = alignment_links if view == "links" else alignment_matrix
    return lambda: chart(table, *pair[1:], title)
