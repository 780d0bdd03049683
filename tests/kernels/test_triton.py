"""The Triton kernels without a GPU: what every backend is held to, run by Triton's interpreter.

Triton decides at its import whether it interprets, and its kernels then serve CPU tensors. So the variable is set only
for processes of their own, and in this one an unnamed call still goes to native or blockwise.
"""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from kernel_cases import CASES, DTYPES, Case, build

from attnviz_kernels import BackendError, choose, dispatch, triton_backend, triton_tiles

TABLE = "test_contract.py::test_call_and_view_stay_within_the_error_budget"
GRADIENTS = "test_gradients.py::test_gradients_stay_within_the_error_budget"


def _nodes(test, cases):
    """Test ids of cases, each in one dtype: they take turns."""
    kinds = list(DTYPES)
    return [f"{test}[triton-{case}-{kinds[i % len(kinds)]}]" for i, case in enumerate(cases)]


GROUPS = {
    "table, first half": _nodes(TABLE, CASES)[::2],
    "table, second half": _nodes(TABLE, CASES)[1::2],
    "gradients": _nodes(GRADIENTS, CASES[::9]),
    "edges": ["test_edges.py"],
}


@pytest.mark.slow
@pytest.mark.skipif(not triton_backend.installed(), reason="triton is not installed")
@pytest.mark.parametrize("group", GROUPS)
def test_the_interpreter_keeps_the_contract(group):
    options = ["-q", "-p", "triton_interpreter", "-p", "no:cacheprovider", "-k", "triton"]
    run = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *GROUPS[group]],
        cwd=Path(__file__).parent,
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
    )
    assert run.returncode == 0, run.stdout[-5000:] + run.stderr[-2000:]
    assert int(re.search(r"(\d+) passed", run.stdout)[1]) >= len(GROUPS[group])
    assert "skipped" not in run.stdout


def some_call(dtype=torch.float32, size=None):
    call = build(Case("tiny", "causal", "plain", "contiguous"), dtype)
    return call if size is None else replace(call, value=torch.zeros(2, 3, 7, size))


def test_a_machine_without_a_gpu_is_told_so(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(triton_backend, "installed", lambda: True)
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    with pytest.raises(BackendError, match=r"the triton backend cannot serve this call: no GPU was found \(TRITON_"):
        choose(some_call(), "triton")


def test_an_installation_without_triton_is_told_so(monkeypatch):
    monkeypatch.setattr(triton_backend, "installed", lambda: False)
    assert dispatch.unavailable("triton") == "triton is not installed (pip install 'attnviz[triton]')"


@pytest.mark.parametrize(
    ("call", "interpreted", "reason"),
    [
        (some_call(), "0", "it runs on GPUs, the tensors are on cpu"),
        (replace(some_call(), query=torch.zeros(2, 3, 7, 16, device="meta")), "1", "it runs on the CPU while interp"),
        (some_call(torch.float64), "1", "it computes in float32, the tensors are float64"),
        (some_call(size=257), "1", "it serves head sizes up to 256, got 257"),
    ],
    ids=["cpu", "meta", "float64", "wide"],
)
def test_what_it_cannot_serve_is_refused_with_the_reason(monkeypatch, call, interpreted, reason):
    monkeypatch.setenv("TRITON_INTERPRET", interpreted)
    assert triton_backend.refuses(call).startswith(reason)


@pytest.mark.parametrize(("size", "wide"), [(1, 16), (16, 16), (17, 32), (80, 128), (256, 256)])
def test_odd_head_sizes_are_padded(size, wide):
    assert triton_tiles.padded(size) == wide


@pytest.mark.parametrize("capability", [(8, 0), (8, 6), (8, 9), (9, 0), (10, 0), (12, 0)])
@pytest.mark.parametrize("itemsize", [2, 4])
@pytest.mark.parametrize("kernel", ["attend", "statistics", "key_value", "query", "view", "dense"])
def test_every_chip_has_its_tiles(kernel, itemsize, capability):
    for size in triton_tiles.SIZES:
        setup = triton_tiles.config(kernel, size, itemsize, capability)
        assert setup.block_m >= 16
        assert setup.block_n >= 16
