"""Implicit attention of state-space layers against a recurrence in float64 that is written out here."""

import pytest
import torch
from torch.nn import functional as F

import attnviz
from attnviz.analysis.flow import rollout
from attnviz.analysis.implicit import implicit_attention
from attnviz.errors import RecordingError, UsageError
from attnviz.statespace import StateSpace

COUNT = 21
IDS = torch.randint(0, 40, (2, COUNT), generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def mamba():
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(
        vocab_size=40, hidden_size=12, state_size=5, num_hidden_layers=3, time_step_rank=4, time_step_scale=3.0
    )
    return MambaForCausalLM(config).eval()


def mamba2_of(groups=1):
    from transformers import Mamba2Config, Mamba2ForCausalLM

    torch.manual_seed(0)
    config = Mamba2Config(
        vocab_size=40,
        hidden_size=16,
        state_size=6,
        num_hidden_layers=2,
        num_heads=8,
        head_dim=4,
        n_groups=groups,
        chunk_size=8,
    )
    return Mamba2ForCausalLM(config).eval()


def recurrence(mixer, hidden):
    """[B, H, N, N] maps and the input u [B, H, N] of a Mamba layer, from its weights, state by state in float64."""
    double = {name: value.detach().double() for name, value in mixer.state_dict().items()}
    projected = hidden.double() @ double["in_proj.weight"].T
    stream = projected.chunk(2, -1)[0].transpose(1, 2)
    width, size = stream.shape[1], mixer.conv_kernel_size
    stream = F.conv1d(F.pad(stream, (size - 1, 0)), double["conv1d.weight"], double["conv1d.bias"], groups=width)
    given = F.silu(stream)
    states, rank = mixer.ssm_state_size, mixer.time_step_rank
    low, writer, reader = (given.transpose(1, 2) @ double["x_proj.weight"].T).split([rank, states, states], -1)
    step = F.softplus(low @ double["dt_proj.weight"].T + double["dt_proj.bias"])  # [B, N, H]
    decay = -double["A_log"].exp()
    batch, channels, count = given.shape
    maps = torch.zeros(batch, channels, count, count, dtype=torch.float64)
    for start in range(count):  # what one unit of input at `start` leaves in the states, and what is read of it
        state = step[:, start, :, None] * writer[:, start, None, :]
        for now in range(start, count):
            if now > start:
                state = state * (step[:, now, :, None] * decay).exp()
            maps[:, :, now, start] = (state * reader[:, now, None, :]).sum(-1)
    return maps, given


def inputs_of_layers(model, ids):
    """What reaches the mixer of each layer."""
    found = []
    hooks = [
        block.mixer.register_forward_pre_hook(lambda _, args: found.append(args[0].detach()))
        for block in model.backbone.layers
    ]
    with torch.no_grad():
        model(ids)
    for hook in hooks:
        hook.remove()
    return found


def test_a_map_equals_the_recurrence_of_its_channel(mamba):
    channels = [0, 7, 23]
    trace = implicit_attention(mamba, {"input_ids": IDS}, channels=channels)
    assert trace.layers == (0, 1, 2)
    for layer, hidden in enumerate(inputs_of_layers(mamba, IDS)):
        maps, given = recurrence(mamba.backbone.layers[layer].mixer, hidden)
        for batch in (0, 1):
            for channel in channels:
                head = trace.sequence(batch)[layer, channel]
                assert torch.allclose(head.weights().double(), maps[batch, channel], rtol=1e-5, atol=1e-8)
                value = trace.record(layer).value[batch, channels.index(channel)]
                assert torch.allclose(value[:, 0].double(), given[batch, channel], rtol=1e-4, atol=1e-6)


def test_map_times_input_is_the_output_of_the_scan(mamba):
    """Transformers' own scan, without its skip and gate, on what it is given."""
    from transformers.models.mamba.modeling_mamba import mamba_selective_scan

    trace = implicit_attention(mamba, {"input_ids": IDS}, channels=range(24))
    record = trace.record(1)
    view = record.view
    found = mamba_selective_scan(
        record.value[..., 0],
        view.step,
        view.decay,
        view.writer[:, 0].transpose(1, 2),
        view.reader[:, 0].transpose(1, 2),
    )
    assert torch.allclose(record.view.push(record.value)[..., 0], found, rtol=1e-4, atol=1e-7)
    dense = torch.stack([trace[1, channel].weights() for channel in range(24)])
    assert torch.allclose(dense @ record.value[0], found[0, ..., None], rtol=1e-4, atol=1e-7)


def test_without_channels_the_map_is_their_mean(mamba):
    trace = implicit_attention(mamba, {"input_ids": IDS})
    maps, _ = recurrence(mamba.backbone.layers[2].mixer, inputs_of_layers(mamba, IDS)[2])
    assert torch.allclose(trace[2, 0].weights().double(), maps[0].mean(0), rtol=1e-5, atol=1e-9)
    assert trace.record(2).notes == ("the mean of 24 channels",)
    assert trace.head_count(2) == 1


@pytest.mark.parametrize("groups", [1, 2])
def test_heads_of_mamba_2(groups):
    """map @ value + D * value is what Mamba-2 hands to its norm; the map is checked entry by entry at head 5."""
    model = mamba2_of(groups)
    trace = implicit_attention(model, {"input_ids": IDS})
    assert trace.head_count(0) == 8
    heard = {}
    mixer = model.backbone.layers[1].mixer
    hook = mixer.norm.register_forward_hook(lambda _, args, __: heard.update(scan=args[0].detach()))
    with torch.no_grad():
        model(IDS)
    hook.remove()
    record = trace.record(1)
    written = record.view.push(record.value) + mixer.D[:, None, None] * record.value
    assert torch.allclose(written.transpose(1, 2).flatten(2), heard["scan"], rtol=1e-4, atol=1e-6)
    view = record.view.select(0, 5)
    decay, step = view.decay.double()[0, 0], view.step.double()[0, 0]
    writer, reader = view.writer.double()[0, 0], view.reader.double()[0, 0]
    for query, key in ((0, 0), (9, 3), (20, 19), (20, 0)):
        wanted = (reader[query] @ writer[key]) * step[key] * (decay * step[key + 1 : query + 1].sum()).exp()
        assert view.tile(slice(query, query + 1), slice(key, key + 1)).item() == pytest.approx(wanted.item(), rel=1e-4)
    assert view.tile(slice(3, 4), slice(4, 5)).item() == 0


def random_view(rows=40, heads=3, states=4):
    draw = torch.Generator().manual_seed(3)
    decay = -torch.rand(heads, states, generator=draw) * 4
    step = torch.rand(2, heads, rows, generator=draw)
    writer, reader = torch.randn(2, 2, 1, rows, states, generator=draw)
    time = step.double().cumsum(-1)
    return StateSpace(decay, reader, time, writer, time, step)


@pytest.mark.parametrize("averaged", [False, True])
def test_every_reading_of_the_view_agrees_with_the_whole_map(averaged):
    view = random_view()
    view = view.averaged() if averaged else view
    whole = view.tile(slice(None), slice(None))
    assert whole.shape == view.shape
    assert (whole.triu(1) == 0).all()
    assert (whole < 0).any()
    part = view.crop(slice(7, 39), slice(5, 30))
    for rows, cols in ((slice(0, 32), slice(0, 25)), (slice(20, 21), slice(3, 4)), (slice(1, 30), slice(17, 22))):
        inside = whole[:, :, 7:39, 5:30][:, :, rows, cols]
        assert torch.allclose(part.tile(rows, cols), inside, rtol=1e-4, atol=1e-6)
    vector = torch.randn(2, 1, 40, 3, generator=torch.Generator().manual_seed(4))
    assert torch.allclose(view.push(vector), whole @ vector, atol=1e-5)
    assert torch.allclose(view.pull(vector), whole.transpose(-1, -2) @ vector, atol=1e-5)
    assert torch.allclose(view.received(), whole.sum(-2), atol=1e-5)
    pooled = view.pool((4, 5), slice(None), slice(None), "mean")
    assert torch.allclose(pooled, whole.unflatten(-1, (5, 8)).unflatten(-3, (4, 10)).mean((-1, -3)), atol=1e-6)
    assert view.visible()[0, 0].tolist() == list(range(1, 41))
    assert view.own_keys().tolist() == list(range(40))


def test_statistics_of_rows_that_are_no_distributions():
    view = random_view()
    whole, found = view.tile(slice(None), slice(None)), view.statistics()
    seen = whole.masked_fill(torch.ones(40, 40, dtype=torch.bool).triu(1), -torch.inf)
    assert found.entropy.isnan().all()
    assert found.distance.isnan().all()
    assert torch.allclose(found.largest, seen.amax(-1))
    assert (found.largest_key == seen.argmax(-1)).all()
    assert torch.allclose(found.own, whole.diagonal(dim1=-2, dim2=-1))
    assert torch.allclose(found.previous[..., 1:], whole.diagonal(-1, -2, -1))


def test_long_decays_do_not_overflow():
    """exp of either time alone is 0 or infinite here; of their difference it is not."""
    count = 3000
    step = torch.full((1, 1, count), 5.0)
    time = step.double().cumsum(-1)
    ones = torch.ones(1, 1, count, 1)
    view = StateSpace(torch.tensor([[-0.1]]), ones, time, ones, time, step)
    row = view.tile(slice(2900, 2901), slice(None))[0, 0, 0]
    wanted = torch.where(torch.arange(count) <= 2900, 5 * torch.exp(-0.5 * (2900 - torch.arange(count)).double()), 0)
    assert torch.allclose(row.double(), wanted, rtol=1e-5)


def test_charts_tables_and_files_take_it_like_any_trace(mamba, tmp_path):
    trace = implicit_attention(mamba, {"input_ids": IDS[:1]})
    assert attnviz.charts.heatmap(trace[0, 0]).to_dict()["title"]["text"] == "Layer 0, head 0"
    assert len(trace.heads()) == 3
    assert trace.coverage()["recorded by"].unique().tolist() == ["state space"]
    with pytest.raises(UsageError, match="layer 0 is a state-space layer, whose weights are no shares"):
        rollout(trace)
    trace.save(tmp_path / "mamba.attn")
    again = attnviz.load(tmp_path / "mamba.attn")
    assert torch.equal(again[1, 0].weights(), trace[1, 0].weights())


@pytest.mark.parametrize("kind", ["mamba", "mamba2"])
def test_padding_is_left_out(mamba, kind):
    model, mask = mamba if kind == "mamba" else mamba2_of(), torch.ones_like(IDS)
    mask[1, :4] = 0
    if kind == "mamba2":
        for layer in model.backbone.layers:  # without a bias the convolution leaves padding at zero
            torch.nn.init.normal_(layer.mixer.conv1d.bias)
    trace = implicit_attention(model, {"input_ids": IDS, "attention_mask": mask}).sequence(1)
    assert trace[0, 0].shape == (COUNT - 4, COUNT - 4)
    alone = implicit_attention(model, {"input_ids": IDS[1:, 4:]})
    for layer in trace.layers[:2]:
        assert torch.allclose(trace[layer, 0].weights(), alone[layer, 0].weights(), rtol=1e-4, atol=1e-7)


def test_a_variant_that_computes_something_else_is_refused():
    from transformers import FalconMambaConfig, FalconMambaForCausalLM

    torch.manual_seed(0)
    config = FalconMambaConfig(vocab_size=40, hidden_size=12, state_size=5, num_hidden_layers=1, time_step_rank=4)
    with pytest.raises(RecordingError, match="FalconMambaMixer of layer 0 computes something else than Mamba's recur"):
        implicit_attention(FalconMambaForCausalLM(config).eval(), {"input_ids": IDS})


def test_bad_input(mamba):
    from tests.tiny_models import llama

    inputs = {"input_ids": IDS}
    with pytest.raises(RecordingError, match="LlamaForCausalLM has no Mamba or Mamba-2 layer"):
        implicit_attention(llama(), inputs)
    with pytest.raises(UsageError, match=r"channel 24 does not exist: layer 0 has 24 \(0 to 23\)"):
        implicit_attention(mamba, inputs, channels=[1, 24])
    with pytest.raises(UsageError, match="layer 3 is no state-space layer: those of MambaForCausalLM are 0, 1, 2"):
        implicit_attention(mamba, inputs, layers=[3])
