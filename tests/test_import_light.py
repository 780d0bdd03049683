"""`import attnviz` and the command's help load nothing heavy, and nothing happens at import."""

import json
import subprocess
import sys

import pytest

HEAVY = (
    "torch",
    "transformers",
    "streamlit",
    "altair",
    "pandas",
    "triton",
    "captum",
    "gguf",
    "matplotlib",
    "playwright",
)


def loaded_after(code: str) -> set[str]:
    """Which of `HEAVY` a fresh Python holds after running the code."""
    script = f"{code}\nimport json, sys\nprint(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("code", "allowed"),
    [
        ("import attnviz", set()),
        ("import attnviz.errors, attnviz.axes, attnviz.estimate", set()),
        ("import attnviz.models", set()),
        ("from attnviz.cli.entry import run; run(['--help'])", set()),
        ("from attnviz.cli.entry import run; run(['models', '--help'])", set()),
        ("import attnviz_kernels", {"torch"}),
        ("import attnviz.trace, attnviz.storage, attnviz.recording", {"torch"}),
        ("import attnviz.analysis", {"torch"}),
    ],
)
def test_heavy_libraries_load_when_needed(code: str, allowed: set[str]) -> None:
    assert loaded_after(code) <= allowed
