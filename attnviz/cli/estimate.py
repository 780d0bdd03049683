"""`attnviz estimate`: what attention of a model takes at a length."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from . import output


def register(app: typer.Typer) -> None:
    """Add `estimate` to the application."""
    app.command(epilog="Example: attnviz estimate smollm2 --length 32768")(estimate)


def estimate(
    model: Annotated[str, typer.Argument(help="Bundled name, folder, GGUF file or hub id.")],
    length: Annotated[int, typer.Option(min=1, help="Tokens in the text.")],
    as_json: Annotated[bool, typer.Option("--json", help="Bytes, for machines.")] = False,
) -> None:
    """What eager attention and attnviz need for a model at a length; the weights are not read."""
    from ..estimate import estimate as estimate_of
    from ..estimate import most_tokens, readable, shape_of
    from ..models import load_config
    from ..numbers import many
    from ..tokens import printable

    config = load_config(model)
    shape = shape_of(config)
    result = estimate_of(shape, length)
    if as_json:
        output.as_json({"model": model} | asdict(shape) | asdict(result))
        return
    rows = (
        ("one head's map, float16", result.map_fp16),
        ("one head's map, float32", result.map_fp32),
        (f"eager, all {shape.calls} x {shape.heads} maps, float16", result.eager_fp16),
        (f"eager, all {shape.calls} x {shape.heads} maps, float32", result.eager_fp32),
        ("attnviz: query, key, logsumexp, statistics, float32", result.attnviz),
    )
    limit = most_tokens(config)
    output.table(("for one text", many(length, "token")), [(name, readable(size)) for name, size in rows])
    if limit is not None and length > limit:
        output.console().print(f"{printable(model)} itself reads {many(limit, 'token')} at most")
