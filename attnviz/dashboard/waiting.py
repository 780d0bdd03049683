"""Waiting for a job: short ones unseen, longer ones with progress and a way out."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextvars import ContextVar
from typing import Any

import streamlit as st
from streamlit.runtime.scriptrunner import get_script_run_ctx

from . import runs
from .cache import Cache, tensor_bytes
from .jobs import LONG, CancelledError, Job

UNSEEN = 0.8
"""Seconds a job may take before progress is shown."""

AGREED = ("confirmed", "asked")
"""Where the session keeps which long recording and which long run the visitor agreed to."""

_slot: ContextVar[Any] = ContextVar("slot")


def make_slot() -> None:
    """Keep a place at the top of the page for what comes and goes: elsewhere it would move everything after it, and
    the browser would build anew what moved."""
    _slot.set(st.empty())


def slot() -> Any:
    """That place."""
    return _slot.get()


def obtain(
    cache: Cache,
    key: Hashable,
    work: Callable[[Job], Any],
    size: Callable[[Any], int] = tensor_bytes,
    lane: str = LONG,
) -> Any:
    """The value kept under the key, made first as a job; the page stops here if that fails or is cancelled."""
    kept = cache.get(key)
    if kept is not None:
        return kept
    job = runs.queue().submit(visitor(), key, lambda job: runs.keep(cache, key, work, size, job), lane)
    if not job.wait(UNSEEN):
        _watch(job)
    if job.error is not None:
        _failed(job.error)
    runs.queue().leave(visitor())
    return job.value


def visitor() -> str:
    """The session this script runs for."""
    context = get_script_run_ctx()
    return context.session_id if context is not None else "nobody"


def _watch(job: Job) -> None:
    """Show progress until the end. A click anywhere interrupts this and runs the page anew, with the job going on."""
    place = slot()
    with place.container():
        bar = st.progress(job.fraction, text=job.stage)
        st.button("Cancel", on_click=job.cancel, key=f"cancel-{hash(job.key)}")
    while not job.wait(0.2):
        bar.progress(job.fraction, text=job.stage)
    place.empty()


def _failed(error: BaseException) -> None:
    # in the slot, so that the bar of what runs next takes its place
    with slot().container():
        if isinstance(error, CancelledError):
            _cancelled()
        if st.button("Start again"):
            runs.queue().leave(visitor())
            st.rerun()
    raise error


def _cancelled() -> None:
    """Say it once: whatever the visitor does next finds what was there before the run began."""
    runs.queue().leave(visitor())
    agreed = {key: st.session_state.pop(key) for key in AGREED if key in st.session_state}
    st.button("Start again", on_click=st.session_state.update, args=(agreed,))
    st.info("Cancelled.")
    st.stop()
