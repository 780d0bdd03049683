"""`attnviz export`: one view of a model on a text to a file."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .source import TOY, File, Head, Kind, Layer, Model, Text, cut_of, repeated, trace_of, working

if TYPE_CHECKING:
    from ..export.shuffling import Both
    from ..trace import Trace


def register(app: typer.Typer) -> None:
    """Add `export` to the application."""
    app.command(epilog='Example: attnviz export minilm "The bank of the river." -o bank.svg')(export)


def export(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="The file; its ending is the format.")],
    text: Text = None,
    file: File = None,
    view: Annotated[
        str,
        typer.Option(
            help="heatmap, heads, entropy, links, thumbnails, map or lines; of the walkthrough scaling, gradients,"
            " mask, order, one-or-many or cost."
        ),
    ] = "heatmap",
    layer: Layer = None,
    head: Head = None,
    kind: Kind = None,
    column: Annotated[
        str | None,
        typer.Option(
            help="What the view heads is coloured by: entropy, first, previous, ...; prefix_matching and duplicate also"
            " run the model on repeated random tokens.",
            show_default="entropy",
        ),
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="One scale of colours for all thumbnails.")] = False,
    normalised: Annotated[bool, typer.Option("--normalised", help="Entropy divided by ln(visible keys).")] = False,
    words: Annotated[bool, typer.Option("--words", help="Words in place of tokens, for maps.")] = False,
    cut: Annotated[
        str | None,
        typer.Option(
            help='Words cut at punctuation or whitespace, or your own in order: "New York|is big".',
            show_default="punctuation",
        ),
    ] = None,
    special: Annotated[str, typer.Option(help="Special tokens in maps: shown, hidden or renormalised.")] = "shown",
    region: Annotated[
        str | None,
        typer.Option(
            help="Where the 1,024 tokens of full resolution in the html of a map begin: row,column.",
            show_default="0,0",
        ),
    ] = None,
    count: Annotated[
        int | None, typer.Option(min=1, help="How many links the view links shows.", show_default="40")
    ] = None,
    query: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Position that the view gradients is of and the view scaling shows first.",
            show_default="the last that is no special token",
        ),
    ] = None,
    format: Annotated[
        str | None, typer.Option(help="svg, png, pdf, html, json, csv or parquet.", show_default="by ending")
    ] = None,
    theme: Annotated[str, typer.Option(help="screen, paper or dark.")] = "screen",
    width: Annotated[
        str | None, typer.Option(help="Of the whole figure, such as 85mm or 600px.", show_default="as needed")
    ] = None,
    dpi: Annotated[int, typer.Option(min=50, max=1200, help="Dots per inch of a PNG.")] = 200,
    font: Annotated[str | None, typer.Option(help="Font family.", show_default="Liberation Sans")] = None,
    font_dir: Annotated[Path | None, typer.Option(help="Folder of further fonts.", show_default=False)] = None,
) -> None:
    """Write a view to a file; json, csv and parquet hold the numbers behind it.

    Views of one head take layer 0, head 0 unless told.
    """
    from ..charts.grid import PROBED
    from ..charts.theme import theme_named
    from ..export import Look, check_options, check_target, check_view, figure, pixels
    from ..export import export as write
    from ..export.fonts import check_family
    from ..tokens import printable

    # everything that can be told before a model is loaded
    check_view(view, check_target(output, format))
    options: dict[str, Any] = {
        "column": column,
        "shared": shared,
        "normalised": normalised,
        "words": words if cut is None else cut_of(cut),
        "special": special,
        "region": None if region is None else _region(region),
        "count": count,
        "query": query,
    }
    check_options(view, **options)
    theme_named(theme)
    folders = () if font_dir is None else (font_dir,)
    if font is not None:
        check_family(font, folders)
    look = Look(theme, None if width is None else pixels(width), dpi, font, folders)
    reads_more = view == "order" or column in PROBED
    if reads_more and model.endswith(".attn"):
        raise UsageError(f"{column or view} runs the model on other texts: name the model in place of the trace")
    trace = trace_of(model, text, file, kind)
    if column in PROBED:
        options["table"] = trace.heads().merge(repeated(model), on=["layer", "head"], how="left")
    if view == "order":
        options["shuffled"] = _shuffled(model, trace, layer, head)
    shown = figure(trace, view, layer, head, **options)
    with warnings.catch_warnings(record=True) as told, working(f"Drawing {view}"):
        warnings.simplefilter("always")
        write(shown, output, format, look=look)
    for message in {str(warning.message): None for warning in told}:
        print("warning:", message, file=sys.stderr)
    print(printable(str(output)))


def _shuffled(model: str, trace: Trace, layer: int | None, head: int | None) -> Both:
    from ..export.shuffling import shuffled, shuffled_toy
    from ..models import load_model

    if model == TOY:
        return shuffled_toy(head or 0)
    place = (trace.layers[0] if layer is None else layer, head or 0)
    with working("Shuffling tokens"):
        return shuffled(*load_model(model), trace.text or "", place, model)


def _region(text: str) -> tuple[int, int]:
    found = re.fullmatch(r"\s*(\d+)\s*,\s*(\d+)\s*", text)
    if found is None:
        raise UsageError(f"--region takes a row and a column such as 4000,6000, got {text!r}")
    return int(found[1]), int(found[2])
