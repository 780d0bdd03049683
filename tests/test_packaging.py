"""The sdist and the wheel made of it: every file of the tree, data included, and usable away from the checkout."""

import os
import re
import signal
import socket
import subprocess
import sys
import sysconfig
import tarfile
import time
import tomllib
import urllib.request
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
PACKAGES = {"attnviz": ROOT / "attnviz", "attnviz_kernels": ROOT / "kernels" / "attnviz_kernels"}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source distribution of the working tree."""
    folder = tmp_path_factory.mktemp("sdist")
    code = "import sys; from scikit_build_core.build import build_sdist; build_sdist(sys.argv[1])"
    done = subprocess.run(
        [sys.executable, "-c", code, str(folder)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel built from the sdist where no compiler is found; its build folder is not the working one."""
    folder = tmp_path_factory.mktemp("wheel")
    options = ["--no-deps", "--no-build-isolation", "--no-index", "--quiet", "--disable-pip-version-check"]
    command = [sys.executable, "-m", "pip", "wheel", *options, f"-Cbuild-dir={folder / 'build'}", "-w", str(folder)]
    environment = os.environ | {"CXX": "/no/compiler"}
    done = subprocess.run([*command, str(sdist)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(folder.glob("*.whl"))


def test_sdist_has_what_a_build_and_a_reader_need(sdist: Path) -> None:
    assert sdist.stat().st_size < 3_000_000
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {"LICENSE", "README.md", "CHANGELOG.md", "constraints.txt", "docs/README.md", "kernels/native/forward.cpp"}
    assert wanted <= names
    assert not [name for name in names if name.startswith((".ci", ".venv", "build/", "docs/screenshots"))]
    assert not [name for name in names if name.endswith((".so", ".pyc", ".attn"))]


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


def test_licences_are_in_the_wheel(wheel: Path) -> None:
    """Ours, and those of the scripts that come along."""
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith(".dist-info/METADATA"))).decode()
    vendor = "attnviz/dashboard/vendor"
    files = {name.partition("/licenses/")[2] for name in names if "/licenses/" in name}
    assert files == {"LICENSE", f"{vendor}/d3.LICENSE.txt", f"{vendor}/jquery.LICENSE.txt"}
    assert "License-Expression: Apache-2.0\n" in metadata
    scripts = {path.name.partition(".")[0] for path in (ROOT / vendor).glob("*.js")}
    assert scripts == {Path(name).name.partition(".")[0] for name in files if name != "LICENSE"}


def test_version_stands_in_one_place(wheel: Path) -> None:
    import attnviz

    assert wheel.name.startswith(f"attnviz-{attnviz.__version__}-")
    releases = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert attnviz.__version__ in releases[:2]
    assert releases[0] in ("Unreleased", attnviz.__version__)
    assert PROJECT["dynamic"] == ["version"]


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of a fresh environment with the wheel; what it depends on is read from where the tests run."""
    folder = tmp_path_factory.mktemp("fresh") / "env"
    venv.create(folder, with_pip=False)
    python = folder / "bin" / "python"
    options = ["--no-deps", "--no-index", "--quiet", "--disable-pip-version-check"]
    subprocess.run([sys.executable, "-m", "pip", "--python", python, "install", *options, wheel], check=True)
    place = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        capture_output=True, text=True, check=True,
    ).stdout.strip()  # fmt: skip
    # a path file does not follow the path files of the folder it names, so the editable installation stays out
    (Path(place) / "needs.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def away(installed: Path, folder: Path, *command: str) -> str:
    """What a command of the fresh environment prints, run in an empty folder."""
    done = subprocess.run(
        [installed / command[0], *command[1:]], cwd=folder, env=CLEAN, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("minilm")
def test_commands_work_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    where = away(installed, tmp_path, "python", "-c", "import attnviz, attnviz_kernels as k; print(k.__file__)")
    assert where.startswith(str(installed.parent))
    text = "The bank of the river was muddy."
    assert "72 heads, 10 tokens" in away(installed, tmp_path, "attnviz", "inspect", "minilm", text)
    away(installed, tmp_path, "attnviz", "record", "minilm", text, "-o", "run.attn")
    for view, name in (("map", "map.html"), ("lines", "lines.html"), ("heatmap", "map.html"), ("heads", "heads.pdf")):
        away(installed, tmp_path, "attnviz", "export", "run.attn", "--view", view, "-o", name)
        assert (tmp_path / name).stat().st_size > 5_000


@pytest.mark.slow
def test_dashboard_starts_away_from_the_checkout(installed: Path, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = [installed / "attnviz", "dashboard", "--port", port]
    with (tmp_path / "log").open("w") as log:
        server = subprocess.Popen(command, cwd=tmp_path, env=CLEAN, stdout=log, stderr=subprocess.STDOUT)
    try:
        for _ in range(600):
            if f":{port}" in (tmp_path / "log").read_text() or server.poll() is not None:
                break
            time.sleep(0.1)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=30) as page:
            assert b"<title>" in page.read()
    finally:
        server.send_signal(signal.SIGINT)
        server.wait(30)
    assert "Traceback" not in (tmp_path / "log").read_text()


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
