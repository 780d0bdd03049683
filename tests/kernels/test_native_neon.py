"""The compiled kernel's path for 64-bit ARM, cross-compiled and run under an emulator, against the definition."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from kernel_cases import (
    CASES,
    EMIT,
    GRID,
    Case,
    assert_gradients_within_budget,
    assert_within_budget,
    build,
    differentiated,
    in_double,
    named,
    of_view,
    output_of,
    plain,
    plain_output,
    window_of,
)

from attnviz_kernels import Call, Emit, Mask, Statistics, View, reference, view_of

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "kernels" / "native"
COMPILER, EMULATOR = "aarch64-linux-gnu-g++", "qemu-aarch64"
MISSING = [tool for tool in (COMPILER, EMULATOR) if shutil.which(tool) is None]
FLAGS = [
    "-std=c++17",
    "-O1",
    "-ffp-contract=off",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-function",
    f"-I{SOURCES}",
    "-DATTN_HAS_NEON",
]
TYPES = {torch.float32: 0, torch.float16: 1, torch.bfloat16: 2, torch.float64: 3, torch.bool: 4}

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        bool(MISSING), reason=f"the ARM path needs {' and '.join(MISSING)} (Debian: g++-aarch64-linux-gnu, qemu-user)"
    ),
]

VIEWS = ("received", "push", "pull", "tile", "mean", "max")
CHOSEN = [
    *CASES[3::29],
    Case("just-over", "window", "all", "heads-last"),
    Case("round", "causal", "plain", "contiguous"),
]


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> Path:
    """The test program for ARM, with the NEON and the portable path."""
    folder = tmp_path_factory.mktemp("arm")
    objects, running = [], []
    for isa in ("NEON", "PORTABLE"):
        for name in ("forward", "backward", "views"):
            objects.append(folder / f"{name}-{isa}.o")
            command = [COMPILER, *FLAGS, f"-DATTN_{isa}", "-c", str(SOURCES / f"{name}.cpp"), "-o", str(objects[-1])]
            running.append(subprocess.Popen(command))
    assert [process.wait() for process in running] == [0] * len(running)
    shared = [str(path) for path in [*SOURCES.glob("run*.cpp"), SOURCES / "parallel.cpp"]]
    here = Path(__file__).with_name("native_driver.cpp")
    program = folder / "driver"
    subprocess.run(
        [COMPILER, *FLAGS, "-static", str(here), *shared, *map(str, objects), "-o", str(program)], check=True
    )
    return program


def view_of_exact(call: Call) -> View:
    """The view of a call in float64."""
    exact = in_double(call)
    return view_of(exact, reference.attend(exact, Emit()))


def numbers_of(call: Call) -> dict[str, float]:
    batch, heads, rows, cols = call.shape
    mask: Mask = call.mask
    left, right = mask.window or (None, None)
    limits = {"left": left, "right": right, "chunk": mask.chunk}
    over_rows, over_cols, _, vector = window_of(view_of_exact(call))
    return {
        "B": batch, "H": heads, "G": call.key.shape[1], "M": rows, "N": cols, "D": call.key.shape[3],
        "E": call.value.shape[3], "scale": call.scale, "softcap": call.softcap or 0, "causal": int(mask.causal),
        "offset": mask.offset, "R": min(5, rows), "C": min(7, cols),
        "row_begin": over_rows.start, "row_end": over_rows.stop, "width": vector.shape[3],
        "col_begin": over_cols.start, "col_end": over_cols.stop,
        "grid_rows": min(GRID[0], over_rows.stop - over_rows.start),
        "grid_cols": min(GRID[1], over_cols.stop - over_cols.start),
    } | {name: -1 if limit is None else limit for name, limit in limits.items()}  # fmt: skip


def tensors_of(call: Call, output_gradient: torch.Tensor) -> dict[str, torch.Tensor]:
    mask = call.mask
    found = {name: getattr(call, name) for name in ("query", "key", "value")} | {"output_gradient": output_gradient}
    if call.bias is not None:
        found["bias"] = call.bias.expand(call.shape)
    if call.sinks is not None:
        found["sinks"] = call.sinks.float()
    if mask.dense is not None:
        found["dense"] = mask.dense.expand(call.shape)
    if mask.key_padding is not None:
        found["padding"] = mask.key_padding
    if mask.segments is not None:
        found["query_segment"], found["key_segment"] = (segment.float() for segment in mask.segments)
    _, _, queries, keys = window_of(view_of_exact(call))
    found["over_queries"], found["over_keys"] = (vector.expand(*call.shape[:2], -1, -1) for vector in (queries, keys))
    return {name: tensor.contiguous() for name, tensor in found.items()}


def write(path: Path, call: Call, output_gradient: torch.Tensor) -> None:
    with path.open("wb") as file:
        for name, value in numbers_of(call).items():
            file.write(f"number {name} {value}\n".encode())
        for name, tensor in tensors_of(call, output_gradient).items():
            strides = " ".join(map(str, (*tensor.stride(), 0, 0, 0)[:4]))
            raw = tensor.view(torch.uint8).numpy().tobytes()
            file.write(f"tensor {name} {TYPES[tensor.dtype]} {strides} {len(raw)}\n".encode() + raw)


def read(path: Path, call: Call) -> tuple[dict[str, torch.Tensor], ...]:
    """What the program left of forward pass, backward pass and the functions of a finished call, by name."""
    raw = bytearray(path.read_bytes())
    batch, heads, rows, cols = call.shape
    each, kind = (batch, heads, rows), call.query.dtype
    shapes = {"output": ((*each, call.value.shape[3]), kind), "logsumexp": (each, torch.float32)}
    order = ("entropy", "largest", "distance", "own", "previous", "first")
    assert set(order) | {"largest_key"} == set(Statistics.__dataclass_fields__)
    shapes |= dict.fromkeys(order, (each, torch.float32)) | {"largest_key": (each, torch.int64)}
    shapes["pooled"] = ((batch, heads, min(5, rows), min(7, cols)), torch.float32)
    shapes["weights"] = ((*each, cols), torch.float32)
    gradients = {name: (tuple(getattr(call, name).shape), kind) for name in ("query", "key", "value")}
    exact = of_view(view_of_exact(call), "reference")
    views = {name: (tuple(exact[name].shape), torch.float32) for name in VIEWS}
    groups, at = [], 0
    for group in (shapes, gradients, views):
        groups.append({})
        for name, (shape, dtype) in group.items():
            count = torch.Size(shape).numel()
            groups[-1][name] = torch.frombuffer(raw, dtype=dtype, count=count, offset=at).reshape(shape)
            at += count * dtype.itemsize
    assert at == len(raw)
    return tuple(groups)


@pytest.mark.parametrize("isa", ["neon", "portable"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", CHOSEN, ids=str)
def test_results_stay_within_the_error_budget(driver, tmp_path, case, dtype, isa):
    call = build(case, dtype)
    shape = (*call.query.shape[:3], call.value.shape[3])
    output_gradient = torch.randn(shape, generator=torch.Generator().manual_seed(7)).bfloat16().to(dtype)
    write(tmp_path / "in", call, output_gradient)
    subprocess.run([EMULATOR, str(driver), isa, str(tmp_path / "in"), str(tmp_path / "out")], check=True, timeout=120)
    found, gradients, views = read(tmp_path / "out", call)
    honest, honest_view = plain(call)
    exact = named(reference.attend(in_double(call), EMIT))
    assert_within_budget(found, exact, honest)
    assert_within_budget(views, exact | of_view(view_of_exact(call), "reference"), honest_view)
    true = differentiated(in_double(call), lambda call: output_of(call, "reference"))
    assert_gradients_within_budget(call, gradients, true, differentiated(call, plain_output))
