"""A saved trace of a state-space layer: signed weights, no entropy, no queries and keys."""

import pytest
import torch
from traces import make_axis

from attnviz.statespace import StateSpace
from attnviz.trace import Record, Trace

WORDS = ("The", "bank", "was", "muddy", ".")


def state_space():
    draw = torch.Generator().manual_seed(0)
    step = torch.rand(1, 3, 5, generator=draw)
    writer, reader = torch.randn(2, 1, 1, 5, 4, generator=draw)
    time = step.double().cumsum(-1)
    view = StateSpace(-torch.rand(3, 4, generator=draw), reader, time, writer, time, step)
    records = [Record(f"layers.{layer}.mixer", layer, "self", "state space", "", view) for layer in range(2)]
    return Trace("mamba", records, {"self": (make_axis(WORDS),)})


@pytest.mark.parametrize("page", ["heads", "map", "entropy", "links", "compare"])
def test_pages_show_it(visit, monkeypatch, tmp_path, page):
    state_space().save(tmp_path / "run.attn")
    monkeypatch.setenv("ATTNVIZ_TRACES", str(tmp_path / "run.attn"))
    app = visit(page)
    assert not app.error
    assert not app.exception
