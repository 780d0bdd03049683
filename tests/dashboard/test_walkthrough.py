"""What the walkthrough shows holds on the toy example, on made-up traces and on real tiny models."""

import math

import pytest
import torch
from dashboard.models import write_pair
from traces import make_trace

from attnviz import inspect, load_model
from attnviz.charts import lessons as charts
from attnviz.dashboard.walkthrough import TOPICS
from attnviz.errors import UsageError
from attnviz.export import lessons as views
from attnviz.export import shuffling

TEXT = "the cat sat . the cats sat ."


def test_the_toy_is_what_softmax_of_its_products_gives():
    head = views.toy()[0, 0]
    query, key = head.view.view.query[0, 0].double(), head.view.view.key[0, 0].double()
    expected = torch.softmax(query @ key.T / math.sqrt(4), -1)
    assert torch.allclose(head.weights().double(), expected, atol=1e-6)
    assert [token.label for token in head.rows] == list(views.TOY)


def test_gradients_vanish_without_division():
    trace = make_trace()
    table, divisor = views.gradients(trace[0, 0], 2)
    assert divisor == pytest.approx(math.sqrt(8))
    weights = trace[0, 0].weights()[2].double()
    jacobian = torch.diag(weights) - torch.outer(weights, weights)
    own = table[table["divisor"] == divisor].iloc[0]
    assert own["jacobian"] == pytest.approx(jacobian.norm().item(), abs=1e-6)
    assert own["largest"] == pytest.approx(weights.max().item(), abs=1e-6)
    assert table["jacobian"].iloc[0] < own["jacobian"]


def test_a_mask_keeps_ratios_and_gives_the_causal_map():
    free, causal = make_trace(), make_trace(causal=True)
    found = views.masked(free[1, 2])
    assert found.change < 1e-9
    assert torch.allclose(found.without.weights(), free[1, 2].weights(), atol=1e-6)
    assert torch.allclose(found.with_mask.weights(), causal[1, 2].weights(), atol=1e-6)


def test_long_texts_are_cut():
    trace = make_trace([f"w{n}" for n in range(100)], 1, 1)
    assert views.masked(trace[0, 0]).without.shape == (views.LONGEST, views.LONGEST)


@pytest.mark.parametrize("head", [0, 1])
def test_shuffling_the_toy(head):
    told, untold = shuffling.shuffled_toy(head)
    assert untold.change < 1e-6
    assert told.change > 0.05


def test_shuffling_an_encoder_matters_only_with_positions(model_folder):
    model, tokenizer = load_model(model_folder / "bert")
    told, untold = shuffling.shuffled(model, tokenizer, TEXT, (1, 2))
    assert untold.change < 1e-5
    assert told.change > 1e-4
    assert torch.allclose(told.before.weights(), inspect((model, tokenizer), TEXT)[1, 2].weights(), atol=1e-6)


def test_a_causal_mask_lets_order_in(model_folder):
    _, untold = shuffling.shuffled(*load_model(model_folder / "llama"), TEXT, (0, 1))
    assert untold.change > 1e-3


def test_encoder_decoder_models_are_not_shuffled(tmp_path):
    model, tokenizer = load_model(write_pair(tmp_path) / "t5")
    with pytest.raises(UsageError, match=r"^tokens are shuffled for models of one text: give an encoder or a decoder$"):
        shuffling.shuffled(model, tokenizer, TEXT, (0, 0))


def test_an_order_is_the_same_every_time_and_keeps_what_is_fixed():
    order = shuffling.order_of(7, [0, 6])
    assert sorted(order) == list(range(7))
    assert (order[0], order[6]) == (0, 6)
    assert order == shuffling.order_of(7, [0, 6])
    assert order != list(range(7))


def test_one_head_for_many():
    trace = make_trace(heads=3)
    table = views.one_or_many(trace[1, 0])
    entropies = [trace[1, head].entropy.mean().item() for head in range(3)]
    assert table[table["head"] >= 0]["entropy"].tolist() == pytest.approx(entropies, abs=1e-5)
    assert len(table[table["head"] < 0]) == 1


def test_a_trace_of_weights_alone_is_refused():
    from traces import trace_of

    trace = trace_of([[[[1.0, 0.0], [0.5, 0.5]]]])
    for lesson in (lambda: views.masked(trace[0, 0]), lambda: views.one_or_many(trace[0, 0])):
        with pytest.raises(UsageError, match=r"^this needs query and key: of layer 0 only the weights were recorded$"):
            lesson()


@pytest.mark.parametrize("topic", TOPICS)
@pytest.mark.parametrize("on", ["Toy example", "This head"])
def test_every_topic_opens(real, topic, on):
    app = real("walkthrough", model="bert", topic=topic, on=on)
    assert not app.error
    assert not app.warning
    assert app.main.get("vega_lite_chart")
    assert app.markdown or topic == "Cost"


def test_the_cost_of_a_long_map_is_told(visit):
    table = visit("walkthrough", topic="Cost").dataframe[0].value
    last = table.iloc[-1]
    assert (last["tokens"], last["map in bytes"]) == (131072, 4 * 131072**2)


def test_figures_carry_the_tables():
    table, divisor = views.gradients(make_trace()[0, 0], 1)
    spec = charts.gradients(table, divisor).to_dict()
    assert [len(panel["layer"]) for panel in spec["vconcat"]] == [2, 2]
    from attnviz.analysis.sparsity import cost_table

    rows = [row for data in charts.cost(cost_table([1024, 2048])).to_dict()["datasets"].values() for row in data]
    assert {row["bytes"] for row in rows if row["what"] == "map in bytes"} == {4 * 1024**2, 4 * 2048**2}
    many = charts.heads_and_one(views.one_or_many(make_trace()[0, 0])).to_dict()
    assert many["title"]["text"] == "3 heads, and one in their place"
