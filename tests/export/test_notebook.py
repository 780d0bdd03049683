"""What traces, heads, charts and results show in a notebook: whole without a network, and never markup of a token's."""

import base64
import copy
import pickle
import re
import xml.etree.ElementTree as ET
from dataclasses import replace
from html.parser import HTMLParser

import altair as alt
import pytest
import torch
from hostile import TOKENS
from traces import make_trace

import attnviz
from attnviz import charts
from attnviz.analysis.flow import rollout
from attnviz.trace import Trace


class Tags(HTMLParser):
    """Every element of a piece of HTML, and its text."""

    def __init__(self, html):
        super().__init__()
        self.found, self.text = [], ""
        self.feed(html)

    def handle_starttag(self, tag, attributes):
        self.found.append((tag, dict(attributes)))

    def handle_data(self, data):
        self.text += data


def pictures(html):
    """The SVGs inside, parsed; fails on anything but divisions and pictures."""
    tags = Tags(html).found
    assert {tag for tag, _ in tags} <= {"div", "img"}
    sources = [attributes["src"] for tag, attributes in tags if tag == "img"]
    starts = {source.partition(",")[0] for source in sources}
    assert starts <= {"data:image/svg+xml;base64"}
    return [ET.fromstring(base64.b64decode(source.partition(",")[2])) for source in sources]


def words(svg):
    return [element.text for element in svg.iter() if element.text]


def test_a_trace_says_what_it_holds(trace):
    assert repr(trace) == "<Trace of tiny: 2 layers, 6 heads, 5 tokens>"
    assert repr(Trace("empty")) == "<Trace of empty: no attention recorded>"
    two = make_trace(batch=2).sequence(1)
    two.unrecorded.append("layers.9.conv")
    assert repr(two) == "<Trace of tiny: 2 layers, 6 heads, 5 tokens; sequence 1 of 2; 1 module not recorded>"
    assert repr(trace[1, 2]) == "<Head: layer 1, head 2 of tiny, 5 queries x 5 keys>"


def test_kinds_of_attention_are_said_and_drawn_apart():
    parts = {kind: make_trace(layers=1).records[0] for kind in ("encoder", "cross")}
    trace = Trace("pair", [replace(record, kind=kind) for kind, record in parts.items()])
    assert repr(trace) == "<Trace of pair: encoder 1 layer, 3 heads, 5 tokens; cross 1 layer, 3 heads, 5 tokens>"
    assert len(pictures(trace._repr_html_())) == 2


def test_a_trace_shows_the_entropy_of_every_head(trace):
    html = trace._repr_html_()
    (svg,) = pictures(html)
    assert "Every head's entropy (nats)" in words(svg)
    assert Tags(html).text == repr(trace)


def test_what_nobody_can_hear_is_left_out():
    assert len(make_trace(layers=30, heads=9)._repr_html_()) < 170_000
    assert "aria-" not in "".join(ET.tostring(svg, "unicode") for svg in pictures(make_trace()._repr_html_()))


def test_a_head_shows_its_map_or_the_entropy_of_what_was_kept(trace, tmp_path):
    (svg,) = pictures(trace[1, 2]._repr_html_())
    assert {"Layer 1, head 2", "bank", "query", "key"} <= set(words(svg))
    trace.save(tmp_path / "run.attn", statistics_only=True)
    (svg,) = pictures(attnviz.load(tmp_path / "run.attn")[1, 2]._repr_html_())
    assert any("entropy" in word for word in words(svg))


def test_tokens_never_become_markup(hostile):
    named = replace(hostile, model=TOKENS[0])
    for shown in (named, hostile[0, 1], rollout(hostile), charts.links(hostile[0, 1])):
        html = shown._repr_html_() if hasattr(shown, "_repr_html_") else shown._repr_mimebundle_()["text/html"]
        assert not {"script", "svg"} & {tag for tag, _ in Tags(html).found}
        assert all("onerror" not in attributes for _, attributes in Tags(html).found)


@pytest.mark.parametrize("count", [64, 65, 600])
def test_pictures_stay_small(count):
    assert len(make_trace(["word"] * count, 1, 1)[0, 0]._repr_html_()) < 450_000


@pytest.mark.parametrize("name", ["head_grid", "heatmap", "links", "entropy", "scaling", "thumbnails"])
def test_charts_show_themselves(trace, name):
    source = trace if name in ("head_grid", "thumbnails") else trace[0, 1]
    chart = getattr(charts, name)(source)
    again = (copy.deepcopy(chart), pickle.loads(pickle.dumps(chart)), chart.properties(name="again"))
    for shown in (chart, *again):
        bundle = shown._repr_mimebundle_(include=None, exclude=None)
        assert set(bundle) == {"text/html", "text/plain"}
        (svg,) = pictures(bundle["text/html"])
        assert len(list(svg.iter())) > 20
    assert re.search(r'alt="[^"]{20,}"', bundle["text/html"])


def test_a_chosen_renderer_wins(trace):
    with alt.renderers.enable("json"):
        bundle = charts.heatmap(trace[0, 1])._repr_mimebundle_()
    assert "text/html" not in (bundle[0] if isinstance(bundle, tuple) else bundle)


def test_charts_are_still_altair_charts(trace):
    chart = charts.heatmap(trace[0, 1])
    assert isinstance(chart, alt.Chart)
    assert chart.to_dict() == alt.Chart.from_dict(chart.to_dict()).to_dict()


def test_a_result_shows_its_table(trace):
    found = rollout(trace)
    cells = re.findall(r"<td>(.*?)</td>", found._repr_html_())
    assert cells[1::3] == found.table()["token"].tolist()
    assert [float(cell) for cell in cells[2::3]] == pytest.approx(found.table()["score"].tolist(), abs=1e-5)


def test_several_on_one_page_keep_their_own_colours():
    """Each picture is a document of its own: the same ids in two of them are not the same thing."""
    heads = [make_trace(seed=seed)[0, 0] for seed in (0, 1)]
    html = "".join(head._repr_html_() for head in heads)
    assert len(pictures(html)) == 2
    assert not re.search(r'\sid="', html)


@pytest.mark.browser
def test_several_in_a_browser(trace, hostile, visit, tmp_path):
    shown = [trace._repr_html_(), trace[0, 1]._repr_html_(), hostile[1, 1]._repr_html_(), hostile._repr_html_()]
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8>{''.join(shown)}<svg></svg>", encoding="utf-8")
    found = visit(page)
    sizes = found.page.evaluate("[...document.images].map((image) => [image.complete, image.naturalWidth])")
    assert len(sizes) == 4
    assert all(complete and width > 100 for complete, width in sizes)
    assert (found.dialogs, found.outside, found.errors) == ([], [], [])


def test_a_map_in_half_precision_shows_itself():
    assert pictures(make_trace(dtype=torch.bfloat16)[0, 0]._repr_html_())
