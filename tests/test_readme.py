"""The README's commands and programs run as they stand, and its pictures and links are there."""

import re
import shlex
from pathlib import Path

import pytest

from attnviz.cli import entry as cli

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```sh\n(.*?)```", README, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in LINES if line.startswith("attnviz ")]
PROGRAMS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("command", COMMANDS)
def test_commands_run(command, minilm, smollm2, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, *arguments = shlex.split(command, comments=True)
    assert cli.run(arguments) == 0
    assert capsys.readouterr().out.strip()


@pytest.mark.parametrize("number", range(len(PROGRAMS)))
def test_programs_run(number, minilm, smollm2, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[number], f"README program {number}", "exec"), {})


def test_links_and_pictures_are_there():
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert target.startswith("https://") or (ROOT / target).exists(), target


def test_there_are_commands_and_programs_to_run():
    """The other lines, which set up and start, are run by scripts/newcomer."""
    others = [line.partition("#")[0].strip() for line in LINES if line not in COMMANDS]
    assert others == ["make dashboard", "make test", ". .venv/bin/activate"]
    assert len(COMMANDS) >= 5
    assert len(PROGRAMS) >= 2
