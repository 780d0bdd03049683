"""The lines of Python and of the command line that give what a page shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ..charts import titles
from .causing import HEAD, HEADS, NAMES, RELEVANCE
from .runs import Wanted

if TYPE_CHECKING:
    from ..head import Head


FLAGS = {"target": "target", "second": "with"}
"""The options of the command line that are called otherwise in Python."""


def visible(text: str) -> str:
    """A token with its spaces as dots, so that they can be read and typed."""
    return text.replace(" ", "·")


def hidden(text: str) -> str:
    """The token that `visible` shows."""
    return text.replace("·", " ")


def recorded(wanted: Wanted) -> str:
    """The line that makes the trace."""
    if wanted.saved:
        return f"trace = attnviz.load({wanted.model!r})"
    return f"trace = attnviz.inspect({wanted.model!r}, {wanted.text!r})"


def written(imports: Sequence[str], made: Sequence[str], figure: str, name: str) -> str:
    """Lines of Python: imports, what makes the trace and the table, and the one that writes the figure."""
    start = ("import attnviz", *imports, "from attnviz import charts", "from attnviz.export import export", "")
    return "\n".join((*start, *made, f'export({figure}, "{name}.svg")'))


def command(*words: str, texts: Sequence[str] = ()) -> str:
    """A command line, quoted; texts come last, where they may look like options."""
    marked = ["--"] if any(text[:1] == "-" for text in texts) else []
    return shlex.join(["attnviz", *words, *marked, *texts])


@dataclass(frozen=True)
class Asked:
    """One way to look for causes, with what it was asked: the arguments of `case` are in `question`."""

    method: str
    token: int = -1
    how: str = "zero"
    question: dict[str, str] = field(default_factory=dict)
    kind: str = "self"

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kind of attention, where a model has several."""
        return (self.kind,) if self.kind in ("encoder", "decoder", "cross") else ()

    def source(self, wanted: Wanted) -> str:
        """Model and texts, for the subtitle of a figure."""
        return titles.source(wanted.model, wanted.text, self.question.get("second"))

    @property
    def name(self) -> str:
        """What files are called."""
        return f"causes-{self.method.lower().replace(' ', '-')}"


def causes(wanted: Wanted, head: Head, asked: Asked, figure: str) -> tuple[str, str]:
    """Python and command line of one way to look for causes in a model; figure is the expression that draws what the
    lines made."""
    module, names, body, words = _measured(wanted, head, asked)
    question = ", ".join(f"{name}={value!r}" for name, value in asked.question.items())
    imports = (
        f"from attnviz.analysis.{module} import {names}",
        f"from attnviz.analysis.cases import {'alone, ' * (asked.method == RELEVANCE)}case",
    )
    made = (
        f"model, tokenizer = attnviz.load_model({wanted.model!r})",
        f"asked = case(model, tokenizer, {wanted.text!r}, {question})",
        *body,
    )
    flags = [f"--{FLAGS[name]}={value}" for name, value in asked.question.items()]
    line = command(words[0], wanted.model, *flags, *words[1:], "-o", _file(asked), texts=(wanted.text,))
    return written(imports, made, figure, asked.name), line


def _file(asked: Asked) -> str:
    """The file of a figure, or of the table where it is about one head."""
    return f"{asked.name}.{'csv' if asked.method == HEAD else 'svg'}"


def _measured(wanted: Wanted, head: Head, asked: Asked) -> tuple[str, str, tuple[str, ...], tuple[str, ...]]:
    """Module, names, last lines of Python, and the words of the command."""
    given = "asked.inputs, asked.measure"
    named = "".join(f', kind="{kind}"' for kind in asked.kinds)
    how = ("" if asked.how == "zero" else f', how="{asked.how}"') + named
    flags = tuple(f"--kind={kind}" for kind in asked.kinds)
    if asked.method == RELEVANCE:
        one = (
            "asked = alone(asked)",
            f"passed = gradients(model, {given}, tokenizer=tokenizer, text=asked.text{named})",
        )
        return (
            "gradients",
            "gradients",
            (*one, f"found = passed.relevance({asked.token})"),
            (*("attribute", "--method=relevance", f"--token={asked.token}"), *flags),
        )
    if asked.method == HEAD:
        place = f"({head.layer}, {head.head})"
        effect = f"effect = ablate(model, asked.inputs, [{place}], asked.measure{how})"
        words = ("ablate", f"--heads={head.layer}.{head.head}", f"--how={asked.how}", *flags)
        return "ablation", "ablate", (effect, recorded(wanted)), words
    if asked.method == HEADS:
        table = f"table = ablate_each(model, {given}{how})"
        return "ablation", "ablate_each", (table,), ("ablate", f"--how={asked.how}", *flags)
    kind = NAMES[asked.method]
    found = f'found = attribute_tokens(model, tokenizer, {given}, text=asked.text, method="{kind}")'
    return "attribution", "attribute_tokens", (found,), ("attribute", f"--method={kind}")
