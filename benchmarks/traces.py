"""Saved traces and exported pages: how long they take to open, and how large they are.

    python benchmarks/traces.py                     # SmolLM2 at 8,192 tokens, MiniLM at 128 and 512
    python benchmarks/traces.py --length 512        # a short one

The trace is saved with queries and keys in float16 and opened again in the same process, so that the libraries
are loaded; the file was just written and is in the system's cache. Seconds are of the clock, and of the processor.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import attnviz
from attnviz.estimate import readable
from attnviz.export import figure, render

LAYER, HEAD = 7, 3


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=8192, help="tokens of the saved trace")
    args = parser.parse_args()
    table = Table("what", "seconds", "of processor", "size", "bound")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.attn"
        save(table, path, args.length)
        read(table, path)
    lines(table)
    Console().print(table)
    Console().print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")


def save(table: Table, path: Path, length: int) -> None:
    """Record SmolLM2 on random tokens and save."""
    model, _ = attnviz.load_model("smollm2")
    with torch.inference_mode(), attnviz.record(model.model) as trace:
        model.model(random_ids(length), use_cache=False)
    taken, _ = timed(lambda: trace.save(path, dtype=torch.float16))
    table.add_row(f"SmolLM2, {length:,} tokens: saving", *taken, readable(path.stat().st_size), "")


def read(table: Table, path: Path) -> None:
    """Open the trace, then draw one head: the first map after opening, and its page with a deep zoom."""
    attnviz.charts.heatmap(attnviz.load(path)[0, 0]).to_dict()  # loads the libraries
    taken, trace = timed(lambda: attnviz.load(path))
    table.add_row("opening", *taken, "", "1 s")
    taken, _ = timed(lambda: attnviz.charts.heatmap(trace[LAYER, HEAD]).to_dict())
    table.add_row("its first map", *taken, "", "1 s")
    taken, page = timed(lambda: render(figure(trace, "map", LAYER, HEAD), "html"))
    table.add_row("page of a map", *taken, f"{len(page) / 1e6:.2f} MB", "2 MB")


def lines(table: Table) -> None:
    """Sizes of the page of lines for the 72 heads of MiniLM."""
    model, tokenizer = attnviz.load_model("minilm")
    for length, bound in ((128, "1.1 MB"), (512, "12 MB")):
        with torch.inference_mode(), attnviz.record(model, tokenizer=tokenizer) as trace:
            model(torch.randint(1000, 29_000, (1, length), generator=torch.Generator().manual_seed(0)))
        taken, page = timed(lambda trace=trace: render(figure(trace, "lines"), "html"))
        table.add_row(f"page of lines, 72 heads, {length} tokens", *taken, f"{len(page) / 1e6:.2f} MB", bound)


def random_ids(length: int) -> torch.Tensor:
    """Ids [1, length]: nothing repeats, so that maps do not pack better than those of a text."""
    return torch.randint(5, 40_000, (1, length), generator=torch.Generator().manual_seed(0))


def timed(run: Callable[[], Any]) -> tuple[list[str], Any]:
    """Seconds of the clock and of the processor, and what came of it."""
    clocks = (time.perf_counter, time.process_time)
    start = [clock() for clock in clocks]
    found = run()
    return [f"{clock() - before:.2f}" for clock, before in zip(clocks, start, strict=True)], found


if __name__ == "__main__":
    main()
