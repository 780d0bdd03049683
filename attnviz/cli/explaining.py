"""The methods of `attnviz attribute`, each giving a table, a chart of it, and a line on how far to trust it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from ..analysis.cases import Case

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Asked:
    """What a method is asked about: layer None for all of them, kind of attention where there are several, the token
    whose state is explained (None: those that the number reads), and the most steps of a path."""

    case: Case
    source: str
    target: str | None
    layer: int | None
    kind: str | None
    token: int | None
    most: int
    progress: Progress


@dataclass(frozen=True)
class Explained:
    """What a command prints and draws."""

    table: pd.DataFrame
    chart: Callable[[], Any]
    about: str


def relevance(asked: Asked) -> Explained:
    """Tokens by gradient x attention through all layers."""
    found = _gradients(asked)
    flow, count = found.relevance(asked.token), int(found.reads().sum())
    remark = ""
    if asked.token is None and count > 1:
        remark = f"mean over the {count} positions that it is read from"
    return _tokens(asked, "relevance", flow, asked.case.about, remark)


def importance(asked: Asked) -> Explained:
    """Heads by gradient x output."""
    from ..charts import score_grid, titles

    table, about = _gradients(asked).importance(), asked.case.about
    title = titles.explained("importance", about, asked.source)
    return Explained(table, lambda: score_grid(table, "importance", title), about)


def tokens(asked: Asked, method: str) -> Explained:
    """Tokens by integrated gradients or by replacing each."""
    from ..analysis.attribution import attribute_tokens

    case = asked.case
    found = attribute_tokens(
        *(case.model, case.tokenizer, case.inputs, case.measure),
        text=case.text,
        method=method,
        most=asked.most,
        progress=asked.progress,
    )
    return _tokens(asked, method, found, case.about, found.remark)


def layer_conductance(asked: Asked) -> Explained:
    """Positions of one layer by conductance."""
    from ..analysis.attribution import layer_conductance as conductance
    from ..analysis.cases import alone

    if asked.layer is None:
        raise UsageError("layer conductance needs the layer: give --layer")
    case = alone(asked.case)
    found = conductance(
        *(case.model, case.tokenizer, case.inputs, case.measure, asked.layer),
        text=case.text,
        kind=asked.kind,
        most=asked.most,
        progress=asked.progress,
    )
    return _tokens(asked, "layer conductance", found, f"{case.about}, layer {asked.layer}", found.remark)


def attention(asked: Asked, *, integrated: bool) -> Explained:
    """Heads by integrated gradients over attention, or by its conductance."""
    from ..analysis.attention_paths import attention_conductance, integrated_attention
    from ..analysis.cases import alone
    from ..charts import change_grid, titles

    case = alone(asked.case)
    layers = None if asked.layer is None else [asked.layer]
    if integrated:
        found = integrated_attention(
            *(case.model, case.inputs, case.measure),
            layers=layers,
            kind=asked.kind,
            most=asked.most,
            progress=asked.progress,
        )
    else:
        found = attention_conductance(
            *(case.model, case.tokenizer, case.inputs, case.measure),
            layers=layers,
            kind=asked.kind,
            most=asked.most,
            progress=asked.progress,
        )
    table = found.table()
    title = titles.explained(found.method, case.about, asked.source)
    chart = lambda: change_grid(table, "score", title)  # noqa: E731
    return Explained(table, chart, f"{case.about}\n{found.remark}")


def continuation(asked: Asked) -> Explained:
    """Tokens by what each does for each token that follows."""
    from ..analysis.continuation import attribute_continuation

    case = asked.case
    found = attribute_continuation(case.model, case.tokenizer, case.text, asked.target, progress=asked.progress)
    about = f"log probability of {''.join(token.text for token in found.following)!r} after the text"
    return _tokens(asked, "continuation", found, about, scores=found.totals)


METHODS: dict[str, Callable[[Asked], Explained]] = {
    "relevance": relevance,
    "importance": importance,
    "integrated gradients": lambda asked: tokens(asked, "integrated gradients"),
    "ablation": lambda asked: tokens(asked, "ablation"),
    "layer conductance": layer_conductance,
    "integrated attention": lambda asked: attention(asked, integrated=True),
    "attention conductance": lambda asked: attention(asked, integrated=False),
    "continuation": continuation,
}
"""By the name that `--method` takes."""


STEPS = 1600
"""The most steps of a path where nothing else is said."""
_PATHS = ("layer conductance", "integrated attention", "attention conductance")
_USED = {
    "layer": _PATHS,
    "kind": ("relevance", "importance", *_PATHS),
    "token": ("relevance",),
    "steps": ("integrated gradients", *_PATHS),
}
"""The methods that an option is for."""


def check_options(method: str, **options: Any) -> None:
    """UsageError for an option that is given and that the method does not use."""
    for name, value in options.items():
        if value is not None and method not in _USED[name]:
            *others, last = _USED[name]
            named = f"the methods {', '.join(others)} and {last}" if others else f"the method {last}"
            raise UsageError(f"--{name} is for {named}, not for {method}")


def _gradients(asked: Asked) -> Any:
    from ..analysis.cases import alone
    from ..analysis.gradients import gradients

    case = alone(asked.case)
    named = {"tokenizer": case.tokenizer, "text": case.text}
    return gradients(case.model, case.inputs, case.measure, **named, kind=asked.kind)


def _tokens(asked: Asked, method: str, found: Any, about: str, remark: str = "", scores: Any = None) -> Explained:
    """Scores of tokens, those of `found` unless given."""
    from ..charts import titles, token_bars

    title = titles.explained(method, about, asked.source)
    numbers = (found.scores if scores is None else scores).tolist()
    return Explained(found.table(), lambda: token_bars(found.tokens, numbers, title), f"{about}\n{remark}".rstrip())
