"""The page of commands in docs/reference: what each does, an example, its arguments and options."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import typer.main

from attnviz.cli import entry


def page() -> str:
    """Every command, as Markdown."""
    command = typer.main.get_command(entry.app)
    codes = "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted; the reason is one line on stderr."
    parts = ["# Commands", "What `attnviz` does in a terminal.", codes, *sections(command, "attnviz")]
    return "\n\n".join(parts) + "\n"


def sections(command: Any, name: str) -> Iterator[str]:
    for child, found in sorted(getattr(command, "commands", {}).items()):
        yield f"## {name} {child}"
        yield escaped(" ".join(found.help.split()))
        yield f"    {found.epilog.removeprefix('Example: ')}"
        if rows := [row(parameter) for parameter in found.params if parameter.name != "help"]:
            yield "\n".join(["| | |", "|---|---|", *rows])
        yield from sections(found, f"{name} {child}")


def row(parameter: Any) -> str:
    """An argument or option: how it is written, and what it is for."""
    names = (
        ", ".join(sorted(parameter.opts, key=len)) if parameter.param_type_name == "option" else parameter.name.upper()
    )
    default = parameter.show_default if isinstance(parameter.show_default, str) else parameter.default
    shown = parameter.show_default and default not in (None, False) and not callable(default)
    need = " Needed." if parameter.required else f" Default: {default}." if shown else ""
    return f"| `{names}` | {escaped(parameter.help or '')}{need} |"


def escaped(text: str) -> str:
    return text.replace("<", "\\<").replace("|", "\\|")
