"""`attnviz coref` and `deps`: heads scored against annotated text."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from ..numbers import many
from . import output as out
from .results import Json, Output, counted, tell, write
from .source import Head, Layer, NetworkName
from .texts import (
    DocumentNumber,
    SentenceNumber,
    coreference_text,
    dependency_text,
    every_head_only,
    nth,
    place_of,
    window_of,
)

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.coreference import Coreference

Data = Annotated[Path, typer.Argument(help="A file, or a folder of files.")]
Start = Annotated[
    bool, typer.Option("--start", help="Put the tokenizer's start token first where the tokenizer itself does not.")
]

FEW = 100
"""Below that many cases the best of many heads is luck; see docs/limits.md."""
SENTENCE = 126
"""Tokens of a sentence that are drawn."""


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog="Example: attnviz coref minilm texts/ --candidates 'preceding mention'")(coref)
    app.command(epilog="Example: attnviz deps minilm en_ewt-ud-dev.conllu --layer 2 --head 4 -o arcs.svg")(deps)


def coref(
    model: NetworkName,
    data: Data,
    format: Annotated[
        str | None, typer.Option(help="brackets, conll, conllu, gap or jsonlines.", show_default="by ending")
    ] = None,
    candidates: Annotated[
        str, typer.Option(help="What a head may choose: other|preceding word|mention.")
    ] = "preceding mention",
    window: Annotated[int, typer.Option(help="Tokens read together, in whole sentences.")] = 126,
    overlap: Annotated[int, typer.Option(help="Sentences that a window repeats from the one before.")] = 0,
    start: Start = False,
    top: Annotated[int, typer.Option(min=1, help="Heads to print.")] = 10,
    random_weights: Annotated[bool, typer.Option(help="Score a copy with random weights beside it.")] = False,
    layer: Layer = None,
    head: Head = None,
    document: DocumentNumber = None,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Which heads find the antecedent of a mention, beside what simple rules find.

    With --layer and --head one text, as a figure with arcs: what that head answers for every mention.
    """
    from ..analysis.antecedents import CANDIDATES
    from ..analysis.coreference import coreference
    from ..analysis.documents import check_clusters
    from ..analysis.readers import read
    from ..analysis.windows import randomised
    from ..charts import score_grid, titles
    from ..export import check_target
    from ..export.data import records
    from ..models import load_reader

    if candidates not in CANDIDATES:
        raise UsageError(f"--candidates must be one of {', '.join(CANDIDATES)}, got {candidates!r}")
    if output is not None:
        check_target(output, None)
    place = place_of(layer, head, document=document)
    documents = read(data, format)
    check_clusters(documents)
    network, tokenizer = load_reader(model)
    if place is not None:
        every_head_only(random_weights=random_weights, overlap=overlap)
        shown = window_of(model, nth(documents, document, "document"), network, tokenizer, window, start)
        coreference_text(shown, candidates, place, as_json=as_json, top=top, path=output)
        return

    def scored(network: Any, what: str) -> Coreference:
        with counted(what) as progress:
            options: dict[str, Any] = {"window": window, "overlap": overlap, "start": start}
            return coreference(documents, network, tokenizer, **options, progress=progress)

    found = scored(network, f"Reading {many(len(documents), 'document')}")
    tables = _tables(found, candidates)
    if random_weights:
        control = _tables(scored(randomised(network), "The same with random weights"), candidates)
        tables |= {f"{name}, random weights": control[name] for name in ("heads", "halves") if name in control}
    if output is not None:
        grid = lambda: score_grid(tables["heads"], "accuracy", titles.antecedents(candidates, model))  # noqa: E731
        write(tables["heads"], output, grid)
    if as_json:
        about = {"model": model, "candidates": candidates, "reading": found.reading}
        out.as_json(about | {name: records(table) for name, table in tables.items()})
        return
    if len(found.queries) < FEW:
        few = many(len(found.queries), "mention is", "mentions are")
        out.console().print(f"warning: {few} scored, below {FEW} do not trust a best head")
    out.console().print(f"{found.reading}.\nShare of them whose antecedent is found, among any {candidates}.")
    for name, table in tables.items():
        out.console().print(f"\n{TITLES[name]}:")
        out.frame(table if name in ("rules", "parts") else table.head(top))


TITLES = {
    "heads": "Heads",
    "rules": "Rules over the same candidates",
    "halves": "The best head of one half, on the other (95 % interval over documents)",
    "parts": "The best head in parts",
    "heads, random weights": "Heads of a copy with random weights",
    "halves, random weights": "The best head of one half, on the other, with random weights",
}
"""The tables of `attnviz coref`, by their names in its JSON."""


def _tables(found: Coreference, candidates: str) -> dict[str, pd.DataFrame]:
    heads = found.table(candidates)
    layer, head = int(heads["layer"][0]), int(heads["head"][0])
    tables = {"heads": heads, "rules": found.baselines(candidates)}
    if found.queries["document"].nunique() > 1:
        tables["halves"] = found.best(candidates)
    return tables | {"parts": found.split(layer, head, candidates)}


def deps(
    model: NetworkName,
    data: Data,
    minimum: Annotated[int, typer.Option(min=2, help="Leave out relations with fewer arcs.")] = 50,
    relation: Annotated[
        str | None, typer.Option(help='Every head on one relation, such as nsubj, or on "all".', show_default=False)
    ] = None,
    direction: Annotated[
        str | None, typer.Option(help="to head or to dependent.", show_default="both; of one head to head")
    ] = None,
    start: Start = False,
    layer: Layer = None,
    head: Head = None,
    sentence: SentenceNumber = None,
    top: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 40,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """For every relation the head that finds it best, scored where it was not chosen, beside the best fixed offset.

    With --layer and --head one sentence, as a figure with arcs: what that head answers for every word.
    """
    from ..analysis.answers import sentences
    from ..analysis.dependencies import DIRECTIONS, check_direction, dependencies
    from ..analysis.readers import read
    from ..charts import score_grid, titles
    from ..models import load_reader

    check_direction(direction)
    place = place_of(layer, head, sentence=sentence)
    if direction is not None and place is None and relation is None:
        raise UsageError("--direction is about one relation or one head: give --relation, or --layer and --head")
    documents = read(data, "conllu")
    network, tokenizer = load_reader(model)
    if place is not None:
        every_head_only(relation=relation)
        shown = window_of(model, nth(sentences(documents), sentence, "sentence"), network, tokenizer, SENTENCE, start)
        dependency_text(shown, direction or DIRECTIONS[0], place, as_json=as_json, top=top, path=output)
        return
    with counted("Reading sentences") as progress:
        found = dependencies(documents, network, tokenizer, start=start, progress=progress)
    heads = found.heads_on(relation or "all", direction)
    title = titles.arcs(relation or "all", direction, model)
    chart = lambda: score_grid(heads.drop_duplicates(["layer", "head"]), "accuracy", title)  # noqa: E731
    few = [name for name in found.relations(1) if name not in found.relations(minimum)]
    about = f"left out for fewer than {minimum} arcs (--minimum): {', '.join(few)}" if few and relation is None else ""
    table = found.table(minimum) if relation is None else heads
    tell(table, as_json=as_json, top=top, path=output, chart=chart, about=about)
