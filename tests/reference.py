"""The pages of docs/reference, made from signatures, docstrings and help texts; `scripts/reference` writes them.

A page has one section for each public name, in the order of `__all__`, or of the source where a module has none.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cached_property
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import reference_commands

FOLDER = Path(__file__).parents[1] / "docs" / "reference"
CALLED = ("__getitem__", "__call__")
"""Special methods that have a section: they are how the class is used."""


def pages() -> dict[str, str]:
    """Name of each file and its text."""
    import attnviz

    parts = [import_module(f"attnviz.analysis.{name}") for name in attnviz.analysis.__all__]
    found = {
        "attnviz.md": page(attnviz),
        "analysis.md": page(attnviz.analysis, parts),
        "charts.md": page(attnviz.charts),
        "export.md": page(import_module("attnviz.export")),
        "kernels.md": page(import_module("attnviz_kernels")),
        "commands.md": reference_commands.page(),
    }
    return {**found, "README.md": overview(found)}


def overview(found: dict[str, str]) -> str:
    """The list of pages, each with the first line of its text."""
    lines = [f"- [{text.splitlines()[0][2:]}]({name}): {text.splitlines()[2]}" for name, text in found.items()]
    about = "Made from docstrings and help texts by `scripts/reference`."
    return "\n".join(["# Reference", "", about, "", *lines, "- [Errors](../errors/README.md)", ""])


def page(module: ModuleType, parts: Sequence[ModuleType] = ()) -> str:
    """A module's text and names, then those of its parts one level below."""
    found = [f"# {module.__name__}", prose(module), *sections(module, "##")]
    for part in parts:
        found += [f"## {part.__name__}", prose(part), *sections(part, "###")]
    return "\n\n".join(found) + "\n"


def sections(module: ModuleType, level: str) -> Iterator[str]:
    short = module.__name__.removeprefix("attnviz.")
    for name, thing in names(module):
        yield f"{level} {short}.{name}"
        if not (inspect.isclass(thing) and issubclass(thing, Exception)):
            yield code(name, thing)
        yield prose(thing)
        if inspect.isclass(thing):
            yield from members(thing, f"{level}#")


def names(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions and classes of a module."""
    listed = getattr(module, "__all__", None)
    for name in listed or vars(module):
        thing = getattr(module, name)
        own = listed is not None or getattr(thing, "__module__", None) == module.__name__
        if own and not name.startswith("_") and (inspect.isclass(thing) or inspect.isroutine(thing)):
            yield name, thing


def members(kind: type, level: str) -> Iterator[str]:
    """The public properties and methods that a class defines."""
    for name, thing in vars(kind).items():
        if name.startswith("_") and name not in CALLED:
            continue
        got = thing.func if isinstance(thing, cached_property) else getattr(thing, "fget", None)
        called = getattr(thing, "__func__", thing)
        if got is None and not inspect.isfunction(called):
            continue
        yield f"{level} {kind.__name__}.{name}"
        yield code(name, called) if got is None else fence(f"{name}: {got.__annotations__['return']}")
        yield prose(got or called)


class Written(str):
    """An annotation as it stands in the source, without quotes."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


def code(name: str, thing: Any) -> str:
    """The signature as Python, one parameter a line where it is long."""
    signature = inspect.signature(thing)
    given = [plain(parameter) for parameter in signature.parameters.values() if parameter.name != "self"]
    nothing = signature.return_annotation in (inspect.Signature.empty, None) or inspect.isclass(thing)
    end = "" if nothing else f" -> {written(signature.return_annotation)}"
    line = f"{name}{inspect.Signature(given)}{end}"
    if len(line) > 100:
        line = "\n    ".join([f"{name}(", *(f"{one}," for one in starred(given))]) + f"\n){end}"
    return fence(line.replace("slice(None, None, None)", "slice(None)"))


def starred(given: list[inspect.Parameter]) -> Iterator[str]:
    """The parameters, with the bare star where those begin that need their name."""
    before = None
    for parameter in given:
        if parameter.kind is parameter.KEYWORD_ONLY and before not in (
            parameter.KEYWORD_ONLY,
            parameter.VAR_POSITIONAL,
        ):
            yield "*"
        before = parameter.kind
        yield str(parameter)


def plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """With its annotation as written, and no default that is spelled differently in every process."""
    empty = inspect.Parameter.empty
    annotation = parameter.annotation if parameter.annotation is empty else Written(written(parameter.annotation))
    default = Written("...") if "<" in repr(parameter.default) and parameter.default is not empty else parameter.default
    return parameter.replace(annotation=annotation, default=default)


def written(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def fence(text: str) -> str:
    return f"```python\n{text}\n```"


def prose(thing: Any) -> str:
    """The docstring as Markdown: lists with columns and sessions stay as they are, the rest is text."""
    paragraphs = re.split(r"\n\s*\n", inspect.getdoc(thing) or "")
    return "\n\n".join(map(paragraph, paragraphs))


def paragraph(text: str) -> str:
    lines = text.splitlines()
    if text.startswith(">>>"):
        return fence(text)
    if any(re.search(r"\S {2,}\S", line) or line.startswith(" ") for line in lines):
        return f"```text\n{textwrap.dedent(text)}\n```"
    return "".join(escaped(part) if at % 2 == 0 else f"`{part}`" for at, part in enumerate(text.split("`")))


def escaped(text: str) -> str:
    return re.sub(r"[<*]", lambda found: "\\" + found[0], text)


def main() -> None:
    """Write every page, and remove those that are no longer made."""
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for old in FOLDER.glob("*.md"):
        if old.name not in made:
            old.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
