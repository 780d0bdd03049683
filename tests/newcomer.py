"""The README as a newcomer follows it: a fresh clone, only the system's Python, every command and program as it stands.

Run by `scripts/newcomer`; with --tests `make test` too, which takes as long as all tests. What a command prints and
writes is looked at, and nothing else may lie in the clone at the end. Downloaded packages and models are used again.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).parents[1]
SYSTEM = "/usr/bin:/bin:/usr/sbin:/sbin"
PATIENCE = 1800
"""Seconds until a command is given up: the first one installs everything."""


def main() -> None:
    """Go through the README in a folder of its own; stops at the first thing that is not as it says."""
    with tempfile.TemporaryDirectory() as folder:
        clone = Path(folder) / "attnviz"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        env = environment(Path(folder))
        for kind, text in blocks((clone / "README.md").read_text(encoding="utf-8")):
            if kind == "sh":
                follow(text, clone, env)
            else:
                program(text, clone, env)
        left = run("git status --porcelain", clone, env).split()[1::2]
        check(set(left) == {"bank.svg", "run.attn"}, f"left in the clone: {left}")
    print("the README does what it says")


def environment(folder: Path) -> dict[str, str]:
    """Nothing of this process but where packages come from and where models are kept."""
    kept = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    (folder / "home").mkdir()
    cache = subprocess.run(
        [sys.executable, "-m", "pip", "cache", "dir"], capture_output=True, text=True, check=True
    ).stdout.strip()
    from attnviz.models import home

    places = {"HOME": str(folder / "home"), "ATTNVIZ_HOME": str(home()), "PIP_CACHE_DIR": cache}
    return {**kept, "PATH": SYSTEM, "LANG": "C.UTF-8", **places}


def blocks(text: str) -> list[tuple[str, str]]:
    """The fenced blocks that are to be run, in order."""
    return re.findall(r"```(sh|python)\n(.*?)```", text, re.DOTALL)


def follow(block: str, clone: Path, env: dict[str, str]) -> None:
    """Run the lines of a block; a line that sources a file holds for those after it."""
    sourced = ""
    for line in block.splitlines():
        command = " ".join(shlex.split(line, comments=True))
        if command.startswith(". "):
            sourced += f"{line}\n"
        elif command == "make dashboard":
            dashboard(clone, env)
        elif command != "make test" or "--tests" in sys.argv:
            out = run(sourced + line, clone, env)
            check(bool(out.strip()), f"printed nothing: {line}")
            written(line, clone)


def written(line: str, clone: Path) -> None:
    """The file named by -o is there and is what its ending says."""
    words = shlex.split(line, comments=True)
    if "-o" in words:
        content = (clone / words[words.index("-o") + 1]).read_bytes()
        check(content.startswith(b"<svg") and len(content) > 500, f"no picture was written: {line}")


def program(text: str, clone: Path, env: dict[str, str]) -> None:
    """Run a block of Python in the environment that was set up."""
    (clone / ".git" / "program.py").write_text(text, encoding="utf-8")
    run(".venv/bin/python .git/program.py", clone, env)


def dashboard(clone: Path, env: dict[str, str]) -> None:
    """Start the dashboard, open the address it prints, stop it as Ctrl-C does."""
    say("make dashboard")
    log = clone / ".git" / "dashboard.log"
    with log.open("w") as out:
        server = subprocess.Popen(
            ["make", "dashboard"], cwd=clone, env=env, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        address = wait_for(log, server)
        with urllib.request.urlopen(address, timeout=30) as answer:
            check(b"<title>" in answer.read(), f"{address} shows no page")
        say(f"{address} answers")
    finally:
        if server.poll() is None:
            os.killpg(server.pid, signal.SIGINT)
            server.wait(60)
    check("Traceback" not in log.read_text(), f"the dashboard failed:\n{log.read_text()[-3000:]}")


def wait_for(log: Path, server: subprocess.Popen[bytes]) -> str:
    """The address that the dashboard prints once it serves."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        if found := re.search(r"http://127\.0\.0\.1:\d+\S*", log.read_text()):
            return found[0]
        check(server.poll() is None, f"make dashboard ended:\n{log.read_text()[-3000:]}")
        time.sleep(1)
    raise SystemExit("make dashboard printed no address")


def run(line: str, clone: Path, env: dict[str, str]) -> str:
    """Run a line of shell; what it printed."""
    say(line.splitlines()[-1])
    start = time.monotonic()
    done = subprocess.run(
        ["sh", "-ec", line], cwd=clone, env=env, capture_output=True, text=True, timeout=4 * PATIENCE, check=False
    )
    check(done.returncode == 0, f"exit code {done.returncode}: {line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    check("Traceback" not in done.stderr, done.stderr)
    say(f"    {time.monotonic() - start:.1f} s")
    return done.stdout


def check(right: bool, complaint: str) -> None:
    if not right:
        raise SystemExit(complaint)


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
