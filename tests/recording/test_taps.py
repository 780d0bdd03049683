"""Rung 4: one line in a module's forward hands over the weights it computed."""

import pytest
import torch
from torch import nn

import attnviz
from attnviz.errors import BudgetError, RecordingError

B, H, M, N = 2, 3, 4, 5


def weights(*shape, seed=0, dtype=torch.float32):
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.softmax(scores * 2, -1).to(dtype)


class Tapped(nn.Module):
    """Hands over what it is given, and uses it as it comes back."""

    def __init__(self, *taps):
        super().__init__()
        self.taps = taps or ({"name": "mix"},)

    def forward(self, *given):
        return [attnviz.tap(one, **options) for one, options in zip(given, self.taps, strict=True)]


def recorded(model, *given, **options):
    with attnviz.record(model, **options) as trace:
        model(*given)
    return trace


def whole(trace, layer=0, branch=None):
    return trace.record(layer, branch).view.tile(slice(None), slice(None))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_the_weights_are_the_trace_s(dtype):
    given = weights(B, H, M, M, dtype=dtype)
    trace = recorded(nn.Sequential(Tapped()), given)
    assert torch.equal(whole(trace), given.float())
    record = trace.record(0)
    assert (record.name, record.rung, record.kind, record.backend) == ("0.mix", "tap", "self", "model")
    entropy = -torch.xlogy(given.double(), given.double()).sum(-1)
    torch.testing.assert_close(
        trace[0, 1].entropy.double(), entropy[0, 1], atol=2e-2 if dtype.itemsize == 2 else 1e-6, rtol=0
    )


def test_nothing_happens_outside_a_recording_not_even_checks():
    given = torch.ones(3)
    assert attnviz.tap(given, name="no weights at all") is given


def test_the_weights_come_back_as_they_were_and_are_not_changed_by_what_follows():
    given = weights(B, H, M, N)
    with attnviz.record(nn.Identity()) as trace:
        back = attnviz.tap(given, name="mix", kind="cross")
        assert back is given
        want = given.clone()
        back.zero_()
    assert torch.equal(whole(trace), want)
    assert trace.record(0).name == "mix"
    assert trace.kinds == ("cross",)


def test_layer_numbers_come_from_the_place_or_from_the_caller():
    model = nn.Sequential(Tapped(), nn.Identity(), Tapped())
    with attnviz.record(model) as trace:
        model[0](weights(B, H, M, M))
        model[2](weights(B, H, M, M, seed=1))
    assert [(record.name, record.layer) for record in trace.records] == [("0.mix", 0), ("2.mix", 2)]
    taps = [{"name": "a", "layer": 7}, {"name": "b", "layer": 5}]
    assert recorded(Tapped(*taps), weights(B, H, M, M), weights(B, H, M, M)).layers == (7, 5)


def test_several_taps_in_a_module_are_branches_with_their_names():
    taps = [{"name": "left"}, {"name": "right"}, {"name": "memory", "kind": "cross"}]
    given = [weights(B, H, M, M), weights(B, H, M, M, seed=1), weights(B, H, M, N)]
    model = nn.ModuleDict({"mixer": Tapped(*taps)})
    with attnviz.record(model) as trace:
        model["mixer"](*given)
    assert trace.decoder.branches(0) == ("left", "right")
    assert torch.equal(whole(trace.decoder, 0, "right"), given[1])
    assert trace.cross.branches(0) == ()


def test_queries_after_a_cache_stand_at_the_end_of_the_keys():
    trace = recorded(Tapped(), weights(B, H, 1, N))
    assert trace[0, 0].statistics.own.item() == pytest.approx(trace[0, 0].weights()[0, N - 1].item())


@pytest.mark.parametrize(
    ("given", "options", "message"),
    [
        (
            torch.randn(B, H, M, N).abs() + 1,
            {},
            r"tap 'mix' takes weights whose rows sum to one and are not negative, but row \[0, 0, 0\] sums to .*: tap"
            " the result of softmax over the last axis, before dropout",
        ),
        (torch.tensor([1.5, -0.5]).expand(B, H, M, 2), {}, r"row \[0, 0, 0\] sums to 1: tap the result"),
        (torch.full((B, H, M, N), torch.nan), {}, "sums to nan"),
        (torch.nn.functional.dropout(weights(B, H, 40, 40), 0.5), {}, "before dropout"),
        (torch.softmax(torch.randn(B, H, M, N), -2), {}, "over the last axis"),
        (weights(H, M, N), {}, r"takes weights with 4 axes \[batch, heads, queries, keys\], got \(3, 4, 5\)"),
        (weights(B, H, M, N)[:, :, :0], {}, r"got \(2, 3, 0, 5\)"),
        (torch.ones(B, H, M, 1, dtype=torch.long), {}, r"takes floating point weights, got torch\.int64"),
        ([0.5, 0.5], {}, "takes a tensor of weights, got list"),
        (
            weights(B, H, M, N),
            {"kind": "sideways"},
            "kind must be one of self, encoder, .*, got 'sideways'",
        ),
    ],
)
def test_what_is_not_a_map_of_weights_is_refused(given, options, message):
    with pytest.raises(RecordingError, match=message) as error:
        recorded(Tapped({"name": "mix", **options}), given)
    assert "\n" not in str(error.value)


def test_queries_that_see_no_key_have_rows_of_zeros():
    given = weights(B, H, M, N)
    given[:, :, 2] = 0
    trace = recorded(Tapped(), given)
    assert torch.isnan(trace[0, 0].entropy).tolist() == [False, False, True, False]


def test_beyond_the_budget():
    with pytest.raises(BudgetError, match=r"would take the recording to 480 bytes, the budget is 400 bytes"):
        recorded(Tapped(), weights(B, H, M, N), budget=400)


def test_gradients_pass_through():
    scores = torch.randn(B, H, M, N, requires_grad=True)
    with attnviz.record(nn.Identity()):
        attnviz.tap(torch.softmax(scores, -1), name="mix")[..., 0].sum().backward()
    want = torch.softmax(scores, -1)[..., 0].sum()
    assert torch.allclose(scores.grad, torch.autograd.grad(want, scores)[0])


def test_compiled_code_has_nothing_of_it_left():
    compiled = torch.compile(
        lambda scores: attnviz.tap(torch.softmax(scores, -1), name="mix"), fullgraph=True, backend="eager"
    )
    scores = torch.randn(B, H, M, N)
    assert torch.equal(compiled(scores), torch.softmax(scores, -1))
    with attnviz.record(nn.Identity()) as trace:
        compiled(scores)
    assert torch.equal(whole(trace), torch.softmax(scores, -1))
