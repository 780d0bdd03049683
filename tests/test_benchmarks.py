"""The benchmark of saved traces prints its rows; speed itself is not tested."""

import importlib.util
import io
from pathlib import Path

from rich.console import Console
from rich.table import Table
from traces import make_trace

SCRIPT = Path(__file__).parents[1] / "benchmarks" / "traces.py"


def test_a_saved_trace_is_opened_and_drawn(tmp_path):
    spec = importlib.util.spec_from_file_location("benchmark_traces", SCRIPT)
    benchmark = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(benchmark)
    make_trace(["a"] * 80, layers=benchmark.LAYER + 1, heads=benchmark.HEAD + 1).save(tmp_path / "run.attn")
    table = Table("what", "seconds", "of processor", "size", "bound")
    benchmark.read(table, tmp_path / "run.attn")
    shown = io.StringIO()
    Console(file=shown, width=100).print(table)
    rows = ("opening", "its first map", "page of a map")
    assert [name for name in rows if name not in shown.getvalue()] == []
