import signal

import pytest
import torch

from attnviz_kernels import blockwise_tiles

UNWRITTEN = -77


def _spoiled(make):
    def spoil(*args, **kwargs):
        tensor = make(*args, **kwargs)
        return tensor.fill_(
            torch.nan if tensor.is_floating_point() else UNWRITTEN if tensor.dtype != torch.bool else True
        )

    return spoil


@pytest.fixture(autouse=True)
def spoiled_memory(monkeypatch):
    """Every tensor that a backend makes without values holds NaN (or -77): a cell left unwritten is seen."""
    with torch.device("meta"):  # torch remembers its constructors at the first use of this: not the spoiled ones
        torch.empty(0)
    for owner, name in ((torch, "empty"), (torch, "empty_like"), (torch, "empty_strided"), (torch.Tensor, "new_empty")):
        monkeypatch.setattr(owner, name, _spoiled(getattr(owner, name)))


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def small_tiles(monkeypatch):
    """The smallest tiles, 16 x 64, so that even short calls take several."""
    monkeypatch.setattr(blockwise_tiles, "CACHED", 0)


@pytest.fixture
def interruptible():
    """Ctrl-C raises KeyboardInterrupt, also in workers that run tests in parallel and ignore the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)
