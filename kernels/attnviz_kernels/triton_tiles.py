"""Tile sizes for each chip, pinned: no search at run time, so the first call takes what every call takes."""

from __future__ import annotations

import os
from typing import NamedTuple


class Config(NamedTuple):
    """A tile of queries by keys, the warps that share it and the depth of its load pipeline."""

    block_m: int
    block_n: int
    warps: int
    stages: int


SIZES = (16, 32, 64, 128, 256)
"""Head sizes that kernels are compiled for; others are padded to the next one."""

_INTERPRETED = {
    32: Config(32, 64, 4, 1),
    64: Config(64, 64, 4, 1),
    128: Config(64, 32, 4, 1),
    256: Config(64, 64, 4, 1),
}
"""For the interpreter, whatever the kernel: small, so that small tests cross the borders of tiles."""

_PINNED: dict[tuple[str, int, int], dict[int, Config]] = {
    ("attend", 90, 2): {
        32: Config(128, 64, 4, 3),
        64: Config(128, 64, 8, 3),
        128: Config(128, 128, 8, 2),
        256: Config(128, 64, 8, 2),
    },
    ("attend", 80, 2): {
        32: Config(128, 64, 4, 3),
        64: Config(128, 64, 8, 3),
        128: Config(128, 64, 8, 3),
        256: Config(64, 32, 8, 2),
    },
    ("attend", 80, 4): {
        32: Config(64, 32, 4, 2),
        64: Config(64, 32, 8, 2),
        128: Config(64, 16, 8, 2),
        256: Config(32, 16, 8, 2),
    },
    ("statistics", 90, 2): {
        32: Config(128, 64, 8, 3),
        64: Config(128, 64, 8, 3),
        128: Config(128, 64, 8, 2),
        256: Config(128, 32, 8, 2),
    },
    ("statistics", 80, 2): {
        32: Config(128, 64, 8, 3),
        64: Config(128, 64, 8, 3),
        128: Config(128, 32, 8, 3),
        256: Config(64, 32, 8, 2),
    },
    ("statistics", 80, 4): {
        32: Config(64, 32, 8, 2),
        64: Config(64, 32, 8, 2),
        128: Config(64, 16, 8, 2),
        256: Config(32, 16, 8, 2),
    },
    ("key_value", 90, 2): {
        32: Config(64, 128, 8, 2),
        64: Config(64, 128, 8, 2),
        128: Config(64, 128, 8, 2),
        256: Config(64, 64, 8, 1),
    },
    ("key_value", 80, 2): {
        32: Config(64, 64, 4, 2),
        64: Config(64, 64, 8, 2),
        128: Config(64, 64, 8, 2),
        256: Config(16, 64, 8, 1),
    },
    ("key_value", 80, 4): {
        32: Config(32, 32, 4, 2),
        64: Config(32, 32, 8, 2),
        128: Config(16, 32, 8, 2),
        256: Config(16, 16, 4, 1),
    },
    ("query", 90, 2): {
        32: Config(128, 64, 8, 2),
        64: Config(128, 64, 8, 2),
        128: Config(128, 64, 8, 2),
        256: Config(64, 32, 4, 1),
    },
    ("query", 80, 2): {
        32: Config(64, 64, 4, 2),
        64: Config(128, 64, 8, 2),
        128: Config(64, 64, 8, 2),
        256: Config(64, 32, 8, 1),
    },
    ("query", 80, 4): {
        32: Config(32, 32, 4, 2),
        64: Config(32, 32, 4, 2),
        128: Config(32, 16, 4, 2),
        256: Config(16, 16, 4, 1),
    },
    ("view", 80, 2): {
        32: Config(64, 64, 8, 2),
        64: Config(64, 64, 8, 2),
        128: Config(64, 64, 8, 2),
        256: Config(64, 32, 8, 2),
    },
    ("view", 80, 4): {
        32: Config(32, 32, 8, 2),
        64: Config(32, 32, 8, 2),
        128: Config(16, 32, 8, 2),
        256: Config(16, 32, 8, 1),
    },
    ("dense", 80, 2): {
        32: Config(64, 32, 8, 2),
        64: Config(64, 32, 8, 2),
        128: Config(64, 32, 8, 2),
        256: Config(32, 32, 8, 1),
    },
    ("dense", 80, 4): {
        32: Config(32, 32, 8, 2),
        64: Config(32, 32, 8, 2),
        128: Config(32, 16, 8, 2),
        256: Config(16, 16, 8, 1),
    },
}
"""By kernel, lowest compute capability and bytes per element, then by head size. Those for 80 fit the 99 KB of shared
memory of its smaller relatives (8.6, 8.9, 12.0), those for 90 the 227 KB of 9.0 and 10.0. "dense" is for every kernel
that reads a bias or a dense mask, whose tiles take room as well."""


def interpreting() -> bool:
    """Do kernels run in Triton's interpreter, on CPU tensors? What counts is the moment triton is imported."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def padded(size: int) -> int:
    """The head size that a kernel for this one is compiled for."""
    return next(wide for wide in SIZES if wide >= size)


def config(kernel: str, size: int, itemsize: int, capability: tuple[int, int] | None) -> Config:
    """The tile for a kernel at a head size; capability None is the interpreter."""
    wide = max(padded(size), 32)
    if capability is None:
        return _INTERPRETED[wide]
    generation = 90 if capability[0] in (9, 10) and (kernel, 90, itemsize) in _PINNED else 80
    return _PINNED[kernel, generation, itemsize][wide]
