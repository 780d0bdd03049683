import pandas as pd
import pytest
import torch
from traces import make_trace

from attnviz.dashboard import runs
from attnviz.dashboard.jobs import CancelledError, Job
from attnviz.errors import UsageError


def test_heads_are_measured_layer_by_layer_as_the_trace_measures_them():
    trace, job, told = make_trace(layers=3), Job("key"), []
    job.step = lambda stage, fraction=0.0: told.append((stage, round(fraction, 2)))
    pd.testing.assert_frame_equal(runs.measure_heads(trace, job), trace.heads())
    assert told == [("Measuring every head", 0.0), ("Measuring every head", 0.33), ("Measuring every head", 0.67)]


def test_measuring_can_be_cancelled():
    job = Job("key")
    job.cancel()
    with pytest.raises(CancelledError):
        runs.measure_heads(make_trace(), job)


def test_a_twin_shares_its_weights_and_nothing_else():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    twin = runs.twin(model)
    assert [id(one) for one in twin.parameters()] == [id(one) for one in model.parameters()]
    assert [id(one) for one in twin.buffers()] == [id(one) for one in model.buffers()]
    twin[0].register_forward_hook(lambda *_: torch.zeros(1, 2))
    ones = torch.ones(1, 2)
    assert not torch.equal(model.eval()(ones), torch.zeros(1, 2))
    assert all(one is not other for one, other in zip(twin.modules(), model.modules(), strict=True))


def test_costs_come_from_the_configuration():
    from transformers import BertConfig

    model = torch.nn.Identity()
    assert runs.cost(model, 10) is None
    model.config = BertConfig(hidden_size=8, num_hidden_layers=2, num_attention_heads=2)
    rows = 2 * 10 * (2 * (4 * 4 + 4 + 32) + 2 * 4 * 4)
    assert runs.cost(model, 10).attnviz == rows


def test_a_trace_that_would_not_fit_is_refused_before_it_is_made():
    from transformers import BertConfig

    model = torch.nn.Identity()
    model.config = BertConfig()
    line = r"^the trace of this text would take .* GiB, this server keeps 2.0 GiB in all: shorten it, or start the"
    with pytest.raises(UsageError, match=line):
        runs.check_length(30_000, runs.cost(model, 30_000))


def test_a_trace_written_anew_is_another(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "locate", lambda name, settings: tmp_path / name)
    make_trace().save(tmp_path / "run.attn")
    first = runs.version_of("run.attn")
    make_trace(("a", "b")).save(tmp_path / "run.attn")
    assert runs.version_of("run.attn") != first


def test_what_is_wrong_with_a_file_is_said_of_its_name(tmp_path):
    from attnviz.errors import TraceFileError

    (tmp_path / "x.attn").write_bytes(b"")
    with pytest.raises(TraceFileError, match=r"^shown\.attn is damaged") as caught:
        runs.open_file(tmp_path / "x.attn", "shown.attn", Job("key"))
    assert str(tmp_path) not in str(caught.value)
