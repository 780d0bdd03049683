"""Links of the documentation lead somewhere, its programs run, and every error has its page."""

import importlib
import inspect
import re
import shlex
from pathlib import Path

import error_texts
import pytest
import reference
import typer.main

from attnviz import errors
from attnviz.cli import entry as cli

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "kernels" / "README.md", ROOT / "CONTRIBUTING.md"]
QUICK_START = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_picture_is_shown_and_made_by_a_script():
    script = (ROOT / "scripts" / "pictures").read_text(encoding="utf-8")
    pages = "".join(page.read_text(encoding="utf-8") for page in [*PAGES, ROOT / "README.md"])
    for picture in (ROOT / "docs" / "images").iterdir():
        assert f"-o docs/images/{picture.name}\n" in script
        assert f"images/{picture.name})" in pages


def test_every_error_has_its_page():
    classes = [name for name, found in inspect.getmembers(errors, inspect.isclass) if name != "AttnvizError"]
    assert {page.stem for page in (ROOT / "docs" / "errors").glob("*.md")} == {*classes, "README"}


def test_every_error_text_is_on_its_page():
    for name, text in error_texts.pages().items():
        assert (error_texts.PAGES / name).read_text(encoding="utf-8") == text, f"{name}: run scripts/reference"


def test_the_reference_is_up_to_date():
    kept = {path.name: path.read_text(encoding="utf-8") for path in reference.FOLDER.glob("*.md")}
    made = reference.pages()
    assert kept.keys() == made.keys(), "run scripts/reference"
    changed = [name for name in made if made[name] != kept[name]]
    assert not changed, f"docstrings changed, run scripts/reference: {', '.join(changed)}"


def test_every_example_is_in_the_how_to():
    text = (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8")
    for example in [*(ROOT / "examples").glob("*.py"), *(ROOT / "examples").glob("*.ipynb")]:
        assert f"../examples/{example.name}" in text


def test_how_to_runs(minilm, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    programs = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "how-to.md").read_text(encoding="utf-8"), re.DOTALL)
    for number, program in enumerate(programs):
        exec(compile(program, f"how-to {number}", "exec"), {})
    assert (tmp_path / "heads.parquet").stat().st_size > 1000


def test_quick_start_runs(minilm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line in re.findall(r"```sh\n(.*?)```", QUICK_START, re.DOTALL)[0].splitlines():
        assert cli.run(shlex.split(line)[1:]) == 0, line
    exec(compile(re.findall(r"```python\n(.*?)```", QUICK_START, re.DOTALL)[0], "quick start", "exec"), {})
    assert "bank" in capsys.readouterr().out


def commands(page):
    """Every command line of attnviz on a page, in blocks of code and in the text."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^(?:    )?(attnviz .*)$", text, re.MULTILINE)
    return [*blocks, *(line for line in re.findall(r"`(attnviz [a-z][^`]*)`", text) if "ERROR" not in line)]


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_have_the_options_that_pages_say(page):
    """Nothing is run: a command that is not there, or lacks an option, is found by reading its arguments."""
    for line in commands(page):
        read(shlex.split(line.partition("  #")[0])[1:])


def read(words):
    """Read the arguments of a command without running it."""
    command = typer.main.get_command(cli.app)
    while words and words[0] in getattr(command, "commands", {}):
        command, words = command.commands[words[0]], words[1:]
    assert command.name != "attnviz", f"no such command: {words}"
    context = command.context_class(command)
    command.make_parser(context).parse_args(list(words))


def test_a_wrong_command_is_found():
    for words in (["nothing"], ["export", "minilm", "--nothing"], ["inspect", "--top"]):
        with pytest.raises(Exception, match=r"no such command|No such option|requires an argument"):
            read(words)
    assert len(commands(ROOT / "README.md")) >= 8


NAMES = re.compile(r"`((?:attnviz|analysis|charts|attnviz_kernels)(?:\.\w+)+)")


@pytest.mark.parametrize("page", [*PAGES, ROOT / "README.md"], ids=lambda page: str(page.relative_to(ROOT)))
def test_names_that_pages_mention_are_there(page):
    for name in NAMES.findall(page.read_text(encoding="utf-8")):
        first, *rest = name.split(".")
        thing = importlib.import_module(first if first.startswith("attnviz") else f"attnviz.{first}")
        for part in rest:
            if not hasattr(thing, part):
                thing = importlib.import_module(f"{thing.__name__}.{part}")
            else:
                thing = getattr(thing, part)
