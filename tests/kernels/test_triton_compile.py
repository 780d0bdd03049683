"""The Triton kernels compiled ahead of time for chips that are not here: tensor cores, registers, shared memory.

The launches are those of real calls: the launcher compiles instead of running, with the same arguments and tiles.
"""

import pytest
import torch

from attnviz_kernels import Call, Emit, Mask, View
from attnviz_kernels.triton_tiles import interpreting

pytest.importorskip("triton")
if interpreting():
    pytest.skip("Triton interprets in this process, so it does not compile", allow_module_level=True)

pytestmark = pytest.mark.slow

HALF, SINGLE = torch.float16, torch.float32
SHARED = {80: 99 * 1024, 90: 227 * 1024}  # what one block may take: 8.0 has more, but its relatives run the same tiles
LENGTH = 2048


class _Chip:
    """As much of a Triton driver as compiling asks for."""

    def __init__(self, arch):
        from triton.backends.compiler import GPUTarget

        self.arch, self.target = arch, GPUTarget("cuda", arch, 32)

    def get_current_target(self):
        return self.target

    def get_current_device(self):
        return self.arch  # kernels compiled so far are kept by device

    def get_current_stream(self, device):
        return 0


@pytest.fixture
def compiled(monkeypatch):
    """A function of a chip and a job: runs the job and returns the kernels it would have launched, compiled."""
    import triton

    from attnviz_kernels import triton_launch

    def compile_all(arch, job, *arguments):
        kernels = []

        def launch(kernel, programs, setup, device, **values):
            options = {"num_warps": setup.warps, "num_stages": setup.stages, "enable_fp_fusion": True}
            kernels.append(kernel.warmup(**values, grid=(programs,), **options))

        monkeypatch.setattr(triton.runtime.driver, "_active", _Chip(arch))
        monkeypatch.setattr(triton_launch, "capability", lambda device: divmod(arch, 10))
        monkeypatch.setattr(triton_launch, "launch", launch)
        job(triton_launch, *arguments)
        return kernels

    return compile_all


def call_of(size, dtype, mask=Mask(causal=True), **options):
    """Grouped heads, laid out as a model's projections leave them: heads inside of positions."""
    query = torch.zeros(1, LENGTH, 8, size, dtype=dtype).transpose(1, 2)
    key, value = (torch.zeros(1, LENGTH, 4, size, dtype=dtype).transpose(1, 2) for _ in range(2))
    return Call(query, key, value, size**-0.5, mask, **options)


def forward(launch, call):
    launch.attend(call, Emit())


def statistics(launch, call):
    launch.attend(call, Emit(statistics=True))


def backward(launch, call):
    zeros = torch.zeros(call.query.shape, dtype=call.query.dtype)
    launch.backward(call, zeros, torch.zeros(call.shape[:3]), zeros, (True,) * 5)


def views(launch, call):
    view = View(call.query, call.key, torch.zeros(call.shape[:3]), call.scale, call.mask)
    whole = slice(0, LENGTH)
    launch.tile(view, whole, whole, None)
    launch.pool(view, (64, 64), whole, whole, "mean")
    launch.push(view, torch.zeros(1, 1, LENGTH, 64))
    launch.pull(view, None)


def spills(kernel):
    """Does a compiled kernel keep registers in memory?"""
    return "STL" in kernel.asm["sass"]


JOBS = {"forward": forward, "statistics": statistics, "backward": backward, "views": views}
CASES = [
    *(
        (job, arch, size, HALF)
        for job in ("forward", "statistics", "backward")
        for arch in SHARED
        for size in (32, 64, 128)
    ),
    *(("views", arch, size, HALF) for arch in SHARED for size in (64, 128)),
    *((job, arch, 128, SINGLE) for job in JOBS for arch in SHARED),
    *((job, arch, 256, HALF) for job in ("statistics", "backward") for arch in SHARED),
]


@pytest.mark.parametrize(("job", "arch", "size", "dtype"), CASES)
def test_kernels_fit_the_chip(compiled, job, arch, size, dtype):
    for kernel in compiled(arch, JOBS[job], call_of(size, dtype)):
        assert kernel.metadata.shared <= SHARED[arch], kernel.name
        assert size > 128 or not spills(kernel), f"{kernel.name} spills registers"
        if dtype == HALF and kernel.name != "delta_kernel":
            assert ("wgmma.mma_async" if arch == 90 else "mma.sync") in kernel.asm["ptx"], kernel.name


PADDING, IDS = torch.ones(1, LENGTH, dtype=torch.bool), torch.zeros(1, LENGTH, dtype=torch.int64)
OPTIONS = {
    "structure": {
        "mask": Mask(causal=True, window=(700, None), chunk=1024, key_padding=PADDING, segments=(IDS, IDS)),
        "sinks": torch.zeros(8),
    },
    "softcap": {"mask": Mask(causal=True, window=(700, None)), "softcap": 50.0},
    "dense": {"mask": Mask(dense=torch.zeros(LENGTH, LENGTH)), "bias": torch.zeros(8, 1, LENGTH)},
}


@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("arch", SHARED)
def test_masks_and_options_fit_as_well(compiled, arch, option):
    call = call_of(64, HALF, **OPTIONS[option])
    for kernel in (*compiled(arch, forward, call), *compiled(arch, backward, call)):
        assert kernel.metadata.shared <= SHARED[arch], kernel.name
        assert not spills(kernel), f"{kernel.name} spills registers"


def test_nothing_chosen_costs_nothing(compiled):
    (plain,), (watched,) = (compiled(90, job, call_of(64, HALF)) for job in (forward, statistics))
    assert plain.asm["ptx"].count("st.global") < watched.asm["ptx"].count("st.global")
    assert "abs.f32" in watched.asm["ptx"]
    assert "abs.f32" not in plain.asm["ptx"]
