"""Where a command's trace comes from: a trace file, or a model and a text."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .results import counted

if TYPE_CHECKING:
    import pandas as pd

    from ..tokens import Cut
    from ..trace import Trace

Model = Annotated[str, typer.Argument(help="Bundled name, folder, GGUF file, hub id, a trace file (.attn), or toy.")]
NetworkName = Annotated[str, typer.Argument(help="Bundled name, folder, GGUF file or hub id.")]
Text = Annotated[str | None, typer.Argument(help="The text; - reads it from standard input.", show_default=False)]
File = Annotated[Path | None, typer.Option(help="Read the text from a file (UTF-8).", show_default=False)]
Layer = Annotated[int | None, typer.Option(min=0, help="Layer, counted from 0.", show_default=False)]
Head = Annotated[int | None, typer.Option(min=0, help="Head of the layer, counted from 0.", show_default=False)]
Kind = Annotated[
    str | None, typer.Option(help="encoder, decoder or cross, for models that have them.", show_default=False)
]

TOY = "toy"
"""The example of the walkthrough, in place of a model."""


def trace_of(model: str, text: str | None, file: Path | None, kind: str | None, keep: str = "qk") -> Trace:
    """The trace of a file, or of one pass of a model over the text, keeping what `record` calls `keep`."""
    if Path(model).is_file() and not model.endswith((".attn", ".gguf")):
        raise UsageError(f"{model} is neither a trace (.attn) nor a model (a folder or .gguf): give one of those")
    if model == TOY:
        trace = _toy(text, file)
    else:
        trace = _saved(model, text, file) if model.endswith(".attn") else _recorded(model, text_of(text, file), keep)
    if kind is not None:
        return trace.only(kind)
    if len(trace.kinds) > 1:
        raise UsageError(f"this model has several kinds of attention: give --kind {', '.join(trace.kinds)}")
    return trace


def _toy(text: str | None, file: Path | None) -> Trace:
    from ..export.lessons import toy

    if text is not None or file is not None:
        raise UsageError(f"{TOY} is an example that brings its own text: leave out the text")
    return toy()


def _saved(path: str, text: str | None, file: Path | None) -> Trace:
    from ..storage import load

    if text is not None or file is not None:
        raise UsageError(f"{path} is a trace and brings its own text: leave out the text")
    return load(path)


def _recorded(model: str, text: str, keep: str) -> Trace:
    from ..models import load_reader
    from ..recording import inspect

    if not text.strip():
        raise UsageError("the text is empty: give it as an argument, with --file, or through a pipe")
    loaded = load_reader(model)
    with working(f"Recording {model}"):
        trace = inspect(loaded, text, keep=keep)
    trace.model = model
    return trace


def text_of(text: str | None, file: Path | None) -> str:
    """The text of the argument, of the file, or from standard input."""
    if text is not None and file is not None:
        raise UsageError("give the text as an argument or with --file, not both")
    if file is not None:
        return _read(file)
    if text is not None and text != "-":
        return text
    if text is None and sys.stdin.isatty():
        raise UsageError("there is no text: give it as an argument, with --file, or through a pipe")
    return sys.stdin.read().removeprefix("\ufeff")


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UsageError(f"{file} is not UTF-8 text: save it as UTF-8") from error
    except OSError as error:
        raise UsageError(f"{file} cannot be read ({error.strerror}): name a text file") from error


def repeated(model: str) -> pd.DataFrame:
    """What every head of a model does on random tokens that repeat."""
    from ..analysis.roles import prefix_matching
    from ..models import load_reader

    with counted("Repeated random tokens") as progress:
        return prefix_matching(*load_reader(model), progress=progress)


def pair_of(option: str, text: str) -> tuple[int, int]:
    """Layer and head of a pair such as 4.9."""
    layer, dot, head = text.partition(".")
    if not dot or not layer.isdigit() or not head.isdigit():
        raise UsageError(f'{option} takes layer.head pairs such as "4.9 5.0", got {text!r}')
    return int(layer), int(head)


def cut_of(text: str) -> Cut:
    """Where words end, as an option says it: the name of a rule, or the words themselves with | between them."""
    from ..tokens import WORD_RULES

    return text if text in WORD_RULES else [word.strip() for word in text.split("|")]


@contextmanager
def working(what: str) -> Iterator[None]:
    """Show on a terminal that something takes its time."""
    from ..models.progress import progress_bar

    with progress_bar() as progress:
        progress.add_task(what, total=None)
        yield
