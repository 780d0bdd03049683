"""Long work: one queue for the whole server, with progress and cancel, outside the threads that draw pages.

The queue has lanes, so that nobody waits for somebody else's long run to read a trace or to record a short text.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from threading import Event, Lock
from typing import Any

import torch

LONG, SHORT, LOADING, READING = "long", "short", "loading", "reading"
LANES = {LONG: 1, SHORT: 1, LOADING: 1, READING: 2}
"""Jobs done at the same time: long runs of models, recordings of short texts, models that are loaded (transformers does
not load two at once), and what only reads files and traces."""

TORCH_THREADS = torch.get_num_threads()
"""Threads of one run of a model: as many as torch takes unless told."""


class CancelledError(Exception):
    """Raised inside the work at its next step once it was cancelled."""


class Job:
    """One piece of work. `stage` says what it does now, `fraction` how far it is; then `value` or `error` is there."""

    def __init__(self, key: Hashable) -> None:
        self.key = key
        self.stage = "Waiting for the runs before this one"
        self.fraction = 0.0
        self.value: Any = None
        self.error: BaseException | None = None
        self._ended = Event()
        self._cancelled = Event()

    @property
    def done(self) -> bool:
        """Whether it ended, well or not."""
        return self._ended.is_set()

    def step(self, stage: str, fraction: float = 0.0) -> None:
        """Called by the work: say where it is, and end it here if it was cancelled."""
        if self._cancelled.is_set():
            raise CancelledError
        self.stage, self.fraction = stage, fraction

    def cancel(self) -> None:
        """End at the next step."""
        self._cancelled.set()

    def wait(self, seconds: float) -> bool:
        """Wait so long for the end; whether it came."""
        return self._ended.wait(seconds)

    def run(self, work: Callable[[Job], object]) -> None:
        """Do the work; what it gives is kept in `value`, what goes wrong in `error`."""
        try:
            self.step("Starting")
            self.value = work(self)
        except BaseException as error:
            self.error = error
        finally:
            self._ended.set()


class Queue:
    """Runs the jobs of a lane in turn, at most one a visitor: asking for something else cancels the one before."""

    def __init__(self) -> None:
        # torch keeps the number per thread, and new threads take over what was set last anywhere
        prepare = partial(torch.set_num_threads, TORCH_THREADS)
        self._lanes = {lane: ThreadPoolExecutor(count, f"attnviz-{lane}", prepare) for lane, count in LANES.items()}
        self._jobs: dict[str, Job] = {}
        self._lock = Lock()

    def submit(self, visitor: str, key: Hashable, work: Callable[[Job], object], lane: str = LONG) -> Job:
        """The visitor's job of this key, running or ended, or a new one."""
        with self._lock:
            job = self._jobs.get(visitor)
            if job is not None and job.key == key:
                return job
            if job is not None:
                job.cancel()
            self._jobs[visitor] = job = Job(key)
            self._lanes[lane].submit(job.run, work)
            return job

    def leave(self, visitor: str) -> None:
        """Cancel and forget the visitor's job."""
        with self._lock:
            job = self._jobs.pop(visitor, None)
        if job is not None:
            job.cancel()


@contextmanager
def watched(model: Any, job: Job, stage: str) -> Iterator[None]:
    """Report progress, and obey cancel, between the modules of a torch model's forward pass in the block."""
    modules = [module for module in model.modules() if not list(module.children())]
    done = 0

    def before(*_: Any) -> None:
        nonlocal done
        done += 1
        job.step(stage, min(done / max(len(modules), 1), 1.0))

    handles = [module.register_forward_pre_hook(before) for module in modules]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
