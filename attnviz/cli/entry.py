"""The application, and the one place where failures become a line on stderr and an exit code.

Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from . import align, causes, dashboard, doctor, estimate, evaluation, export, heads, inspect, models, record

app = typer.Typer(
    name="attnviz",
    help="The microscope for attention: record what every head of a model does, then look.",
    epilog="Start with: attnviz dashboard",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        from .. import __version__

        print(f"attnviz {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of no command."""


for group in (dashboard, inspect, export, record, heads, evaluation, align, causes, models, estimate, doctor):
    group.register(app)


def main() -> None:
    """The `attnviz` command."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default that of the command line; its exit code. Failures are told on stderr in a line."""
    _open_streams()
    try:
        arguments = sys.argv[1:] if arguments is None else arguments
        code: Any = app(arguments or ["--help"], prog_name="attnviz", standalone_mode=False)
        sys.stdout.flush()
    except (KeyboardInterrupt, typer.Abort):
        code = 130
    except BrokenPipeError:
        _drop_stdout()
        return 1
    except Exception as error:
        return _tell(error)
    if code == 130:  # typer makes it of Ctrl-C
        print("stopped", file=sys.stderr)
    return code if isinstance(code, int) else 0


def _open_streams() -> None:
    """A stream that the caller closed reads as empty and swallows what is written; no character fails to print."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: PTH123, SIM115
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def _drop_stdout() -> None:
    """Nobody reads any more: keep Python from failing again when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _tell(error: Exception) -> int:
    text, code = _explain(error)
    from ..tokens import printable

    print("error:", " ".join(printable(word) for word in text.split()), file=sys.stderr)
    return code


def _explain(error: Exception) -> tuple[str, int]:
    """What to say, and the exit code."""
    from attnviz_kernels import ArgumentError, BackendError

    from ..errors import AttnvizError

    if isinstance(error, AttnvizError):
        return str(error), error.exit_code
    if isinstance(error, ArgumentError | BackendError):
        return str(error), 2 if isinstance(error, ArgumentError) else 1
    if hasattr(error, "format_message"):  # wrong usage, as typer reports it
        context = getattr(error, "ctx", None)
        return f"{_plain(error.format_message())}; see {context.command_path if context else 'attnviz'} --help", 2
    if isinstance(error, OSError):
        return f"{error.filename or 'output'}: {error.strerror or error}", 1
    if os.environ.get("ATTNVIZ_TRACEBACK"):
        raise error
    return f"{type(error).__name__}: {error}. This is a fault of attnviz; ATTNVIZ_TRACEBACK=1 shows where", 1


def _plain(text: str) -> str:
    """What typer says of a wrong value, without the words of its checker."""
    for theirs, ours in (
        (r"Input should be a valid integer.*", "must be a whole number"),
        (r"Input should be greater than or equal to (\S+)", r"must be \1 or more"),
        (r"Input should be less than or equal to (\S+)", r"must be \1 at most"),
    ):
        text = re.sub(theirs, ours, text)
    return text.rstrip(".")
