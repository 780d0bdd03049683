"""What must not change a cause: padding and other sequences beside, the dtype, the order in which things are named."""

import copy
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from attnviz.analysis.ablation import ablate, ablate_each, knock_out
from attnviz.analysis.attention_paths import integrated_attention
from attnviz.analysis.gradients import gradients
from attnviz.analysis.measures import logit, logit_difference, loss, measured_each
from tests.tiny_models import llama

LAYERS, HEADS = 2, 4
ids_of = st.lists(st.integers(1, 200), min_size=4, max_size=9)
places = st.lists(st.tuples(st.integers(0, LAYERS - 1), st.integers(0, HEADS - 1)), min_size=1, unique=True)
examples = settings(max_examples=10, deadline=None)


@cache
def single():
    """A tiny decoder with weights large enough for heads to differ."""
    model = llama()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
    return model


@cache
def double():
    return copy.deepcopy(single()).double()


def inputs_of(ids, left=0, right=0):
    """The inputs of one text, padded by so many columns."""
    real = [0] * left + [1] * len(ids) + [0] * right
    places = [0] * left + list(range(len(ids))) + [len(ids)] * right
    rows = {"input_ids": [9] * left + list(ids) + [9] * right, "attention_mask": real, "position_ids": places}
    return {name: torch.tensor([row]) for name, row in rows.items()}


def near(value):
    return pytest.approx(value, rel=1e-6, abs=1e-8)


@given(ids_of, places, st.integers(0, 3), st.integers(0, 3), st.sampled_from(["zero", "keep"]))
@examples
def test_ablation_does_not_depend_on_padding_or_the_order_of_heads(ids, heads, left, right, how):
    last = left + len(ids) - 1
    plain = ablate(double(), inputs_of(ids), heads, logit(7, len(ids) - 1), how=how)
    padded = ablate(double(), inputs_of(ids, left, right), heads[::-1], logit(7, last), how=how)
    assert (padded.before, padded.after) == near((plain.before, plain.after))


@given(st.lists(ids_of, min_size=2, max_size=2).filter(lambda two: len(two[0]) == len(two[1])), places)
@examples
def test_each_text_of_a_batch_is_ablated_as_if_alone(texts, heads):
    batch = {"input_ids": torch.tensor(texts)}

    def second(output):
        return output.logits[1, -1, 7]

    found = ablate(double(), batch, heads, second)
    alone = ablate(double(), {"input_ids": torch.tensor(texts[1:])}, heads, logit(7))
    assert (found.before, found.after) == near((alone.before, alone.after))
    each = measured_each(double(), batch, logit(7))
    assert each[1].item() == near(alone.before)


@given(ids_of, st.data())
@examples
def test_knocked_out_links_do_not_depend_on_padding_or_order(ids, data):
    count = len(ids)
    queries = data.draw(st.lists(st.integers(1, count - 1), min_size=1, unique=True))
    keys = data.draw(st.lists(st.integers(0, count - 2), min_size=1, unique=True))
    left = data.draw(st.integers(0, 3))
    measure = logit_difference(7, 3, count - 1)
    plain = knock_out(double(), inputs_of(ids), queries, keys, measure)
    turned = knock_out(double(), inputs_of(ids), queries[::-1], keys[::-1], measure)
    moved = ([place + left for place in places] for places in (queries, keys))
    padded = knock_out(double(), inputs_of(ids, left), *moved, logit_difference(7, 3, left + count - 1))
    for other in (turned, padded):
        assert (other.before, other.after) == near((plain.before, plain.after))


@given(ids_of)
@examples
def test_single_precision_gives_the_same_causes(ids):
    inputs = {"input_ids": torch.tensor([ids])}
    tables = [ablate_each(model, inputs, logit(7)).set_index(["layer", "head"]) for model in (single(), double())]
    scale = tables[1]["change"].abs().max()
    for place, change in tables[1]["change"].items():
        assert tables[0].loc[place, "change"] == pytest.approx(change, abs=1e-4 * scale + 1e-5)
    one, two = (gradients(model, inputs, logit(7)) for model in (single(), double()))
    assert one.measure == pytest.approx(two.measure, rel=1e-4)
    close = {"atol": 1e-4 * scale + 1e-5, "rtol": 1e-3}
    for layer in range(LAYERS):
        for head in range(HEADS):
            assert_close(one.attention_gradient(layer, head).double(), two.attention_gradient(layer, head), **close)
    assert_close(one.relevance().scores.double(), two.relevance().scores.double(), **close)


@given(ids_of, st.lists(st.permutations(range(2)), min_size=LAYERS, max_size=LAYERS))
@examples
def test_causes_follow_their_head_where_heads_change_places(ids, orders):
    """The two groups of heads of each layer change places, and with them all that belongs to them."""
    moved, size = copy.deepcopy(double()), 8
    with torch.no_grad():
        for layer, order in zip(moved.model.layers, orders, strict=True):
            attention = layer.self_attn
            for part, width in ((attention.q_proj, 2 * size), (attention.k_proj, size), (attention.v_proj, size)):
                part.weight.copy_(part.weight.unflatten(0, (2, width))[list(order)].flatten(0, 1))
            columns = attention.o_proj.weight.unflatten(1, (2, 2 * size))[:, list(order)]
            attention.o_proj.weight.copy_(columns.flatten(1, 2))
    inputs = {"input_ids": torch.tensor([ids])}

    def scores(model):
        table = ablate_each(model, inputs, loss(inputs["input_ids"])).set_index(["layer", "head"])["change"]
        importance = gradients(model, inputs, logit(7)).importance().set_index(["layer", "head"])["importance"]
        carried = integrated_attention(model, inputs, logit(7), steps=4, most=4).table()
        return table, importance, carried.set_index(["layer", "head"])["score"]

    for before, after in zip(scores(double()), scores(moved), strict=True):
        for layer, order in enumerate(orders):
            for place, group in enumerate(order):
                for head in range(2):
                    assert after[(layer, 2 * place + head)] == near(before[(layer, 2 * group + head)])
