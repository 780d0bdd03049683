"""Custom modules under threads, exceptions, compilers and nested blocks: right or refused, and left as they were."""

import threading

import pytest
import torch
from recording.layers import B, D, Layer, M, randn, recorded, stack, weights_of
from torch import nn
from torch.nn import functional as F

import attnviz
from attnviz.errors import RecordingError
from attnviz.recording import eager, watch


def test_autocast_computes_in_its_own_precision():
    model, x = stack(), randn(B, M, D)
    types = []

    class Look(nn.Module):
        def forward(self, x):
            query = x[:, None].float()
            out = F.scaled_dot_product_attention(query, query, query)
            types.append(out.dtype)
            return out

    look = Look()
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        plain = model(x), look(x)
        with attnviz.record(model) as trace, attnviz.record(look):
            output = model(x), look(x)
    torch.testing.assert_close(output, plain, atol=2e-2, rtol=2e-2)
    assert types == [torch.bfloat16] * 2
    torch.testing.assert_close(weights_of(trace).sum(-1), torch.ones(B, 1, M), atol=1e-6, rtol=0)


def test_inference_mode():
    model, x = stack(), randn(B, M, D)
    with torch.inference_mode():
        trace = recorded(model, x)
    torch.testing.assert_close(weights_of(trace), weights_of(recorded(model, x)), atol=1e-6, rtol=0)


@pytest.mark.parametrize("warm", [True, False])
def test_compiled_models(warm):
    model, x = stack(), randn(B, M, D)
    compiled, runs = torch.compile(model, backend="eager"), []
    if warm:
        compiled(x)
    with attnviz.record(compiled) as trace:
        runs.append(compiled(x))
    runs.append(compiled(x))
    torch.testing.assert_close(runs[0], runs[1], atol=1e-6, rtol=0)
    assert [record.layer for record in trace.records] == [0, 1, 2]
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_the_compiler_stays_off_until_the_last_of_several_blocks_ends():
    torch.compile(stack(), backend="eager")(randn(B, M, D))
    first, second = eager.uncompiled(), eager.uncompiled()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch._dynamo.eval_frame._stance.stance == "force_eager"
    second.__exit__(None, None, None)
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_nested_recorders_of_one_model_and_of_two():
    inner, x = stack(), randn(B, M, D)
    outer = nn.Sequential(inner, Layer())
    want = recorded(outer, x)
    with attnviz.record(outer) as whole, attnviz.record(inner) as part, attnviz.record(outer) as again:
        outer(x)
    assert [record.name for record in whole.records] == ["0.1.0", "0.1.1", "0.1.2", "1"]
    assert [record.name for record in part.records] == ["1.0", "1.1", "1.2"]
    for number in range(3):
        torch.testing.assert_close(whole.records[number].view.view.query, part.records[number].view.view.query)
    for trace in (whole, again):
        torch.testing.assert_close(weights_of(trace, 2), weights_of(want, 2))


def test_two_threads_record_two_models():
    models, x, traces = [stack(), stack(depth=2)], randn(B, M, D), {}
    barrier = threading.Barrier(2)

    def run(number):
        with attnviz.record(models[number]) as trace:
            barrier.wait(30)
            models[number](x)
            barrier.wait(30)
        traces[number] = trace

    threads = [threading.Thread(target=run, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for number in range(2):
        torch.testing.assert_close(weights_of(traces[number], 1), weights_of(recorded(models[number], x), 1))
        assert len(traces[number].records) == len(models[number][1])


def test_a_model_run_in_another_thread_is_not_taken_for_recorded():
    def elsewhere(model, x):
        with attnviz.record(model):
            thread = threading.Thread(target=model, args=(x,))
            thread.start()
            thread.join(60)

    with pytest.raises(RecordingError, match="Sequential did not run inside the block in this thread"):
        elsewhere(stack(), randn(B, M, D))


def state(model):
    return {
        "hooks": [
            (dict(module._forward_hooks), dict(module._forward_pre_hooks), dict(module._forward_hooks_always_called))
            for module in model.modules()
        ],
        "members": [sorted(module.__dict__) for module in model.modules()],
        "modes": torch.overrides._get_current_function_mode_stack(),
        "watching": watch._watching.get(),
        "functions": (F.scaled_dot_product_attention, F.multi_head_attention_forward, nn.MultiheadAttention.forward),
        "fast": torch.backends.mha.get_fastpath_enabled(),
        "stance": torch._dynamo.eval_frame._stance.stance,
    }


class Failing(nn.Module):
    error: BaseException | None = None

    def forward(self, x):
        if self.error is not None:
            raise self.error
        return x


@pytest.mark.parametrize("error", [None, ValueError("stop"), KeyboardInterrupt()])
def test_everything_is_as_before_also_after_an_exception(error):
    failing = Failing()
    model = nn.Sequential(*stack(), nn.TransformerEncoderLayer(D, 2, 8, batch_first=True), failing)
    own = model[0].register_forward_hook(lambda module, args, output: None)
    failing.error = error
    before, x = state(model), randn(B, M, D)
    if error is None:
        recorded(model, x)
    else:
        with pytest.raises(type(error)):
            recorded(model, x)
    assert state(model) == before
    own.remove()


def test_recording_goes_on_after_an_exception_that_the_block_survives():
    failing = Failing()
    model, x = nn.Sequential(*stack(), failing), randn(B, M, D)
    with attnviz.record(model) as trace:
        for failing.error in (KeyboardInterrupt(), ValueError("stop"), None):
            try:
                model(x)
            except (KeyboardInterrupt, ValueError):
                continue
    assert [record.name for record in trace.records] == ["1.0", "1.1", "1.2"]


@pytest.mark.filterwarnings("ignore:.*torch.jit")
def test_models_that_cannot_be_heard_are_refused_before_they_run():
    scripted = torch.jit.script(nn.Linear(D, D))
    with pytest.raises(RecordingError, match="is TorchScript, whose calls cannot be heard"), attnviz.record(scripted):
        pytest.fail("the block must not run")
    parallel = nn.DataParallel(stack())
    parallel.device_ids = [0, 1]
    with pytest.raises(RecordingError, match=r"record model\.module instead"), attnviz.record(parallel):
        pytest.fail("the block must not run")


def test_a_wrapper_for_one_device_works():
    trace = recorded(nn.DataParallel(stack()), randn(B, M, D))
    assert trace.records[0].name == "module.1.0"


class Whole(nn.Module):
    """A model whose own forward attends, with projections that look like an attention module's."""

    def __init__(self):
        super().__init__()
        self.q_proj, self.k_proj, self.v_proj = (nn.Linear(D, D) for _ in range(3))

    def forward(self, x):
        query, key, value = (project(x)[:, None] for project in (self.q_proj, self.k_proj, self.v_proj))
        return F.scaled_dot_product_attention(query, key, value)[:, 0]


def encoder():
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(D, 2, 16, batch_first=True), 2).eval()


@pytest.mark.parametrize("make", [Whole, lambda: torch.compile(encoder(), backend="eager")])
def test_what_was_recorded_is_not_called_unrecorded(make):
    with torch.no_grad():
        trace = recorded(make(), randn(B, M, D))
    assert trace.layers
    assert not trace.unrecorded
