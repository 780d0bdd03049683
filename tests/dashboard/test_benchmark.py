import subprocess
import sys
from pathlib import Path

from traces import make_trace

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "dashboard.py"


def test_the_benchmark_prints_its_rows(tmp_path):
    make_trace([f"w{n}" for n in range(300)], layers=2, heads=2, causal=True).save(tmp_path / "short.attn")
    command = [sys.executable, BENCHMARK, "--trace", tmp_path / "short.attn", "--long", "600", "--repeats", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={"COLUMNS": "200", "PATH": ""})
    assert done.returncode == 0, done.stderr[-2000:]
    rows = ("page start (short.attn, 300 tokens)", "another head", "4 thumbnails", "overview of a head (600 tokens")
    assert [name for name in rows if name not in done.stdout] == []
