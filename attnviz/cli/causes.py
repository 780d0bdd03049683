"""`attnviz attribute` and `ablate`: what a model's prediction, or the similarity of two texts, rests on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .explaining import METHODS, STEPS, Asked, check_options
from .results import Json, Output, Top, counted, tell
from .source import File, Kind, Layer, NetworkName, Text, pair_of, text_of

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.ablation import Effect
    from ..analysis.cases import Case

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
    method: Annotated[str, typer.Option(help=f"One of {', '.join(METHODS)}.")] = "relevance",
    layer: Layer = None,
    kind: Kind = None,
    token: Annotated[
        int | None,
        typer.Option(
            help="Position whose last state relevance explains.", show_default="those that the number is read from"
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, help="The most steps of a path, where a method follows one.", show_default=str(STEPS)),
    ] = None,
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """What the output rests on: tokens (relevance, Captum, ablation), positions of a layer, heads, next tokens.

    integrated attention and attention conductance say what heads carry, layer by layer (all, or --layer); layer
    conductance needs --layer; continuation takes several tokens as --target, or those that the model writes.
    """
    from ..charts import titles

    if method not in METHODS:
        raise UsageError(f"--method must be one of {', '.join(METHODS)}, got {method!r}")
    check_options(method, layer=layer, kind=kind, token=token, steps=steps)
    words = text_of(text, file)
    several = method == "continuation"
    if several and with_text is not None:
        raise UsageError("continuation explains the tokens that follow: leave out --with")
    case = _case(model, words, None if several else target, with_text)
    with counted(f"Computing {method}") as progress:
        found = METHODS[method](
            Asked(
                case,
                titles.source(model, words, with_text),
                target,
                layer,
                kind,
                token,
                steps or STEPS,
                progress,
            )
        )
    tell(found.table, as_json=as_json, top=top, path=output, chart=found.chart, about=found.about)


def ablate(
    model: NetworkName,
    text: Text = None,
    file: File = None,
    target: Target = None,
    with_text: With = None,
    heads: Annotated[
        str | None, typer.Option(help='Silence these together: "4.9 5.0".', show_default="each head alone")
    ] = None,
    how: Annotated[str | None, typer.Option(help="zero, mean or keep (only these).", show_default="zero")] = None,
    queries: Annotated[
        str | None,
        typer.Option(help='Instead, hide --keys from these tokens: "0 3-5".', show_default=False),
    ] = None,
    keys: Annotated[str | None, typer.Option(help="The tokens that --queries may not see.", show_default=False)] = None,
    kind: Kind = None,
    top: Top = 20,
    as_json: Json = False,
    output: Output = None,
) -> None:
    """What changes when heads are silenced or links cut; no change does not prove that a head is useless.

    With --queries and --keys, positions counted from 0, links between tokens are cut in all layers and heads, or in
    those of --heads; of two texts in the first.
    """
    from ..analysis.ablation import ablate as ablate_heads
    from ..analysis.ablation import ablate_each
    from ..charts import change_grid, titles

    words = text_of(text, file)
    case = _case(model, words, target, with_text)
    network, inputs, measure, about = case.model, case.inputs, case.measure, case.about
    if queries is not None or keys is not None:
        if how is not None:
            raise UsageError("--how is for heads that are silenced: leave it out where links are cut")
        tell(_cut(case, queries, keys, heads, kind), as_json=as_json, path=output, about=about)
        return
    how = how or "zero"
    if heads is not None:
        with counted("Silencing heads") as progress:
            effect = ablate_heads(network, inputs, _heads(heads), measure, how=how, kind=kind, progress=progress)
        tell(_row(effect, heads=heads, how=how), as_json=as_json, path=output, about=about)
        return
    with counted("Silencing each head") as progress:
        table = ablate_each(network, inputs, measure, how=how, kind=kind, progress=progress)
    title = titles.silenced(how, about, titles.source(model, words, with_text))
    grid = lambda: change_grid(table, "change", title)  # noqa: E731
    tell(table, as_json=as_json, top=top, path=output, chart=grid, about=about)


def _cut(case: Case, queries: str | None, keys: str | None, heads: str | None, kind: str | None) -> pd.DataFrame:
    """One row: the links that are cut, and the number with and without them."""
    from ..analysis.ablation import knock_out
    from ..analysis.cases import alone

    if queries is None or keys is None:
        raise UsageError("links go from tokens to tokens: give both --queries and --keys")
    one = alone(case)
    chosen = None if heads is None else _heads(heads)
    groups = (_positions("--queries", queries), _positions("--keys", keys))
    with counted("Cutting links") as progress:
        effect = knock_out(one.model, one.inputs, *groups, one.measure, heads=chosen, kind=kind, progress=progress)
    return _row(effect, queries=queries, keys=keys, heads=heads or "all")


def _row(effect: Effect, **named: str) -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame([{**named, "before": effect.before, "after": effect.after, "change": effect.change}])


def _positions(option: str, text: str) -> list[int]:
    """Positions and ranges such as "0 3-5"; both ends of a range are meant."""
    found: list[int] = []
    for item in text.replace(",", " ").split():
        first, dash, last = item.partition("-")
        if not first.isdigit() or (dash and not last.isdigit()):
            raise UsageError(f'{option} takes positions and ranges such as "0 3-5", got {item!r}')
        found += range(int(first), int(last if dash else first) + 1)
    if not found:
        raise UsageError(f"{option} names no token")
    return found


def _case(model: str, text: str, target: str | None, with_text: str | None) -> Case:
    """The case of a model by name."""
    from ..analysis.cases import case, predicts
    from ..models import load_reader

    network, tokenizer = load_reader(model)
    if with_text is None and not predicts(network):
        raise UsageError(f"{model} predicts no tokens: give a second text with --with")
    return case(network, tokenizer, text, target=target, second=with_text)


def _heads(text: str) -> list[tuple[int, int]]:
    found = [pair_of("--heads", item) for item in text.replace(",", " ").split()]
    if not found:
        raise UsageError("--heads names no head")
    return found
