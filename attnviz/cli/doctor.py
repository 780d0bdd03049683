"""`attnviz doctor`: what is on this machine, what is missing, and what that means."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path

import typer

from . import output

Row = tuple[str, str]

_PACKAGES = {
    "torch": "",
    "transformers": "",
    "altair": "",
    "vl-convert-python": "",
    "triton": "triton",
    "streamlit": "dashboard",
    "captum": "attribution",
    "gguf": "gguf",
    "accelerate": "gguf",
}
"""What to report, and the extra that brings it."""

_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_FLAGS = ("avx2", "fma", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve")


def register(app: typer.Typer) -> None:
    """Add `doctor` to the application."""
    app.command(epilog="Example: attnviz doctor")(doctor)


def doctor() -> None:
    """Versions, processor, memory, backends, cache and browser of this machine."""
    output.table(("what", "here"), [*_versions(), *_machine(), *_backends(), *_cache(), *_browser()])


def _versions() -> Iterator[Row]:
    yield "attnviz", metadata.version("attnviz")
    yield "python", f"{platform.python_version()}, {platform.platform()}"
    for name, extra in _PACKAGES.items():
        try:
            yield name, metadata.version(name)
        except metadata.PackageNotFoundError:
            yield name, f'not installed: pip install "attnviz[{extra}]"'


def _machine() -> Iterator[Row]:
    import psutil
    import torch

    from ..estimate import readable

    capability = torch.backends.cpu.get_cpu_capability()
    flags = " ".join(flag for flag in _FLAGS if flag in _cpu_flags())
    yield "processor", f"{os.cpu_count()} cores, {torch.get_num_threads()} torch threads, {capability} ({flags})"
    memory = psutil.virtual_memory()
    yield "memory", f"{readable(memory.available)} free of {readable(memory.total)}"
    gpus = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    yield "GPU", ", ".join(gpus) or "none that torch can use"


def _cpu_flags() -> list[str]:
    """The processor's own words for what it can do; none where the system does not tell."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    return next((line.split() for line in lines if line.lower().startswith(("flags", "features"))), [])


def _backends() -> Iterator[Row]:
    from attnviz_kernels import BACKENDS, unavailable

    for name in BACKENDS:
        yield f"backend {name}", unavailable(name) or "ready"


def _cache() -> Iterator[Row]:
    from ..estimate import readable
    from ..models import BUNDLED, home

    folder = home()
    there = next(parent for parent in (folder, *folder.parents) if parent.exists())
    writable = "" if os.access(there, os.W_OK) else ", cannot be written: let ATTNVIZ_HOME name another folder"
    yield "cache", f"{folder}, {readable(shutil.disk_usage(there).free)} free{writable}"
    for name, model in BUNDLED.items():
        yield f"model {name}", "fetched" if model.fetched else f"not fetched: attnviz models fetch {name}"


def _browser() -> Iterator[Row]:
    found = next((path for name in _BROWSERS if (path := shutil.which(name))), None)
    yield "browser for tests", found or "none: apt-get install chromium chromium-driver"
