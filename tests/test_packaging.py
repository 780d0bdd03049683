"""The wheel: every file of the source tree, data included, and usable where there was no C++ compiler."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGES = {"attnviz": ROOT / "attnviz", "attnviz_kernels": ROOT / "kernels" / "attnviz_kernels"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built where no compiler is found; its build folder is not the working one."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, f"-Cbuild-dir={folder / 'build'}", "-w", str(folder)]
    environment = os.environ | {"CXX": "/no/compiler"}
    done = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_wheel_holds_the_source_tree(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        built = {name for name in archive.namelist() if ".dist-info/" not in name}
    expected = {
        f"{package}/{path.relative_to(folder)}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".so")
    }
    assert built == expected


def test_license_is_in_the_wheel(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert any(name.endswith("licenses/LICENSE") for name in archive.namelist())


def test_without_a_compiler_another_backend_serves(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        "import sys, torch, attnviz, attnviz_kernels as k;"
        "assert attnviz_kernels_here(k), k.__file__;"
        "q = torch.ones(1, 1, 2, 4); print(k.unavailable('native')); print(k.attend(q, q, q).output.sum().item())"
    ).replace("attnviz_kernels_here(k)", f"k.__file__.startswith({str(tmp_path)!r})")
    # -S: without the editable installation, which would come first
    path = os.pathsep.join((str(tmp_path), sysconfig.get_path("purelib")))
    command, environment = [sys.executable, "-S", "-c", code], os.environ | {"PYTHONPATH": path}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    reason, total = done.stdout.splitlines()
    assert reason != "None"
    assert total == "8.0"


def test_git_keeps_the_data_of_the_packages() -> None:
    """A rule of .gitignore that swallows a data file leaves it out of every clone."""
    if not (ROOT / ".git").exists():
        pytest.skip("needs a git checkout")
    which = ["--others", "--ignored", "--exclude-standard"]
    command = ["git", "-C", str(ROOT), "ls-files", *which, "--", *map(str, PACKAGES.values())]
    ignored = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert [name for name in ignored if not name.endswith((".pyc", ".so"))] == []
