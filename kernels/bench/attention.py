"""This kernel beside torch's own attention, eager attention, flex_attention and a plain matrix product.

    python kernels/bench/attention.py                         # a few minutes on a CPU
    python kernels/bench/attention.py --lengths 512,2048 --masks causal --backend native --isa avx2 --threads 1
    python kernels/bench/attention.py --device cuda --json table.json

One process, everything alternating, medians. `ratio` is time over that of torch's scaled_dot_product_attention: below 1
is faster. `ceiling` is the share of the rate of a plain matrix product of as many operations. `extra` is the peak
memory of a call beyond its inputs and its output. What cannot run says why.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path

import torch
from contenders import CEILING, LARGEST_MAP, OURS, TORCH, Setup, flex, product
from measure import Row, Run, draw_tables, keep_memory, machine, medians, peak_memory, warm_up
from rich.console import Console
from torch import Tensor

from attnviz_kernels import Call, Emit, Mask, View, choose, native, pool, tile


def _check(setup: Setup) -> None:
    """No speed is reported for a wrong result."""
    ours = setup.ours(Emit(statistics=True))
    torch.testing.assert_close(
        ours, setup.torch(), atol=2e-2 if setup.query.dtype != torch.float32 else 1e-4, rtol=1e-2
    )


def forward_runs(setup: Setup, with_flex: bool) -> tuple[dict[str, Run], dict[str, str]]:
    """Everything to be timed, and the reason for everything that is not."""
    runs: dict[str, Run] = {
        TORCH: setup.torch,
        OURS: partial(setup.ours, Emit()),
        f"{OURS}, statistics": partial(setup.ours, Emit(statistics=True)),
        f"{OURS}, pooled (64, 64)": partial(setup.ours, Emit(pooled=(64, 64))),
        f"{OURS}, whole weights": partial(setup.ours, Emit(weights=True)),
        "eager": setup.eager,
        CEILING: product(setup),
    }
    reasons = {}
    if setup.map_bytes > LARGEST_MAP:
        for name in (f"{OURS}, whole weights", "eager"):
            del runs[name]
            reasons[name] = f"the map takes {setup.map_bytes / 2**30:.1f} GiB"
    if not with_flex:
        return runs, reasons | {"flex_attention": "left out by --no-flex"}
    try:
        runs["flex_attention"] = flex(setup)
    except Exception as error:  # no compiler, a shape it cannot take, ...: the table says which
        reasons["flex_attention"] = str(error).partition("\n")[0]
    return runs, reasons


def forward_rows(setup: Setup, repeats: int, with_flex: bool) -> list[Row]:
    """The table of one length and mask."""
    _check(setup)
    runs, reasons = forward_runs(setup, with_flex)
    device = setup.query.device
    warm_up(runs, device)
    times = medians(runs, repeats, device)
    rows = []
    for name, seconds in times.items():
        extra = None if name == CEILING else peak_memory(runs[name], device)
        rows.append(
            Row(
                setup.section,
                name,
                milliseconds=seconds * 1e3,
                ratio=seconds / times[TORCH],
                ceiling=times[CEILING] / seconds,
                tflops=None if device.type == "cpu" else setup.flops / seconds / 1e12,
                extra_mb=None if extra is None else max(0, extra - setup.output_bytes) / 1e6,
            )
        )
    return rows + [Row(setup.section, name, note=reason) for name, reason in reasons.items()]


def backward_rows(setup: Setup, repeats: int) -> list[Row]:
    """The backward pass alone, and forward and backward together."""
    query, key, value = inputs = [part.detach().requires_grad_() for part in (setup.query, setup.key, setup.value)]
    setup = Setup(query, key, value, setup.causal, setup.backend)
    runs: dict[str, Callable[[], Tensor]] = {
        TORCH: setup.torch,
        OURS: partial(setup.ours, Emit()),
        "eager": setup.eager,
    }
    if setup.map_bytes > LARGEST_MAP:
        del runs["eager"]
    gradient = torch.randn_like(setup.torch())
    outputs = {name: run() for name, run in runs.items()}
    alone: dict[str, Run] = {
        name: partial(torch.autograd.grad, output, inputs, gradient, retain_graph=True)
        for name, output in outputs.items()
    }
    both: dict[str, Run] = {name: partial(_both, run, inputs, gradient) for name, run in runs.items()}
    rows = []
    for section, part in (("backward", alone), ("forward and backward", both)):
        times = medians(part, repeats, setup.query.device)
        for name, seconds in times.items():
            rows.append(Row(f"{section}, {setup.section}", name, seconds * 1e3, seconds / times[TORCH]))
    return rows


def _both(run: Callable[[], Tensor], inputs: list[Tensor], gradient: Tensor) -> object:
    return torch.autograd.grad(run(), inputs, gradient)


def long_rows(length: int, size: int, device: torch.device, dtype: torch.dtype, backend: str | None) -> list[Row]:
    """A tile and a pooled map of one head of a long sequence, from query, key and logsumexp alone."""
    query, key = (torch.randn(1, 1, length, size, device=device, dtype=dtype) for _ in range(2))
    likely = torch.arange(1.0, length + 1, device=device).log() + 0.5  # logsumexp of scores of variance 1
    view = View(query, key, likely[None, None], size**-0.5, Mask(causal=True))
    start, step = length // 2, min(256, length // 4)
    part = (slice(start, start + step), slice(start // 2, start // 2 + step))
    section = f"one head, causal, N = {length}"
    rows = []
    for name, run, repeats in (
        (f"tile ({step}, {step})", partial(tile, view, *part, backend=backend), 7),
        ("pool (512, 512)", partial(pool, view, (512, 512), backend=backend), 1),
    ):
        extra = peak_memory(run, device)
        seconds = medians({name: run}, repeats, device)[name]
        rows.append(Row(section, name, seconds * 1e3, extra_mb=None if extra is None else extra / 1e6))
    return rows


def arguments() -> argparse.Namespace:
    """The command line."""
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--dtype", help="float32, bfloat16 or float16 (default: float32 on a CPU, else bfloat16)")
    parser.add_argument("--lengths", help="comma-separated (default: 256 to 4096 on a CPU, 1024 to 16384 on a GPU)")
    parser.add_argument("--masks", default="causal,full")
    parser.add_argument("--batch", type=int, default=1)
    parser.add_argument("--heads", type=int, default=9)
    parser.add_argument("--groups", type=int, help="key/value heads (default: as many as heads)")
    parser.add_argument("--size", type=int, default=64, help="head size")
    parser.add_argument("--backend", help="triton, native, blockwise or reference (default: as the package chooses)")
    parser.add_argument("--isa", help="instruction set that the native backend is forced to use")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--backward", default="2048", help="lengths of the backward section; empty leaves it out")
    parser.add_argument("--long", type=int, default=131072, help="length of the tile and pool section; 0 leaves it out")
    parser.add_argument("--flex", action=argparse.BooleanOptionalAction, default=True, help="flex_attention compiles")
    parser.add_argument("--json", type=Path, help="also write all numbers to this file")
    args = parser.parse_args()
    on_cpu = args.device == "cpu"
    args.dtype = args.dtype or ("float32" if on_cpu else "bfloat16")
    args.lengths = args.lengths or ("256,512,1024,2048,4096" if on_cpu else "1024,2048,4096,8192,16384")
    return args


def measured(args: argparse.Namespace) -> list[Row]:
    """All sections."""
    device, dtype = torch.device(args.device), getattr(torch, args.dtype)

    def setup(length: int, mask: str) -> Setup:
        shape = (args.batch, args.heads, length, args.size)
        fewer = (args.batch, args.groups or args.heads, length, args.size)
        query, key, value = (torch.randn(axes, device=device).to(dtype) for axes in (shape, fewer, fewer))
        return Setup(query, key, value, mask == "causal", args.backend)

    rows = []
    for mask in args.masks.split(","):
        for length in args.lengths.split(","):
            rows += forward_rows(setup(int(length), mask), args.repeats, args.flex)
        for length in filter(None, args.backward.split(",")):
            rows += backward_rows(setup(int(length), mask), args.repeats)
    return rows + (long_rows(args.long, args.size, device, dtype, args.backend) if args.long else [])


def main() -> None:
    """Measure, draw, write."""
    args = arguments()
    keep_memory()
    if args.threads:
        torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    forced: AbstractContextManager[object] = native.force_isa(args.isa) if args.isa else nullcontext()
    one = torch.zeros(1, 1, 1, args.size, device=device, dtype=getattr(torch, args.dtype))
    backend = choose(Call(one, one, one, 1.0), args.backend)
    about = machine(device) | {"backend": backend, "isa": args.isa or "fastest", "dtype": args.dtype}
    console = Console()
    console.print(", ".join(f"{name} {value}" for name, value in about.items()))
    with forced:
        rows = measured(args)
    draw_tables(rows, console)
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "rows": [asdict(row) for row in rows]}, indent=1))


if __name__ == "__main__":
    main()
