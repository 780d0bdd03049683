"""Words and maps without special tokens against the whole dense map."""

from dataclasses import replace

import pytest
import torch
from traces import make_trace

from attnviz.composed import Stacked
from attnviz.errors import UsageError
from attnviz.tokens import TokenAxis
from attnviz.variants import by_words, share_kept, without_special
from attnviz.views import Dense

TEXTS = ("[A]", "the", "b", "##ank", "[B]", "was", "x", "[C]")


def head_of(special, causal=False, view=None):
    trace = make_trace(TEXTS, layers=1, heads=2, causal=causal)
    axis = trace.axes["self"][0]
    tokens = tuple(replace(token, special=place in special) for place, token in enumerate(axis.tokens))
    trace.axes["self"] = (TokenAxis(tokens, axis.valid, axis.text),)
    head = trace[0, 1]
    return head if view is None else replace(head, record=replace(head.record, view=view(head.record.view)))


VIEWS = {
    "query and key": None,
    "dense": lambda view: Dense(view.tile(slice(None), slice(None))),
    "joined": lambda view: Stacked((view,), (0,), view.shape[3]),
}


@pytest.mark.parametrize("divided", [False, True])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("special", [{0}, {7}, {0, 7}, {0, 4, 7}, {4}])
@pytest.mark.parametrize("view", VIEWS)
def test_special_tokens_leave_the_map(view, special, causal, divided):
    head = head_of(special, causal, VIEWS[view])
    kept = [place for place in range(len(TEXTS)) if place not in special]
    wanted = head.weights()[kept][:, kept]
    if divided:
        wanted = torch.nan_to_num(wanted / wanted.sum(-1, keepdim=True))
    found = without_special(head, share_kept(head) if divided else None)
    assert [token.text for token in found.rows] == [TEXTS[place] for place in kept]
    torch.testing.assert_close(found.weights(), wanted, atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.weights(slice(1, 3), slice(0, 2)), wanted[1:3, :2], atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.pooled((1, 1), reduce="max")[0, 0], wanted.max(), atol=1e-6, rtol=1e-5)
    torch.testing.assert_close(found.received, wanted.sum(0), atol=1e-6, rtol=1e-5)
    vector = torch.randn(1, 1, len(kept), 2)
    torch.testing.assert_close(found.view.push(vector)[0, 0], wanted @ vector[0, 0], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(found.view.pull(vector)[0, 0], wanted.T @ vector[0, 0], atol=1e-5, rtol=1e-4)
    assert found.visible.tolist() == (wanted > 0).sum(-1).tolist()
    seen = wanted.sum(-1) > 0
    torch.testing.assert_close(found.statistics.largest[seen], wanted.max(-1).values[seen], atol=1e-6, rtol=1e-5)
    assert found.view.crop(slice(1, 3), slice(0, 1)).shape == (1, 1, 2, 1)


@pytest.mark.parametrize("view", VIEWS)
def test_a_row_with_nothing_left_is_empty(view):
    head = head_of({0}, view=VIEWS[view])
    share = share_kept(head).index_fill(0, torch.tensor([3]), 0)
    assert without_special(head, share).weights()[2].tolist() == [0.0] * 7


def test_only_special_tokens_are_refused():
    with pytest.raises(UsageError, match="there are only special tokens here: leave them in"):
        without_special(head_of(set(range(8))))


def test_words_are_a_head_of_their_own():
    trace = make_trace(("a", "ri", "ver", "bank"), layers=1, heads=1)
    axis = trace.axes["self"][0]
    spans = [(0, 1), (2, 4), (4, 7), (8, 12)]
    tokens = tuple(replace(t, start=s, end=e) for t, (s, e) in zip(axis.tokens, spans, strict=True))
    trace.axes["self"] = (TokenAxis(tokens, axis.valid, "a river bank"),)
    head = by_words(trace[0, 0])
    assert [token.label for token in head.rows] == ["a", "river", "bank"]
    assert (head.rows[1].start, head.rows[1].end) == (2, 7)
    torch.testing.assert_close(head.weights(), trace[0, 0].word_weights())
    torch.testing.assert_close(head.entropy, -(head.weights() * head.weights().log()).sum(-1))
