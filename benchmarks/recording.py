"""What recording costs on SmolLM2: time, memory and generation speed, beside the same model without a recorder.

    python benchmarks/recording.py                          # 4,096 tokens, 256 generated after 512
    python benchmarks/recording.py --length 512 --new 32    # a short one

Runs with and without the recorder take turns, so that a busy moment of the machine hits both; ratios are of medians.
"""

from __future__ import annotations

import argparse
import gc
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import attnviz
from attnviz.estimate import estimate, readable, shape_of


def main() -> None:
    """Print one table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--length", type=int, default=4096, help="tokens of the forward pass")
    parser.add_argument("--prompt", type=int, default=512, help="tokens before generation")
    parser.add_argument("--new", type=int, default=256, help="tokens generated")
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    model, _ = attnviz.load_model("smollm2")
    table = Table("SmolLM2-135M, float32", "plain", "recorded", "ratio", "bound")
    forward(table, model, args.length, args.repeats)
    memory(table, model, args.length)
    generation(table, model, args.prompt, args.new, args.repeats)
    Console().print(table)
    Console().print(f"torch {torch.__version__}, {torch.get_num_threads()} threads")


@torch.no_grad()
def forward(table: Table, model: Any, length: int, repeats: int) -> None:
    """Seconds of a forward pass with torch's fused attention, and of the same pass recorded."""
    ids = tokens(length)

    def recorded() -> None:
        with attnviz.record(model.model):
            model.model(ids, use_cache=False)

    plain, kept = medians([lambda: model.model(ids, use_cache=False), recorded], repeats)
    table.add_row(f"forward pass, {length:,} tokens", f"{plain:.2f} s", f"{kept:.2f} s", f"{kept / plain:.3f}", "1.05")


@torch.no_grad()
def memory(table: Table, model: Any, length: int) -> None:
    """Bytes that a trace holds, beside what `estimate` says."""
    before = resident()
    with attnviz.record(model.model) as trace:
        model.model(tokens(length), use_cache=False)
    held = sum(tensor.nbytes for record in trace.records for tensor in tensors_of(record))
    grown = resident() - before
    said = estimate(shape_of(model.config), length).attnviz
    row = (f"{readable(said)} estimated", readable(held), f"{held / said:.3f}", "0.9 to 1.1")
    table.add_row(f"memory of the trace, {length:,} tokens", *row)
    trace[7, 3].pooled((256, 256))
    table.add_row("growth of the process with a pooled map", "", readable(grown), "", "1.5 GB")


@torch.no_grad()
def generation(table: Table, model: Any, prompt: int, new: int, repeats: int) -> None:
    """Seconds of greedy generation with and without a recorder, and how far the joined map is from one eager pass."""
    ids = tokens(prompt)
    options = {"max_new_tokens": new, "min_new_tokens": new, "do_sample": False}
    found: list[Any] = []

    def recorded() -> None:
        with attnviz.record(model) as trace:
            found[:] = [trace, model.generate(ids, **options)]

    plain, kept = medians([lambda: model.generate(ids, **options), recorded], repeats)
    table.add_row(f"{new} tokens after {prompt}", f"{plain:.2f} s", f"{kept:.2f} s", f"{kept / plain:.3f}", "1.10")
    off = difference(model, *found)
    table.add_row("joined map, largest difference from eager", "", f"{off:.1e}", "", "1e-4")


def difference(model: Any, trace: attnviz.Trace, sequence: torch.Tensor) -> float:
    """The largest difference between a joined map and one eager pass over the whole sequence."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    own = model.model(sequence[:, :-1], output_attentions=True, use_cache=False).attentions
    model.set_attn_implementation(before)
    found = [trace.view(layer).tile(slice(None), slice(None)) for layer in trace.layers]
    return max((one - weights).abs().max().item() for one, weights in zip(found, own, strict=True))


def tokens(length: int) -> torch.Tensor:
    """Random ids [1, length]."""
    return torch.randint(5, 40_000, (1, length), generator=torch.Generator().manual_seed(0))


def medians(runs: list[Callable[[], object]], repeats: int) -> list[float]:
    """Median seconds of each run, after one untimed turn; the runs take turns."""
    samples: list[list[float]] = [[] for _ in runs]
    for turn in range(repeats + 1):
        for run, taken in zip(runs, samples, strict=True):
            gc.collect()
            start = time.perf_counter()
            run()
            if turn:
                taken.append(time.perf_counter() - start)
    return [statistics.median(taken) for taken in samples]


def resident() -> int:
    """Bytes of memory that this process holds."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def tensors_of(record: Any) -> list[torch.Tensor]:
    """All that a record keeps."""
    view = record.view.view
    return [view.query, view.key, view.logsumexp, *vars(record.statistics).values()]


if __name__ == "__main__":
    main()
