"""What every command shares: help, errors in one line, exit codes, closed and broken streams."""

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer.main

from attnviz import __version__
from attnviz.cli import entry as cli
from attnviz.errors import ModelError, UsageError
from attnviz_kernels import ArgumentError, BackendError

ATTNVIZ = (sys.executable, "-c", "from attnviz.cli import main; main()")


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    yield path
    for name, child in getattr(command, "commands", {}).items():
        yield from commands(child, (*path, name))


ALL = tuple(commands(typer.main.get_command(cli.app)))


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_fits_a_terminal_and_gives_an_example(path: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run([*path, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert f"attnviz {' '.join(path)}".strip() in text.split("Example:" if path else "Start with:")[1]


def test_version_and_short_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["--version"]) == 0
    assert capsys.readouterr().out == f"attnviz {__version__}\n"
    for path in ALL:
        assert cli.run([*path, "-h"]) == 0
        assert "Usage: attnviz" in capsys.readouterr().out


def test_no_command_gives_the_help(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "argv", ["attnviz"])
    assert cli.run() == 0
    assert "Usage: attnviz" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nonsense"], "error: No such command 'nonsense'; see attnviz --help"),
        (["estimate"], "error: Missing argument 'model'; see attnviz estimate --help"),
        (["estimate", "minilm", "--length", "0"], "error: Invalid value for '--length': must be 1 or more; see"),
        (["dashboard", "--port", "99999"], "error: Invalid value for '--port': must be 65535 at most; see"),
        (
            ["estimate", "minilm", "--length", "many"],
            "error: Invalid value for '--length': must be a whole number; see attnviz",
        ),
        (["models", "--nothing"], "error: No such option: --nothing; see attnviz models --help"),
        (["models", "fetch"], "error: name one model to fetch, or give --all"),
        (["models", "fetch", "minilm", "--all"], "error: name one model to fetch, or give --all"),
    ],
)
def test_wrong_usage(arguments: list[str], line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert line in err
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("failure", "code", "line"),
    [
        (UsageError("layer 7 does not exist"), 2, "error: layer 7 does not exist"),
        (ModelError("no model"), 1, "error: no model"),
        (ArgumentError("scale must be finite"), 2, "error: scale must be finite"),
        (BackendError("no GPU"), 1, "error: no GPU"),
        (PermissionError(13, "Permission denied", "x.svg"), 1, "error: x.svg: Permission denied"),
        (OSError(28, "No space left on device"), 1, "error: output: No space left on device"),
        (KeyError("x"), 1, "error: KeyError: 'x'. This is a fault of attnviz; ATTNVIZ_TRACEBACK=1 shows where"),
        (ModelError("two\nlines \x1b[31mred"), 1, "error: two lines ␛[31mred"),
        (KeyboardInterrupt(), 130, "stopped"),
    ],
)
def test_failures_are_one_line_and_an_exit_code(
    failure: BaseException, code: int, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fail_with(monkeypatch, failure)
    assert cli.run(["doctor"]) == code
    assert capsys.readouterr() == ("", f"{line}\n" if line else "")


def test_faults_of_our_own_can_be_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    fail_with(monkeypatch, KeyError("x"))
    monkeypatch.setenv("ATTNVIZ_TRACEBACK", "1")
    with pytest.raises(KeyError):
        cli.run(["doctor"])


def fail_with(monkeypatch: pytest.MonkeyPatch, failure: BaseException) -> None:
    """Make `attnviz doctor` fail."""

    def versions() -> None:
        raise failure

    monkeypatch.setattr("attnviz.cli.doctor._versions", versions)


def shell(line: str) -> subprocess.CompletedProcess[str]:
    """Run a line of shell where "$@" is attnviz."""
    return subprocess.run(["bash", "-c", line, "sh", *ATTNVIZ], capture_output=True, text=True, check=False)


def test_reader_that_stops_reading_ends_it_quietly() -> None:
    done = shell('(sleep 0; "$@" models; echo $? >&2) | true')
    assert done.stderr in ("0\n", "1\n")
    done = shell('set -o pipefail; { for i in 1 2 3; do "$@" models --help; done; } | head -n 1')
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1


def test_closed_streams() -> None:
    done = shell('"$@" models <&- >&-; echo $?')
    assert (done.stdout, done.stderr) == ("0\n", "")
    done = shell('"$@" models fetch nothing 2>&-; echo $?')
    assert (done.stdout, done.stderr) == ("1\n", "")


def test_full_output_is_said() -> None:
    done = shell('"$@" models > /dev/full')
    assert (done.returncode, done.stderr) == (1, "error: output: No space left on device\n")


def test_output_that_cannot_show_a_character_escapes_it() -> None:
    done = shell('PYTHONIOENCODING=ascii "$@" models fetch naïve')
    assert (done.returncode, done.stderr) == (1, 'error: no bundled model "na\\xefve": there are minilm, smollm2\n')
