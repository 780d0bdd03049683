"""`attnviz attribute` and `ablate`: what a model's prediction, or the similarity of two texts, rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .results import Json, Output, Top, counted, tell
from .source import File, Text, text_of, working

if TYPE_CHECKING:
    from ..analysis.cases import Case

NetworkName = Annotated[str, typer.Argument(help="Bundled name, folder, GGUF file or hub id.")]
Target = Annotated[
    str | None, typer.Option(help="Next token to explain, such as ' Paris'.", show_default="the likeliest")
]
With = Annotated[
    str | None, typer.Option("--with", help="For encoders: explain the similarity with this text.", show_default=False)
]


def register(app: typer.Typer) -> None:
    """Add the commands to the application."""
    app.command(epilog='Example: attnviz attribute smollm2 "The capital of France is"')(attribute)
    app.command(epilog='Example: attnviz ablate minilm "A muddy bank." --with "A river side."')(ablate)


def attribute(
    model: NetworkName,
    text: Text = None,
    file: File = None,
    target: Target = None,
    with_text: With = None,
    method: Annotated[
        str, typer.Option(help="relevance, importance (of heads), integrated gradients or ablation (of tokens).")
    ] = "relevance",
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """What the output rests on: tokens by relevance, Captum or ablation, or heads by gradient x output."""
    from ..analysis.attribution import METHODS, attribute_tokens
    from ..analysis.gradients import gradients
    from ..charts import score_grid, token_bars

    known = ("relevance", "importance", *METHODS)
    if method not in known:
        raise UsageError(f"--method must be one of {', '.join(known)}, got {method!r}")
    case = _case(model, text_of(text, file), target, with_text)
    network, inputs, measure, about = case.model, case.inputs, case.measure, case.about
    if method in METHODS:
        with counted(f"Computing {method}") as progress:
            found = attribute_tokens(network, case.tokenizer, inputs, measure, method=method, progress=progress)
        chart = lambda: token_bars(found.tokens, found.scores.tolist(), about)  # noqa: E731
        tell(found.table(), as_json=as_json, top=top, path=output, chart=chart, about=f"{about}\n{found.remark}")
        return
    if with_text is not None:
        raise UsageError(f"{method} takes one text: leave out --with, or use --method {METHODS[0]!r}")
    with working(f"Computing {method}"):
        passed = gradients(network, inputs, measure, tokenizer=case.tokenizer)
    if method == "importance":
        table = passed.importance()
        grid = lambda: score_grid(table, "importance", about)  # noqa: E731
        tell(table, as_json=as_json, top=top, path=output, chart=grid, about=about)
        return
    flow = passed.relevance()
    bars = lambda: token_bars(flow.tokens, flow.scores.tolist(), about)  # noqa: E731
    tell(flow.table(), as_json=as_json, top=top, path=output, chart=bars, about=about)


def ablate(
    model: NetworkName,
    text: Text = None,
    file: File = None,
    target: Target = None,
    with_text: With = None,
    heads: Annotated[
        str | None, typer.Option(help='Silence these together: "4.9 5.0".', show_default="each head alone")
    ] = None,
    how: Annotated[str, typer.Option(help="zero, mean or keep (only these).")] = "zero",
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """What changes in the output when heads are silenced; no change does not prove that a head is useless."""
    import pandas as pd

    from ..analysis.ablation import ablate as ablate_heads
    from ..analysis.ablation import ablate_each
    from ..charts import score_grid

    case = _case(model, text_of(text, file), target, with_text)
    network, inputs, measure, about = case.model, case.inputs, case.measure, case.about
    if heads is not None:
        effect = ablate_heads(network, inputs, _heads(heads), measure, how=how)
        row = {"heads": heads, "how": how, "before": effect.before, "after": effect.after, "change": effect.change}
        tell(pd.DataFrame([row]), as_json=as_json, path=output, about=about)
        return
    with counted("Silencing each head") as progress:
        table = ablate_each(network, inputs, measure, how=how, progress=progress)
    grid = lambda: score_grid(table, "change", f"{about}: change by head")  # noqa: E731
    tell(table, as_json=as_json, top=top, path=output, chart=grid, about=about)


def _case(model: str, text: str, target: str | None, with_text: str | None) -> Case:
    """The case of a model by name."""
    from ..analysis.cases import case, predicts
    from ..models import load_model

    if not text.strip():
        raise UsageError("the text is empty: give at least one word")
    network, tokenizer = load_model(model)
    if with_text is None and not predicts(network):
        raise UsageError(f"{model} predicts no tokens: give a second text with --with")
    return case(network, tokenizer, text, target=target, second=with_text)


def _heads(text: str) -> list[tuple[int, int]]:
    found = []
    for item in text.replace(",", " ").split():
        layer, dot, head = item.partition(".")
        if not dot or not layer.isdigit() or not head.isdigit():
            raise UsageError(f'--heads takes layer.head pairs such as "4.9 5.0", got {item!r}')
        found.append((int(layer), int(head)))
    if not found:
        raise UsageError("--heads names no head")
    return found
