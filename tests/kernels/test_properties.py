"""Calls drawn at random: whatever combination of shape, mask and options keeps the contract keeps the budget."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kernel_cases import (
    DTYPES,
    EMIT,
    LAYOUTS,
    assert_gradients_within_budget,
    assert_within_budget,
    attended,
    backends,
    differentiated,
    in_double,
    laid_out,
    named,
    of_view,
    output_of,
    plain,
    plain_output,
    truth,
)

from attnviz_kernels import Mask, check, view_of

counts = st.integers(0, 40) | st.none()
numbers = st.floats(0.01, 3)


@st.composite
def calls(draw):
    """A call of at most 3 sequences, 6 heads, 40 queries and 150 keys."""
    dtype = DTYPES[draw(st.sampled_from(sorted(DTYPES)))]
    batch, groups, repeat = (draw(st.integers(1, most)) for most in (3, 3, 2))
    rows, keys = draw(st.integers(1, 40)), draw(st.integers(1, 150))
    size, values = draw(st.integers(16, 70)), draw(st.integers(16, 70))
    heads = groups * repeat
    g = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))

    def random(*axes):
        return laid_out(torch.randn(*axes, generator=g).to(dtype), draw(st.sampled_from(LAYOUTS)))

    def broadcast():
        axes = [draw(st.sampled_from([1, length])) for length in (batch, heads, rows, keys)]
        return torch.randn(axes, generator=g)[(0,) * draw(st.integers(0, 2)) if axes[0] == axes[1] == 1 else ()]

    def padding():
        return torch.rand(batch, keys, generator=g) < draw(st.sampled_from([0.05, 0.5, 0.95]))

    def segments():
        ids = torch.randint(0, draw(st.integers(1, 4)), (batch, max(rows, keys)), generator=g)
        ids = ids.sort(1).values if draw(st.booleans()) else ids
        return ids[:, :rows], ids[:, :keys]

    def dense():
        kept = broadcast()
        return kept > -0.5 if draw(st.booleans()) else kept.masked_fill(kept < -1, -torch.inf).to(dtype)

    def maybe(make):
        return make() if draw(st.booleans()) else None

    mask = Mask(
        causal=draw(st.booleans()),
        offset=draw(st.integers(0, 60)),
        window=maybe(lambda: (draw(counts), draw(counts))),
        chunk=maybe(lambda: draw(st.integers(1, 80))),
        key_padding=maybe(padding),
        segments=maybe(segments),
        dense=maybe(dense),
    )
    return check(
        random(batch, heads, rows, size),
        random(batch, groups, keys, size),
        random(batch, groups, keys, values),
        scale=maybe(lambda: draw(numbers) / size**0.5),
        mask=mask,
        softcap=maybe(lambda: draw(numbers)),
        bias=maybe(lambda: broadcast().to(dtype)),
        sinks=maybe(lambda: torch.randn(heads, generator=g).to(dtype)),
        emit=EMIT,
    )


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("backend", backends())
@settings(
    max_examples=150,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(call=calls())
def test_any_combination_keeps_the_budget(backend, call):
    (true, true_view), (honest, honest_view) = truth(call), plain(call)
    result = attended(call, backend)
    assert_within_budget(named(result), true, honest)
    assert_within_budget(of_view(view_of(call, result), backend), true_view, honest_view)
    found = differentiated(call, lambda same: output_of(same, backend), backend)
    exact = differentiated(in_double(call), lambda same: output_of(same, "reference"))
    assert_gradients_within_budget(call, found, exact, differentiated(call, plain_output))
