"""The benchmark runs and its numbers hang together; how large they are is no test's business."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCH = Path(__file__).parents[2] / "kernels" / "bench" / "attention.py"


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    path = tmp_path_factory.mktemp("bench") / "table.json"
    sizes = {
        "lengths": 32,
        "backward": 32,
        "long": 256,
        "heads": 4,
        "groups": 2,
        "size": 16,
        "repeats": 1,
        "threads": 1,
    }
    options = [f"--{name}={number}" for name, number in sizes.items()]
    command = [sys.executable, str(BENCH), *options, "--no-flex", "--backend=blockwise", f"--json={path}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


def test_every_contender_is_timed_or_says_why_not(table):
    rows = [row for row in table[0]["rows"] if row["section"] == "causal N = 32"]
    assert {row["name"] for row in rows} == {
        "torch sdpa",
        "this kernel",
        "this kernel, statistics",
        "this kernel, pooled (64, 64)",
        "this kernel, whole weights",
        "eager",
        "matrix product",
        "flex_attention",
    }
    assert all((row["milliseconds"] is None) == bool(row["note"]) for row in rows)


def test_ratios_are_those_of_the_times(table):
    rows = [row for row in table[0]["rows"] if row["section"] == "full N = 32" and not row["note"]]
    times = {row["name"]: row["milliseconds"] for row in rows}
    for row in rows:
        assert row["ratio"] == pytest.approx(row["milliseconds"] / times["torch sdpa"])
        assert row["ceiling"] == pytest.approx(times["matrix product"] / row["milliseconds"])


def test_every_section_is_drawn_with_the_machine_above_it(table):
    data, text = table
    assert text.startswith("device ")
    assert data["machine"]["backend"] == "blockwise"
    assert data["machine"]["threads"] == 1
    for section in (
        "causal N = 32",
        "backward, full N = 32",
        "forward and backward, causal N = 32",
        "one head, causal",
    ):
        assert section in text
