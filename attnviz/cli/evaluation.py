"""`attnviz coref`, `deps` and `align`: heads scored against annotated text."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from . import output as out
from .results import Json, Output, counted, tell

Data = Annotated[Path, typer.Argument(help="A file, or a folder of files.")]
NetworkName = Annotated[str, typer.Argument(help="Bundled name, folder, GGUF file or hub id.")]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog="Example: attnviz coref minilm texts/ --candidates 'preceding mention'")(coref)
    app.command(epilog="Example: attnviz deps minilm en_ewt-ud-dev.conllu")(deps)
    app.command(epilog='Example: attnviz align FOLDER "ein Haus" "a house" "0-0 1-1"')(align)


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
    top: Annotated[int, typer.Option(min=1, help="Heads to print.")] = 10,
    random_weights: Annotated[bool, typer.Option(help="Score a copy with random weights beside it.")] = False,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Which heads find the antecedent of a mention, beside what simple rules find."""
    from ..analysis.antecedents import CANDIDATES
    from ..analysis.coreference import coreference
    from ..analysis.readers import read
    from ..charts import score_grid
    from ..models import load_model

    if candidates not in CANDIDATES:
        raise UsageError(f"--candidates must be one of {', '.join(CANDIDATES)}, got {candidates!r}")
    documents = read(data, format)
    network, tokenizer = load_model(model)
    with counted(f"Reading {len(documents)} documents") as progress:
        found = coreference(documents, network, tokenizer, window=window, progress=progress)
    table = found.table(candidates)
    if not as_json:
        out.console().print(f"Share of {table['n'][0]} mentions whose antecedent is found, among any {candidates}:")
    title = f"Antecedents found among any {candidates}"
    tell(table, as_json=as_json, top=top, path=output, chart=lambda: score_grid(table, "accuracy", title))
    if as_json:
        return
    tell(found.baselines(candidates), as_json=False, about="\nRules over the same candidates:")
    if len(documents) > 1:
        tell(found.best(candidates), as_json=False, about="\nThe best head of one half, on the other (95 % interval):")
    best = table.iloc[0]
    place = int(best["layer"]), int(best["head"])
    tell(found.split(*place, candidates), as_json=False, about=f"\nLayer {place[0]} head {place[1]} in parts:")
    if random_weights:
        from ..analysis.windows import randomised

        with counted("The same with random weights") as progress:
            control = coreference(documents, randomised(network), tokenizer, window=window, progress=progress)
        tell(control.table(candidates), as_json=False, top=3, about="\nBest heads of a copy with random weights:")


def deps(
    model: NetworkName,
    data: Data,
    minimum: Annotated[int, typer.Option(min=2, help="Leave out relations with fewer arcs.")] = 50,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """For every relation the head that finds it best, scored where it was not chosen, beside the best fixed offset."""
    from ..analysis.dependencies import dependencies
    from ..analysis.readers import read
    from ..models import load_model

    documents = read(data, "conllu")
    network, tokenizer = load_model(model)
    with counted("Reading sentences") as progress:
        found = dependencies(documents, network, tokenizer, progress=progress)
    tell(found.table(minimum), as_json=as_json, path=output)


def align(
    model: NetworkName,
    source: Annotated[str, typer.Argument(help="The source sentence.")],
    target: Annotated[str, typer.Argument(help="Its translation.")],
    links: Annotated[str, typer.Argument(help='Gold links between words, source first: "0-0 1-2", 3p4 for possible.')],
    moment: Annotated[str, typer.Option(help="Which row speaks for a token: producing or produced.")] = "producing",
    top: Annotated[int, typer.Option(min=1, help="Rows to print.")] = 15,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """Alignment error rate of every cross-attention head of an encoder-decoder model; head -1 is a layer's mean."""
    import torch

    from ..analysis.alignment import alignment, parse_links
    from ..models import load_model
    from ..recording import record
    from ..tokens import from_ids, words

    gold = parse_links(links)
    network, tokenizer = load_model(model)
    if not getattr(network.config, "is_encoder_decoder", False):
        raise UsageError(f"{model} has no cross attention: give an encoder-decoder model")
    inputs = tokenizer(source, text_target=target, return_tensors="pt")
    labels = inputs.pop("labels")
    with torch.inference_mode(), record(network, tokenizer=tokenizer) as trace:
        network(**inputs, labels=labels)
    ours = words(from_ids(tokenizer, labels[0].tolist(), target), target, "whitespace")
    theirs = words(from_ids(tokenizer, inputs["input_ids"][0].tolist(), source), source, "whitespace")
    chosen = [[word for word in found if not word.special] for found in (ours, theirs)]
    tell(alignment(trace.cross, gold, *chosen, moment=moment), as_json=as_json, top=top, path=output)
