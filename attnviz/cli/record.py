"""`attnviz record`: a trace to a file, to look at anywhere else."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import UsageError
from .source import File, Text, text_of, working

if TYPE_CHECKING:
    from ..trace import Trace

TYPES = ("float32", "float16", "bfloat16")


def register(app: typer.Typer) -> None:
    """Add `record` to the application."""
    app.command(epilog='Example: attnviz record smollm2 "The bank of the river" -o run.attn')(record)


def record(
    model: Annotated[str, typer.Argument(help="Bundled name, folder, GGUF file or hub id.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The trace file, ending in .attn.")],
    text: Text = None,
    file: File = None,
    generate: Annotated[int, typer.Option(min=0, help="Let the model write this many tokens after the text.")] = 0,
    layers: Annotated[
        str | None, typer.Option(help='Keep only these layers, such as "0 5 6".', show_default="all")
    ] = None,
    dtype: Annotated[str, typer.Option(help="Store queries and keys as float32, float16 or bfloat16.")] = "float32",
    statistics_only: Annotated[bool, typer.Option(help="Leave the weights out; keep the statistics.")] = False,
) -> None:
    """Record a model on a text and save the trace, which stands in for model and text in every command that looks."""
    import torch

    from ..files import check_place
    from ..tokens import printable

    if output.suffix != ".attn":
        raise UsageError(f"a trace file ends in .attn, got {output.name}")
    if dtype not in TYPES:
        raise UsageError(f"--dtype must be one of {', '.join(TYPES)}, got {dtype!r}")
    check_place(output)
    options: dict[str, Any] = {} if layers is None else {"layers": _layers(layers)}
    content = text_of(text, file)
    with working(f"Recording {model}"):
        trace = _trace(model, content, generate, options)
        kept = None if dtype == "float32" else getattr(torch, dtype)
        trace.save(output, dtype=kept, statistics_only=statistics_only)
    print(printable(str(output)))


def _trace(model: str, text: str, generate: int, options: dict[str, Any]) -> Trace:
    import torch

    from ..models import load_reader
    from ..recording import inspect, record

    if not text.strip():
        raise UsageError("the text is empty: give it as an argument, with --file, or through a pipe")
    network, tokenizer = load_reader(model)
    if not generate:
        trace = inspect((network, tokenizer), text, **options)
    else:
        if not hasattr(network, "generate") or not network.can_generate():
            raise UsageError(f"{model} writes no text: leave out --generate")
        inputs = tokenizer(text, return_tensors="pt").to(network.device)
        with torch.inference_mode(), record(network, tokenizer=tokenizer, text=text, **options) as trace:
            network.generate(**inputs, max_new_tokens=generate, do_sample=False)
    trace.model = model
    return trace


def _layers(text: str) -> list[int]:
    found = text.replace(",", " ").split()
    wrong = [item for item in found if not item.isdigit()]
    if wrong or not found:
        raise UsageError(f'--layers takes numbers such as "0 5 6", got {text!r}')
    return [int(item) for item in found]
