"""The walkthrough: what Vega computes from raw scores is what the kernel's definition gives."""

import json
import re

import pytest
import torch
from traces import make_axis, make_trace

from attnviz import charts
from attnviz.charts.scaling import TOP
from attnviz.charts.scores import CELLS, scores_of
from attnviz.errors import UsageError
from attnviz.head import Record
from attnviz.trace import Trace
from attnviz.views import Dense, QueryKey
from attnviz_kernels import Emit, Mask, attend, check, view_of


def head_of(count=6, mask=None, **options):
    """A head whose call has the given options."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (2 * torch.randn(1, 1, count, 8, generator=generator) for _ in range(3))
    call = check(
        query, key, value, options.get("scale"), mask or Mask(causal=True), options.get("softcap"),
        options.get("bias"), options.get("sinks"), Emit(),
    )  # fmt: skip
    attended = attend(call.query, call.key, call.value, mask=call.mask, backend="reference", **options)
    record = Record("attention", 0, "self", "interface", "reference", QueryKey(view_of(call, attended)))
    return Trace("tiny", [record], {"self": (make_axis(["word"] * count),)})[0, 0]


def drawn(chart, divisor=None):
    """What the chart's weight bars say, per key: score, weight and the model's own weight."""
    import vl_convert

    spec = json.loads(json.dumps(chart.to_dict()).replace('".4f"', '".9f"').replace('".3f"', '".9f"'))
    if divisor is not None:
        next(param for param in spec["params"] if param["name"] == "divisor")["value"] = divisor
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    bar = r'"start: ([\d.]+); q·k, [^"]*; score: ([^;]+); weight: ([^;]+); the model\'s weight: ([^"]+)"'
    found = re.findall(bar, svg)
    assert found
    bars = {int(float(start)): tuple(float(n.replace("−", "-")) for n in numbers) for start, *numbers in found}
    words = r">query (\d+) [^<]*divisor ([\d.]+)</tspan><tspan [^>]*>entropy ([\d.]+) of at most ([\d.]+) nats<"
    return bars, re.search(words, svg)


BIAS = torch.linspace(-2, 2, 36).reshape(1, 1, 6, 6)
DENSE = torch.triu(torch.full((6, 6), -torch.inf), 1) + torch.linspace(0, 1, 6)
CALLS = {
    "plain": {},
    "own scale": {"scale": 0.7},
    "softcap": {"softcap": 3.0},
    "bias": {"bias": BIAS},
    "sink": {"sinks": torch.tensor([1.5])},
    "dense additive mask": {"mask": Mask(dense=DENSE)},
    "dense mask that only hides": {"mask": Mask(dense=torch.triu(torch.full((6, 6), -torch.inf), 1))},
    "window": {"mask": Mask(causal=True, window=(2, 0))},
    "everything": {"scale": 0.5, "softcap": 5.0, "bias": BIAS, "sinks": torch.tensor([0.5])},
}


@pytest.mark.parametrize("options", CALLS.values(), ids=CALLS)
def test_at_the_models_own_divisor_the_chart_gives_the_models_weights(options):
    head = head_of(**options)
    bars, words = drawn(charts.scaling(head))
    weights = head.weights()[5]
    assert {key for key in bars if key < 6} == {*weights.nonzero()[:, 0].tolist()}
    for key, (_, weight, own) in bars.items():
        expected = weights[key].item() if key < 6 else 1 - weights.sum().item()
        assert weight == pytest.approx(expected, abs=1e-6)
        assert own == pytest.approx(expected, abs=1e-6)
    assert words[1] == "5"
    assert float(words[3]) == pytest.approx(head.entropy[5].item(), abs=6e-4)
    assert float(words[4]) == pytest.approx(torch.log(torch.tensor(float(len(bars)))).item(), abs=6e-4)


@pytest.mark.parametrize("name", ["plain", "everything"])
@pytest.mark.parametrize("divisor", [0.4, 8.0])
def test_at_another_divisor_it_gives_what_that_scale_would(name, divisor):
    options = CALLS[name]
    bars, words = drawn(charts.scaling(head_of(**options)), divisor)
    other = head_of(**{**options, "scale": 1 / divisor})
    for key, (_, weight, _) in bars.items():
        expected = other.weights()[5][key].item() if key < 6 else 1 - other.weights()[5].sum().item()
        assert weight == pytest.approx(expected, abs=1e-6)
    assert float(words[3]) == pytest.approx(other.entropy[5].item(), abs=6e-4)


def test_the_curve_is_the_entropy_at_each_divisor():
    head = head_of(**CALLS["everything"])
    curve = scores_of(head, None).curves
    for row in curve[curve["query"] == 4].iloc[::10].itertuples():
        other = head_of(**{**CALLS["everything"], "scale": 1 / row.divisor})
        assert row.entropy == pytest.approx(other.entropy[4].item(), abs=1e-5)


@pytest.mark.parametrize(
    ("name", "formula"),
    [
        ("plain", "softmax(q·k / divisor)"),
        ("softcap", "softmax(3 tanh(q·k / divisor / 3))"),
        ("everything", "softmax(5 tanh(q·k / divisor / 5) + bias, sink)"),
        ("dense additive mask", "softmax(q·k / divisor + bias)"),
        ("dense mask that only hides", "softmax(q·k / divisor)"),
        ("window", "softmax(q·k / divisor)"),
    ],
)
def test_the_subtitle_says_which_terms_apply(name, formula):
    title = charts.scaling(head_of(**CALLS[name])).to_dict()["title"]
    assert title["subtitle"] == f"tiny · {formula}; orange: the model's own divisor"


def test_the_chosen_query_is_the_one_asked_for():
    _, words = drawn(charts.scaling(head_of(), query=2))
    assert words[1] == "2"


def test_long_texts_offer_some_queries_and_always_the_one_asked_for():
    head = make_trace(["word"] * 500, 1, 1, causal=True)[0, 0]
    scores = scores_of(head, 123)
    assert len(scores.cells) <= CELLS + 1000
    assert {0, 123, 499} <= {*scores.rows}
    assert charts.scaling(head, query=123).to_dict()["params"]


def test_same_chart_twice_is_the_same_spec():
    head = head_of()
    assert charts.scaling(head).to_dict() == charts.scaling(head).to_dict()


def test_weights_without_query_and_key():
    head = Trace("dense", [Record("a", 3, "self", "outputs", "dense", Dense(torch.eye(3)[None, None]))])[3, 0]
    with pytest.raises(UsageError, match=r"^the walkthrough needs query and key: of layer 3 only the weights were rec"):
        charts.scaling(head)


def test_query_that_does_not_exist():
    with pytest.raises(UsageError, match=r"^query 6 does not exist or sees no key: queries are 0 to 5$"):
        charts.scaling(head_of(), query=6)


def test_too_many_keys():
    with pytest.raises(UsageError, match=r"^the walkthrough shows at most 4,096 keys, this text has 4,097$"):
        scores_of(make_trace(["a"] * 4097, 1, 1)[0, 0], None)


def test_generated_text_where_each_step_is_a_call_of_its_own():
    from attnviz.composed import Stacked

    whole = head_of(sinks=torch.tensor([0.5]), mask=Mask(causal=True, window=(3, 0)))
    view = whole.view.view
    calls = ((0, 4, 0), (4, 5, 0), (5, 6, 2))
    parts = tuple(QueryKey(view.crop(slice(top, stop), slice(left, stop))) for top, stop, left in calls)
    record = Record("attention", 0, "self", "interface", "reference", Stacked(parts, (0, 0, 2), 6))
    stepwise = Trace("tiny", [record], {"self": (make_axis(["word"] * 6),)})[0, 0]
    one, other = scores_of(whole, None), scores_of(stepwise, None)
    assert other.cells["key"].max() == 6
    assert one.cells.to_dict("list").keys() == other.cells.to_dict("list").keys()
    for name in one.cells:
        assert other.cells[name].tolist() == pytest.approx(one.cells[name].tolist(), abs=1e-6)


def test_of_long_texts_the_largest_weights_are_drawn_and_softmax_is_of_all():
    head = head_of(200)
    bars, words = drawn(charts.scaling(head, query=150))
    weights = head.weights()[150]
    best = sorted(weights.topk(TOP).indices.tolist())
    assert [weight for _, weight, _ in bars.values()] == pytest.approx(weights[best].tolist(), abs=1e-6)
    assert float(words[3]) == pytest.approx(head.entropy[150].item(), abs=6e-4)
    assert (
        charts.scaling(head, query=150)
        .to_dict()["title"]["subtitle"]
        .endswith("the 40 of 151 keys with the largest weights")
    )
