"""Time, memory, machine and tables: what every benchmark here needs."""

from __future__ import annotations

import ctypes
import os
import platform
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

Run = Callable[[], object]

SETTLE = 0.03
"""Seconds of rest before each sample: torch's idle threads spin for some 15 ms and would be charged to the next run."""

_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # as malloc.h numbers them


def medians(runs: dict[str, Run], repeats: int, device: torch.device) -> dict[str, float]:
    """Median seconds of each run; the runs take turns, so that a busy moment of the machine hits all alike.

    Short runs are repeated within a sample until it lasts a hundredth of a second, after one that is not timed.
    """
    counts = {name: max(1, round(0.01 / max(_seconds(run, 1, device), 1e-6))) for name, run in runs.items()}
    samples: dict[str, list[float]] = {name: [] for name in runs}
    for _ in range(repeats):
        for name, run in runs.items():
            time.sleep(SETTLE)
            if counts[name] > 1:
                run()
            samples[name].append(_seconds(run, counts[name], device))
    return {name: statistics.median(taken) for name, taken in samples.items()}


def keep_memory() -> None:
    """Let glibc keep what is freed.

    Else one run gives memory back and takes it again at every call and another never, as it happens to lie, and these
    page faults cost more than statistics do.
    """
    try:
        libc = ctypes.CDLL("libc.so.6")
    except OSError:
        return
    libc.mallopt(_TRIM_THRESHOLD, 2**31 - 1)
    libc.mallopt(_MMAP_THRESHOLD, 2**25)


def warm_up(runs: dict[str, Run], device: torch.device) -> None:
    """Run each twice, untimed: caches, autotuning, compilation."""
    for run in runs.values():
        _seconds(run, 2, device)


def _seconds(run: Run, count: int, device: torch.device) -> float:
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        run()
    _wait(device)
    return (time.perf_counter() - start) / count


def _wait(device: torch.device) -> None:
    if device.type != "cpu":
        torch.accelerator.synchronize()


def peak_memory(run: Run, device: torch.device) -> int | None:
    """Bytes that one call needs at its peak beyond what is held before it; None where that cannot be measured."""
    if device.type == "cuda":
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        run()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    return _peak_resident(run) if device.type == "cpu" else None


def _peak_resident(run: Run) -> int | None:
    """Linux can forget its high-water mark; memory that the allocator keeps for later is given back first."""
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
        before = _status("VmRSS")
        run()
        return _status("VmHWM") - before
    except OSError:
        return None


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field + ":"))


def machine(device: torch.device) -> dict[str, str | int | float]:
    """What a table of times is worth nothing without."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else _processor()
    return {
        "device": name,
        "cores": os.cpu_count() or 0,
        "threads": torch.get_num_threads(),
        "load": round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else -1,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "system": platform.platform(terse=True),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


@dataclass(frozen=True)
class Row:
    """One line of a table: a median in milliseconds, or the reason why there is none."""

    section: str
    name: str
    milliseconds: float | None = None
    ratio: float | None = None
    ceiling: float | None = None
    tflops: float | None = None
    extra_mb: float | None = None
    note: str = ""


def draw_tables(rows: list[Row], console: Console) -> None:
    """One table a section."""
    for section in dict.fromkeys(row.section for row in rows):
        table = Table(title=section, title_justify="left")
        for head in ("", "ms", "ratio", "ceiling", "TFLOP/s", "extra MB"):
            table.add_column(head, justify="left" if head == "" else "right")
        for row in (row for row in rows if row.section == section):
            numbers = (row.milliseconds, row.ratio, row.ceiling, row.tflops, row.extra_mb)
            formats = ("{:.2f}", "{:.2f}", "{:.0%}", "{:.1f}", "{:.1f}")
            cells = ["" if n is None else form.format(n) for form, n in zip(formats, numbers, strict=True)]
            table.add_row(f"{row.name}: {row.note}" if row.note else row.name, *cells)
        console.print(table)
