"""`attnviz heads`, `roles`, `rollout`, `compare` and `sparsity`: what a trace says about its heads."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .results import Json, Output, TableOutput, Top, counted, tell, write
from .source import File, Head, Kind, Layer, Model, Text, pair_of, text_of, trace_of
from .source import repeated as repeated_tokens

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Trace

LOCAL = 6
"""Tokens that the role local needs: in fewer no head can look 5 tokens away."""
Token = Annotated[int, typer.Option(help="Position of the token; -1 is the last.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog='Example: attnviz heads minilm "The bank of the river." --sort previous')(heads)
    app.command(epilog='Example: attnviz roles smollm2 "The bank of the river." --repeated')(roles)
    app.command(epilog='Example: attnviz rollout smollm2 "The bank of the river was muddy."')(rollout)
    app.command(epilog='Example: attnviz compare minilm "The bank." "The mill." --layer 2 --head 4 -o c.svg')(compare)
    app.command(epilog="Example: attnviz sparsity smollm2 --file text.txt --layer 5 --head 3")(sparsity)


def heads(
    model: Model,
    text: Text = None,
    file: File = None,
    kind: Kind = None,
    layer: Layer = None,
    head: Head = None,
    lines: Annotated[
        bool, typer.Option("--lines", help="Every line is a text: means over texts, and standard errors.")
    ] = False,
    sort: Annotated[str | None, typer.Option(help="Column to sort by, largest first.", show_default="entropy")] = None,
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """The table of heads, by any column: entropy, distance, weight on previous, first, special tokens ...

    With --layer and --head row by row: the same columns for every token that the head looks from.
    """
    from ..analysis.heads import head_rows
    from ..charts import score_grid, titles
    from ..charts.grid import COLUMNS

    if layer is not None or head is not None:
        if layer is None or head is None or lines:
            raise UsageError("row by row takes --layer and --head, and one text")
        if sort is not None:
            raise UsageError("rows stand in the order of the text: leave out --sort, or --layer and --head")
        tell(head_rows(trace_of(model, text, file, kind), layer, head), as_json=as_json, top=top, path=output)
        return
    sort = sort or "entropy"
    table = over_lines(model, text_of(text, file), kind) if lines else trace_of(model, text, file, kind).heads()
    if sort not in table or sort in ("layer", "head"):
        names = ", ".join(str(name) for name in table if name not in ("layer", "head"))
        raise UsageError(f"--sort must be one of {names}, got {sort!r}")
    table = table.sort_values(sort, ascending=False, kind="stable", ignore_index=True)
    title = {"text": f"Every head's {COLUMNS.get(sort, sort)}", "subtitle": titles.source(model)}
    tell(table, as_json=as_json, top=top, path=output, chart=lambda: score_grid(table, sort, title))


def over_lines(model: str, text: str, kind: str | None) -> pd.DataFrame:
    """The table of heads over the lines of a text, each read by itself."""
    from ..analysis.heads import heads_of_texts
    from ..models import load_reader
    from ..recording import inspect

    texts = [line for line in text.splitlines() if line.strip()]
    loaded = load_reader(model)
    with counted("Reading texts") as progress:

        def traces() -> Iterator[Trace]:
            for done, line in enumerate(texts, 1):
                found = inspect(loaded, line)
                yield found if kind is None else found.only(kind)
                progress(done, len(texts))

        return heads_of_texts(traces())


def roles(
    model: Model,
    text: Text = None,
    file: File = None,
    repeated: Annotated[
        bool, typer.Option(help="Also run repeated random tokens, for induction and duplicate-token heads.")
    ] = False,
    top: Annotated[int, typer.Option(min=1, help="Heads to print for each role.")] = 5,
    as_json: Json = False,
    output: TableOutput = None,
) -> None:
    """Heads that do something recognisable, with score, threshold and source; a score is no proof of use."""
    from ..analysis.roles import has_offsets, positional
    from ..analysis.roles import roles as roles_of

    trace = trace_of(model, text, file, None)
    if len(trace.tokens) < 2:
        raise UsageError("roles need a text of at least 2 tokens, this one has 1: every head looks at it alone")
    short = len(trace.tokens) < LOCAL
    scores = trace.heads().drop(columns="distance" if short else [], errors="ignore")
    if has_offsets(trace):
        scores = scores.merge(positional(trace), on=["layer", "head"])
    if repeated:
        scores = scores.merge(repeated_tokens(model), on=["layer", "head"])
    found = roles_of(scores)
    shown = found if as_json else found.groupby("role", sort=False).head(top)
    left_out = f" (local left out, it needs {LOCAL} tokens)" if short else ""
    about = f"{len(found)} times a head passes a role's threshold{left_out}; the strongest {top} of each role:"
    if output is not None:
        write(found, output, None)
    tell(shown, as_json=as_json, about=about)


def rollout(
    model: Model,
    text: Text = None,
    file: File = None,
    kind: Kind = None,
    token: Token = -1,
    method: Annotated[
        str,
        typer.Option(help="rollout (to the token), reach (where its input ends up) or flow (to it; short texts)."),
    ] = "rollout",
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """What one token's last state is made of, by attention rollout: possible paths, not what was used."""
    from ..analysis import flow
    from ..charts import titles, token_bars

    methods: dict[str, Callable[[Trace, int], flow.Flow]] = {
        "rollout": flow.rollout,
        "reach": flow.reach,
        "flow": flow.flow,
    }
    if method not in methods:
        raise UsageError(f"--method must be one of {', '.join(methods)}, got {method!r}")
    trace = trace_of(model, text, file, kind)
    found = methods[method](trace, token)
    title = titles.flow(method, flow.place_of(trace, token), titles.source(trace.model, trace.text))
    chart = lambda: token_bars(found.tokens, found.scores.tolist(), title)  # noqa: E731
    tell(found.table(), as_json=as_json, top=top, path=output, chart=chart)


def compare(
    model: Model,
    text: Text = None,
    other: Annotated[str | None, typer.Argument(help="A text of as many tokens.", show_default="the same text")] = None,
    with_model: Annotated[
        str | None, typer.Option("--with", help="Another model, or trace (.attn), for the second.", show_default=False)
    ] = None,
    kind: Kind = None,
    layer: Layer = None,
    head: Head = None,
    second: Annotated[
        str | None, typer.Option(help="The head that it is compared with, such as 4.9.", show_default="the same head")
    ] = None,
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """How far every head's map moves between two texts, models or traces: mean Jensen-Shannon distance, 0 to 1.

    With --layer and --head one map: its rows, and as a figure the second less the first. Of one run, --second names the
    other head; without it every head is compared with this one.
    """
    from ..analysis.compare import compare_heads, distances, same_places, with_every
    from ..charts import difference, score_grid, titles

    if (layer is None) != (head is None):
        raise UsageError("one head is compared by --layer and --head: give both, or neither")
    place = None if layer is None or head is None else (layer, head)
    if second is not None and place is None:
        raise UsageError("--second is compared with one head: give --layer and --head as well")
    one_run = other is None and with_model is None
    if one_run and place is None:
        told = (
            "a trace is compared with another: give --with and a trace (.attn) or a model"
            if model.endswith(".attn")
            else "there is nothing to compare with: give a second text, or --with another model or trace"
        )
        raise UsageError(told)
    one, two = _pair(model, text, other, with_model, kind)
    if place is not None and (second is not None or not one_run):
        found = compare_heads(one[place], two[place if second is None else pair_of("--second", second)])
        drawn = lambda: difference(found.one, found.other)  # noqa: E731
        about = f"layer {layer} head {head}: mean distance {found.mean:.3f}"
        tell(found.table(), as_json=as_json, top=top, path=output, chart=drawn, about=about)
        return
    with counted("Comparing heads") as progress:
        pairs = same_places(one, two) if place is None else with_every(one[place], one)
        table = distances(pairs, progress)
    chart = lambda: score_grid(table, "distance", titles.distances(place, pairs))  # noqa: E731
    tell(table, as_json=as_json, top=top, path=output, chart=chart)


def _pair(
    model: str, text: str | None, other: str | None, with_model: str | None, kind: str | None
) -> tuple[Trace, Trace]:
    """The two traces that are compared; the second reads the first one's text unless it has its own."""
    second = with_model or model
    if model.endswith(".attn") and text is not None:
        raise UsageError(f"{model} is a trace and brings its own text: compare it by --with another trace or a model")
    one = trace_of(model, text if model.endswith(".attn") else text_of(text, None), None, kind)
    if other is None and with_model is None:
        return one, one
    if not second.endswith(".attn"):
        other = one.text if other is None else other
    return one, trace_of(second, other, None, kind)


def sparsity(
    model: Model,
    text: Text = None,
    file: File = None,
    layer: Layer = None,
    head: Head = None,
    as_json: Json = False,
    output: TableOutput = None,
) -> None:
    """What a head would lose under local, streaming, top-k, block or linear attention."""
    from ..analysis.sparsity import head_value
    from ..analysis.sparsity import sparsity as sparsity_of

    trace = trace_of(model, text, file, None, keep="qkv")
    chosen = trace[layer if layer is not None else trace.layers[0], head or 0]
    table, about = sparsity_of(chosen), f"layer {chosen.layer} head {chosen.head}: mass kept, keys kept"
    if head_value(chosen) is None:
        table, about = table.drop(columns="error"), f'{about} (no values, so no error: record with keep="qkv")'
    else:
        about += ", error of the output"
    tell(table, as_json=as_json, about=about, path=output)
