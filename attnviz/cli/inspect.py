"""`attnviz inspect`: the heads of a model on a text, in the terminal or for machines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from . import output
from .source import File, Head, Kind, Layer, Model, Text, trace_of

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Trace

_HEADS = ("layer", "head", "entropy", "largest", "distance", "own", "previous", "next", "first", "special")
"""Columns of the heads that fit a terminal; --json and --csv have all."""
_LINKS = ("row", "column", "from", "to", "weight")


def register(app: typer.Typer) -> None:
    """Add `inspect` to the application."""
    app.command(epilog='Example: attnviz inspect minilm "The bank of the river." --layer 2 --head 5')(inspect)


def inspect(
    model: Model,
    text: Text = None,
    file: File = None,
    layer: Layer = None,
    head: Head = None,
    kind: Kind = None,
    top: Annotated[
        int | None, typer.Option(min=1, help="How many of the head's strongest links.", show_default="10")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Everything as one JSON document.")] = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="The heads, or the links of a head, as CSV.")] = False,
) -> None:
    """Look at the heads of a model; with --layer and --head, at the strongest links of one."""
    if as_json and as_csv:
        raise UsageError("choose --json or --csv, not both")
    if head is not None and layer is None:
        raise UsageError(f"head {head} of which layer? give --layer as well")
    if top is not None and head is None:
        raise UsageError("--top counts the links of one head: give --layer and --head as well")
    trace = trace_of(model, text, file, kind)
    heads = _heads(trace, layer)
    links = None if layer is None or head is None else trace[layer, head].links(top or 10)
    if as_json:
        output.as_json(_document(trace, heads, layer, head, links))
    elif as_csv:
        output.as_csv(heads if links is None else links)
    else:
        _show(trace, heads, layer, head, links)


def _heads(trace: Trace, layer: int | None) -> pd.DataFrame:
    """The table of heads, of one layer if it is named."""
    if layer is not None:
        trace.record(layer)  # refuses a layer that is not there
    table = trace.heads()
    return table if layer is None else table[table["layer"] == layer]


def _document(
    trace: Trace, heads: pd.DataFrame, layer: int | None, head: int | None, links: pd.DataFrame | None
) -> dict[str, Any]:
    from ..export.data import about, records

    document = {**about("heads", trace), "heads": records(heads)}
    if links is not None:
        document |= {"layer": layer, "head": head, "links": records(links)}
    return document


def _show(trace: Trace, heads: pd.DataFrame, layer: int | None, head: int | None, links: pd.DataFrame | None) -> None:
    from ..numbers import many
    from ..tokens import printable

    console = output.console()
    count = sum(trace.head_count(number) for number in trace.layers)
    parts = many(len(trace.layers), "layer"), many(count, "head"), many(len(trace.tokens), "token")
    console.print(f"{printable(trace.model)}: {', '.join(parts)}")
    console.print()
    output.frame(heads, _HEADS)
    if links is not None:
        console.print()
        console.print(f"The strongest links of layer {layer}, head {head}:")
        output.frame(links, _LINKS)
