"""`attnviz models`: list, fetch and remove the models kept on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError
from . import output

models = typer.Typer(
    help="List the models that need no hub, and those in the cache.",
    epilog="Example: attnviz models fetch minilm",
    invoke_without_command=True,
)


def register(app: typer.Typer) -> None:
    """Add `models` to the application."""
    app.add_typer(models, name="models")


@models.callback()
def show(context: typer.Context) -> None:
    """List the models that need no hub, and those in the cache."""
    if context.invoked_subcommand is None:
        output.table(("name", "on disk", "layers x heads", "what it is"), _rows())


@models.command(epilog="Example: attnviz models fetch --all")
def fetch(
    name: Annotated[str | None, typer.Argument(help="minilm or smollm2.", show_default=False)] = None,
    everything: Annotated[bool, typer.Option("--all", help="Fetch every bundled model.")] = False,
) -> None:
    """Download a bundled model into the cache, unless it is there."""
    from ..models import BUNDLED, fetch

    if everything == (name is not None):
        raise UsageError("name one model to fetch, or give --all")
    for wanted in BUNDLED if everything else (str(name),):
        print(f"{wanted}: {fetch(wanted)}")


@models.command(epilog="Example: attnviz models remove smollm2")
def remove(name: Annotated[str, typer.Argument(help="A name that attnviz models lists.")]) -> None:
    """Delete a model from the cache."""
    from ..models import BUNDLED, remove

    remove(BUNDLED[name].folder if name in BUNDLED else name)


def _rows() -> list[tuple[str, str, str, str]]:
    from ..estimate import readable
    from ..models import BUNDLED, cached

    kept = {model.name: model for model in cached()}
    rows = []
    for model in BUNDLED.values():
        here = kept.pop(model.folder, None)
        size = readable(here.bytes) if here else "not fetched"
        rows.append((model.name, size, f"{model.layers} x {model.heads}", model.summary))
    for other in kept.values():
        rows.append((other.name, readable(other.bytes), _grid(other.folder), "converted from a GGUF file"))
    return rows


def _grid(folder: Path) -> str:
    from ..estimate import shape_of
    from ..models import load_config

    shape = shape_of(load_config(folder))
    return f"{shape.calls} x {shape.heads}"
