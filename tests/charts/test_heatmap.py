"""Maps: the cells drawn are the weights, the picture's pixels as well, and tokens stay data."""

import base64
import json
from io import BytesIO

import altair as alt
import numpy as np
import pytest
import torch
from colours import weights_of
from hostile import TOKENS
from PIL import Image
from traces import make_axis, make_trace

from attnviz import charts
from attnviz.head import Record
from attnviz.tokens import positions
from attnviz.trace import Trace
from attnviz.views import Dense


def dense(weights, labels=None):
    """A head of given weights [M, N]."""
    record = Record("attention", 0, "self", "tap", "dense", Dense(torch.as_tensor(weights)[None, None]))
    axes = {} if labels is None else {"self": (make_axis(labels),)}
    return Trace("dense", [record], axes)[0, 0]


def rows_of(chart):
    return next(iter(chart.to_dict()["datasets"].values()))


def pixels_of(chart):
    """The picture inside a chart, [height, width, RGBA]."""
    found = [row["picture"] for data in chart.to_dict()["datasets"].values() for row in data if "picture" in row]
    raw = base64.b64decode(found[0].removeprefix("data:image/png;base64,"))
    return np.asarray(Image.open(BytesIO(raw)).convert("RGBA"))


@pytest.mark.parametrize("count", [1, 5, 64])
def test_cells_are_the_weights_and_masked_ones_are_not_drawn(count):
    head = make_trace(["word"] * count, 1, 1, causal=True)[0, 0]
    cells = rows_of(charts.heatmap(head))
    assert len(cells) == count * (count + 1) // 2
    weights = head.weights()
    for cell in cells:
        assert np.float32(cell["weight"]) == weights[cell["query"], cell["key"]].numpy()


def test_every_token_has_its_place_also_equal_ones_and_those_without_a_cell():
    chart = charts.heatmap(make_trace(("bank", "the", "bank"), 1, 1, causal=True)[0, 0]).to_dict()
    assert chart["encoding"]["x"]["scale"]["domain"] == [0, 1, 2]
    labels = next(each for each in chart["params"] if each["name"].startswith("labels"))
    assert labels["value"] == ["bank", "the", "bank"]
    whole = next(each for each in chart["params"] if each["name"].startswith("tokens"))
    assert whole["value"] == ["0 bank", "1 the", "2 bank"]


def test_long_texts_are_pictures_with_positions():
    head = make_trace(["word"] * 65, 1, 1, causal=True)[0, 0]
    chart = charts.heatmap(head).to_dict()
    assert [layer["mark"]["type"] for layer in chart["layer"]] == ["rect", "image", "point"]
    assert chart["layer"][1]["encoding"]["x"]["axis"]["title"] == "key position"
    assert "params" not in chart


@pytest.mark.parametrize("count", [70, 300, 600])
def test_pixels_are_the_weights_or_block_means(count):
    head = make_trace(["word"] * count, 1, 1, causal=True)[0, 0]
    pixels = pixels_of(charts.heatmap(head))
    expected = head.pooled((512, 512)) if count > 512 else head.weights()
    size = pixels.shape[0] // expected.shape[0]
    assert pixels.shape[0] == size * expected.shape[0]
    middle = pixels[size // 2 :: size, size // 2 :: size]
    assert ((middle[..., 3] > 0) == (expected > 0).numpy()).all()
    seen = middle[..., 3] > 0
    top = expected.max().item()
    read = weights_of(middle[seen][:, :3], top)
    # 255 levels on a root scale; colours of 8 bits tell a level from the next but one
    assert np.abs(np.sqrt(read / top) - np.sqrt(expected.numpy()[seen] / top)).max() < 1.5 / 254


def test_masked_cells_show_their_own_colour_in_every_theme():
    import vl_convert

    for theme, colour in (("screen", (230, 233, 238)), ("paper", (233, 233, 233)), ("dark", (43, 49, 59))):
        for count in (5, 70):
            head = make_trace(["a"] * count, 1, 1, causal=True)[0, 0]
            spec = charts.heatmap(head, theme=theme).to_dict()
            spec["padding"], spec["title"] = 0, ""
            image = Image.open(BytesIO(vl_convert.vegalite_to_png(spec, allowed_base_urls=[]))).convert("RGB")
            assert image.getcolors(1 << 20), theme
            assert colour in [each for _, each in sorted(image.getcolors(1 << 20))[-3:]], (theme, count)


def test_cross_attention_with_one_long_side_labels_the_short_one():
    weights = torch.softmax(torch.randn(3, 100, generator=torch.Generator().manual_seed(0)), -1)
    record = Record("cross", 0, "cross", "tap", "dense", Dense(weights[None, None]))
    head = Trace("pair", [record], {"decoder": (make_axis(("Das", "ist", "gut")),)})[0, 0]
    chart = charts.heatmap(head).to_dict()
    assert chart["layer"][1]["encoding"]["y"]["axis"]["labelExpr"].startswith("labels_")
    assert chart["layer"][1]["encoding"]["x"]["axis"]["title"] == "key position"


def test_rows_without_any_key_leave_an_empty_map():
    assert rows_of(charts.heatmap(dense(torch.zeros(3, 3)))) == []
    assert (pixels_of(charts.heatmap(dense(torch.zeros(80, 80))))[..., 3] == 0).all()


def test_tokens_are_never_part_of_an_expression_or_a_field():
    trace = make_trace(TOKENS, 2, 2)
    head = trace[0, 0]
    for chart in (charts.heatmap(head), charts.entropy(head), charts.links(head), charts.scaling(head)):
        spec = chart.to_dict()
        del spec["datasets"]
        for param in spec.get("params", []):
            param["value"] = None
            param["bind"] = None
        text = json.dumps(spec)
        for token in TOKENS[:-2]:
            assert json.dumps(token)[1:-1] not in text


def test_charts_can_stand_side_by_side():
    import vl_convert

    first, second = make_trace(("a", "b"), 1, 2), make_trace(("c", "d", "e"), 1, 2)
    chart = alt.hconcat(*(charts.heatmap(trace[0, head], theme=None) for trace in (first, second) for head in (0, 1)))
    labels = vl_convert.vegalite_to_svg(chart.to_dict(), allowed_base_urls=[])
    assert all(f">{token}</text>" in labels for token in "abcde")


def test_positions_stand_for_missing_labels():
    head = dense(torch.eye(3))
    assert head.rows == positions(3)
    assert {cell["query"] for cell in rows_of(charts.heatmap(head))} == {0, 1, 2}


def test_negative_weights_have_colours_of_their_own():
    weights = torch.tensor([[1.0, -0.5], [0.0, 0.25]])
    colour = charts.heatmap(dense(weights)).to_dict()["encoding"]["color"]["scale"]
    assert (colour["domain"], colour["domainMid"], colour["range"]) == ([-1, 1], 0, "diverging")
    large = torch.zeros(80, 80)
    large[0, 0], large[0, 1], large[79, 79] = 1.0, -1.0, -1e-6
    pixels = pixels_of(charts.heatmap(dense(large)))
    size = pixels.shape[0] // 80
    assert pixels[0, 0].tolist() == [0xC4, 0x74, 0x2B, 255]
    assert pixels[0, size].tolist() == [0x2F, 0x5F, 0xAE, 255]
    assert pixels[-1, -1].tolist() == [0xE6, 0xE9, 0xEE, 255]
    assert pixels[size, 0, 3] == 0


def test_maps_of_a_short_and_a_long_text_have_room_for_labels_and_fit_a_page():
    weights = torch.softmax(torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)), -1)
    heads = []
    for given in (weights, weights.T):
        record = Record("cross", 0, "cross", "tap", "dense", Dense(given.contiguous()[None, None]))
        axes = tuple(make_axis([f"t{place}" for place in range(count)]) for count in given.shape)
        heads.append(Trace("pair", [record], {"decoder": axes[:1], "encoder": axes[1:]})[0, 0])
    tall, flat = (charts.heatmap(head).to_dict() for head in heads)
    assert (tall["height"], tall["width"]) == (pytest.approx(600), 3 * 36)
    assert flat["height"] == 3 * 12
