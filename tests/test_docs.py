"""Links of the documentation lead somewhere, its programs run, and every error has its page."""

import inspect
import re
import shlex
from pathlib import Path

import pytest
import reference

from attnviz import errors
from attnviz.cli import entry as cli

ROOT = Path(__file__).parents[1]
PAGES = [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "kernels" / "README.md", ROOT / "CONTRIBUTING.md"]
QUICK_START = (ROOT / "docs" / "quick-start.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)#\s]+)\)", page.read_text(encoding="utf-8")):
        assert target.startswith("https://") or (page.parent / target).exists(), target


def test_every_error_has_its_page():
    classes = [name for name, found in inspect.getmembers(errors, inspect.isclass) if name != "AttnvizError"]
    assert {page.stem for page in (ROOT / "docs" / "errors").glob("*.md")} == {*classes, "README"}


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


def test_quick_start_runs(minilm, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for line in re.findall(r"```sh\n(.*?)```", QUICK_START, re.DOTALL)[0].splitlines():
        assert cli.run(shlex.split(line)[1:]) == 0, line
    exec(compile(re.findall(r"```python\n(.*?)```", QUICK_START, re.DOTALL)[0], "quick start", "exec"), {})
    assert "bank" in capsys.readouterr().out
