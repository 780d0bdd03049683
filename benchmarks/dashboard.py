"""How fast the dashboard answers, on the server's side: pages, heads, tiles and thumbnails, short and long.

    python benchmarks/dashboard.py                          # SmolLM2 at 4,096 tokens; random q and k at 32,768
    python benchmarks/dashboard.py --trace run.attn         # a saved trace instead of the first
    python benchmarks/dashboard.py --long 131072            # another length for the second

Medians and worst cases of wall-clock time, with the time that this process had a processor for beside them.
"""

from __future__ import annotations

import argparse
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table
from starlette.applications import Starlette
from starlette.testclient import TestClient
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

import attnviz
from attnviz import charts
from attnviz.dashboard import jobs, runs, settings, tiles
from attnviz.dashboard.grants import grants
from attnviz.dashboard.places import Place
from attnviz.head import Record
from attnviz.tokens import TokenAxis, positions
from attnviz.trace import Trace
from attnviz.viewer import deepest, levels
from attnviz.views import QueryKey
from attnviz_kernels import Emit, Mask, attend, check, view_of

SCRIPT = Path(settings.__file__).with_name("script.py")
TEXT = "The keeper wrote down the weather, the ships that passed and what the gulls had been doing since the morning. "


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, help="a saved trace in place of a recording of SmolLM2")
    parser.add_argument("--length", type=int, default=4096, help="tokens of that recording")
    parser.add_argument("--long", type=int, default=32768, help="tokens of the trace with random q and k")
    parser.add_argument("--repeats", type=int, default=20)
    args = parser.parse_args()
    torch.set_num_threads(1)  # as in the threads of the server that draw pages
    table = Table("", "median", "worst", "processor", "at most")
    with tempfile.TemporaryDirectory() as folder:
        short = args.trace or saved(recorded(args.length), Path(folder) / "recorded.attn")
        long = saved(made(args.long), Path(folder) / "made.attn")
        os.environ["ATTNVIZ_TRACES"] = os.pathsep.join(map(str, (short, long)))
        pages(table, short, args.repeats)
        maps(table, long, args.repeats)
    Console().print(table)
    Console().print(f"torch {torch.__version__}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")


def pages(table: Table, path: Path, repeats: int) -> None:
    """The page of the map: its start, another head, zoom; and every head as a thumbnail."""
    app = AppTest.from_file(SCRIPT, default_timeout=120)
    app._page_hash = calc_hash("map")
    app.query_params["model"] = path.name
    AppTest.from_file(SCRIPT, default_timeout=120).run()  # what the first page of a server loads
    count = f"{path.name}, {len(attnviz.load(path).tokens):,} tokens"
    row(table, f"page start ({count})", [timed(app.run)], 2.0)
    visitor = Visitor(path)
    heads = random.Random(0).sample(visitor.trace.every_head(), repeats)

    def switch(head: Any) -> None:
        app.selectbox(key="layer").set_value(head.layer)
        app.selectbox(key="head").set_value(head.head)
        app.run()
        visitor.look(head.layer, head.head)
        visitor.read("rows")
        visitor.overview()

    row(table, "another head: page, rows and the whole map", [timed(switch, head) for head in heads], 0.15)
    row(table, "a tile zoomed in", [timed(visitor.zoomed) for _ in range(repeats * 3)], 0.02)
    torch.set_num_threads(jobs.TORCH_THREADS)
    row(table, f"{len(visitor.trace.every_head())} thumbnails", [timed(charts.thumbnails, visitor.trace)], 1.5)
    torch.set_num_threads(1)


def maps(table: Table, path: Path, repeats: int) -> None:
    """Overviews of heads, each whole and until its first band, and tiles zoomed in."""
    visitor = Visitor(path)
    count = f"{visitor.trace[0, 0].shape[0]:,} tokens, random q and k"
    found = []
    for head in range(visitor.trace.head_count(0)):
        visitor.look(0, head)
        found.append(timed(visitor.overview))
    row(table, f"overview of a head ({count})", found, 3.0)
    row(table, "a tile zoomed in", [timed(visitor.zoomed) for _ in range(repeats * 3)], 0.05)


class Visitor:
    """Reads a map over HTTP, in this process."""

    def __init__(self, path: Path) -> None:
        self.trace = attnviz.load(path)
        self.wanted = runs.Wanted(path.name, "")
        runs.traces().put(self.wanted, self.trace, 1)
        self.client = TestClient(Starlette(routes=tiles.routes()))
        self.secret = grants().open()
        self.chance = random.Random(0)
        self.look(self.trace.layers[0], 0)

    def look(self, layer: int, head: int) -> None:
        """Choose the head."""
        kind = self.trace.record(layer).kind
        self.shape = self.trace[layer, head].shape
        self.name = grants().allow(self.secret, Place(self.wanted, kind, 0, layer, head))

    def read(self, path: str) -> bytes:
        """What the server answers."""
        answer = self.client.get(f"/tiles/{self.name}/{path}", headers={tiles.CAPABILITY: self.secret})
        answer.raise_for_status()
        return answer.content

    def overview(self) -> None:
        """The whole map in one tile."""
        self.read(f"{deepest(*self.shape)}/0/0")

    def zoomed(self) -> None:
        """A tile of the three finest levels, somewhere below the diagonal, that was not read before."""
        tiles.tiles().clear()
        level = self.chance.randrange(min(3, deepest(*self.shape)))
        rows, cols = levels(*self.shape)[level]
        down = self.chance.randrange(-(-rows // 256))
        self.read(f"{level}/{down}/{self.chance.randrange(min(down + 1, -(-cols // 256)))}")


def recorded(length: int) -> Trace:
    """SmolLM2 on so many tokens."""
    model, tokenizer = attnviz.load_model("smollm2")
    ids = tokenizer(TEXT * (length // 15))["input_ids"][:length]
    return attnviz.inspect((model, tokenizer), tokenizer.decode(ids))


def made(length: int, heads: int = 4) -> Trace:
    """A causal trace of random queries and keys."""
    query, key = (torch.randn(1, heads, length, 64, generator=torch.Generator().manual_seed(at)) for at in (0, 1))
    call = check(query * 2, key, query[..., :1].contiguous(), None, Mask(causal=True), None, None, None, Emit())
    attended = attend(call.query, key, call.value, mask=call.mask, emit=Emit(statistics=True))
    view = QueryKey(view_of(call, attended))
    record = Record("random", 0, "self", "interface", "native", view, statistics=attended.statistics)
    return Trace("random", [record], {"self": (TokenAxis(positions(length), slice(0, length)),)})


def saved(trace: Trace, path: Path) -> Path:
    """The trace as a file."""
    trace.save(path)
    return path


def timed(work: Callable[..., Any], *arguments: Any) -> tuple[float, float]:
    """Seconds of wall-clock and of processor time."""
    start = time.perf_counter(), time.process_time()
    work(*arguments)
    return time.perf_counter() - start[0], time.process_time() - start[1]


def row(table: Table, name: str, found: list[tuple[float, float]], most: float) -> None:
    """Add the median, the worst and the median processor time."""
    wall, processor = ([pair[at] for pair in found] for at in (0, 1))
    times = (statistics.median(wall), max(wall), statistics.median(processor), most)
    table.add_row(name, *(f"{1000 * seconds:,.1f} ms" for seconds in times))


if __name__ == "__main__":
    main()
