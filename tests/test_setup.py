"""What `make` installs: every dependency pinned, nothing fetched from an address of its own."""

import os
import re
import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SCRIPTS = sorted((ROOT / "scripts").iterdir())
LINES = (ROOT / "constraints.txt").read_text().splitlines()
PINS = dict(line.split("==") for line in LINES if line and not line.startswith("#"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def requirements() -> list[Requirement]:
    project = PROJECT["project"]
    extras = [line for extra in project["optional-dependencies"].values() for line in extra]
    return [Requirement(line) for line in (*PROJECT["build-system"]["requires"], *project["dependencies"], *extras)]


@pytest.mark.parametrize("wanted", requirements(), ids=str)
def test_dependency_is_pinned_to_a_version_that_it_allows(wanted: Requirement) -> None:
    pins = {canonicalize_name(name): version for name, version in PINS.items()}
    assert wanted.specifier.contains(pins[canonicalize_name(wanted.name)], prereleases=True)


def test_torch_is_pinned_without_naming_a_build() -> None:
    assert PINS["torch"] == "2.13.0"
    assert all("+" not in version for version in PINS.values())


@pytest.mark.parametrize("name", ["constraints.txt", "pyproject.toml", *(f"scripts/{path.name}" for path in SCRIPTS)])
def test_no_address_is_written_down(name: str) -> None:
    assert not re.search(r"://|--index-url|--extra-index|--find-links", (ROOT / name).read_text())


@pytest.mark.parametrize("script", [*SCRIPTS, ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_script_is_short_runs_and_parses(script: Path) -> None:
    assert os.access(script, os.X_OK)
    assert len(script.read_text().splitlines()) <= 30
    subprocess.run(["sh", "-n", str(script)], check=True)
