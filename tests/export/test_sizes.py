"""Pages stay small enough to be sent by mail: whole maps would take 268 MB at 8,192 tokens."""

import pytest
import torch
from traces import make_axis

from attnviz.export import figure, render
from attnviz.head import Record
from attnviz.trace import Trace
from attnviz.views import QueryKey
from attnviz_kernels import Emit, Mask, attend, check, view_of


def random_trace(count, heads):
    """One layer of a decoder on random queries and keys, whose weights pack worse than those of a model."""
    generator = torch.Generator().manual_seed(0)
    query, key = (torch.randn(1, heads, count, 32, generator=generator) for _ in range(2))
    call = check(3 * query, key, key, None, Mask(causal=True), None, None, None, Emit())
    attended = attend(call.query, key, key, mask=call.mask, emit=Emit(statistics=True))
    view = QueryKey(view_of(call, attended))
    record = Record("layers.0", 0, "self", "interface", "any", view, statistics=attended.statistics)
    words = [f"word{number * 7919 % 9973}" for number in range(count)]
    return Trace("random", [record], {"self": (make_axis(words),)})


@pytest.mark.slow
def test_page_of_a_map_of_8192_tokens():
    assert len(render(figure(random_trace(8192, 1), "map"), "html")) <= 2_000_000


@pytest.mark.slow
def test_page_of_lines_of_512_tokens(minilm):
    import attnviz

    model, tokenizer = minilm
    ids = torch.randint(1000, 29_000, (1, 512), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode(), attnviz.record(model, tokenizer=tokenizer) as trace:
        model(ids)
    assert len(render(figure(trace, "lines"), "html")) <= 12_000_000
