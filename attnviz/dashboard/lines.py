"""The lines of Python and of the command line that give what a page shows."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .causing import HEAD, HEADS, INTEGRATED, RELEVANCE, ROLLOUT
from .runs import Wanted

if TYPE_CHECKING:
    from ..trace import Head


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


def kept(made: Sequence[str], figure: str, name: str) -> str:
    """Lines of Python, and after them the one that writes what they made as a figure."""
    return "\n".join((*made, f'export({figure}, "{name}.svg")'))


def command(*words: str) -> str:
    """A command line, quoted."""
    return shlex.join(["attnviz", *words])


@dataclass(frozen=True)
class Asked:
    """One way to look for causes, with what it was asked: the arguments of `case` are in `question`."""

    method: str
    token: int = -1
    how: str = "zero"
    question: dict[str, str] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """What files are called."""
        return f"causes-{self.method.lower().replace(' ', '-')}"


def causes(wanted: Wanted, head: Head, asked: Asked) -> tuple[str, str]:
    """Python and command line of one way to look for causes; "" where no command does the same."""
    if asked.method == ROLLOUT:
        text = [] if wanted.saved else [wanted.text]
        start = ("from attnviz.analysis.flow import rollout", "", recorded(wanted), f"rollout(trace, {asked.token})")
        return "\n".join(("import attnviz", *start)), command("rollout", wanted.model, *text, f"--token={asked.token}")
    module, names, body, words = _measured(head, asked)
    question = ", ".join(f"{name}={value!r}" for name, value in asked.question.items())
    python = (
        "import attnviz",
        f"from attnviz.analysis.{module} import {names}",
        f"from attnviz.analysis.cases import {'alone, ' * (asked.method == RELEVANCE)}case",
        "",
        f"model, tokenizer = attnviz.load_model({wanted.model!r})",
        f"found = case(model, tokenizer, {wanted.text!r}, {question})",
        body,
    )
    flags = [f"--{FLAGS[name]}={value}" for name, value in asked.question.items()]
    return "\n".join(python), command(words[0], wanted.model, wanted.text, *flags, *words[1:]) if words else ""


def _measured(head: Head, asked: Asked) -> tuple[str, str, str, tuple[str, ...]]:
    """Module, name, last line of Python, and the words of the command."""
    given = "found.inputs, found.measure"
    how = "" if asked.how == "zero" else f', how="{asked.how}"'
    if asked.method == RELEVANCE:
        body = "one = alone(found)\npassed = gradients(model, one.inputs, one.measure, tokenizer=tokenizer)"
        return "gradients", "gradients", f"{body}\npassed.relevance({asked.token})", ()
    if asked.method == HEAD:
        place = f"({head.layer}, {head.head})"
        body = f"ablate(model, found.inputs, [{place}], found.measure{how})"
        return (
            "ablation",
            "ablate",
            body,
            ("ablate", f"--heads={head.layer}.{head.head}", f"--how={asked.how}"),
        )
    if asked.method == HEADS:
        return "ablation", "ablate_each", f"ablate_each(model, {given}{how})", ("ablate", f"--how={asked.how}")
    kind = "integrated gradients" if asked.method == INTEGRATED else "ablation"
    body = f'attribute_tokens(model, tokenizer, {given}, method="{kind}")'
    return "attribution", "attribute_tokens", body, ("attribute", f"--method={kind}")
