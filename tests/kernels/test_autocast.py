"""Autocast lowers what goes into a call, never the sums inside it."""

import pytest
import torch

from attnviz_kernels import Emit, Mask, attend, check, pool, pull, push, received, statistics, tile, view_of


@pytest.mark.parametrize("backend", [None, "blockwise"])
def test_nothing_changes_under_autocast(backend):
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(1, 2, 40, 16, generator=generator).requires_grad_() for _ in range(3))

    def everything():
        attended = attend(query, key, value, emit=Emit(statistics=True), backend=backend)
        gradients = torch.autograd.grad(attended.output.square().sum(), (query, key, value))
        call = check(query.detach(), key.detach(), value.detach(), None, Mask(), None, None, None, Emit())
        view, vector = view_of(call, attended), value.detach()
        after = tile(view), pool(view, (4, 4)), received(view), push(view, vector), pull(view, vector)
        return attended.output, attended.statistics.entropy, *gradients, *after, statistics(view).entropy

    plain = everything()
    with torch.autocast("cpu", torch.bfloat16):
        lowered = everything()
    torch.testing.assert_close(lowered, plain, atol=0, rtol=0)
