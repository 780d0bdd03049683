"""Links at any length, and BertViz's views made to work offline."""

import json
import re
import sys
import types

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient
from traces import make_trace

from attnviz.dashboard import frames, offline, runs
from attnviz.dashboard.jobs import Job
from attnviz.errors import DataError

HOSTILE = "</script><script>alert(1)</script>"
TEXT = "The bank of the river"


def written(params):
    """A page as BertViz 1.4 writes it."""
    data = json.dumps(params)
    return f"""<script src="https://cdnjs.cloudflare.com/require.min.js"></script>
<div id="bertviz-1"><select id="layer"></select><div id='vis'></div></div>
<script type="text/javascript">
require.config({{ paths: {{}} }});
requirejs(['jquery', 'd3'], function ($, d3) {{
    const params = {data}; // HACK: {data} is a template marker.
    draw($, d3, params);
}});
</script>
"""


@pytest.fixture
def fake(monkeypatch):
    """A stand-in for BertViz that keeps what it was given."""
    given = []

    def view(attention, tokens, html_action, **options):
        given.append((attention, tokens, options))
        return types.SimpleNamespace(data=written({"left_text": tokens}))

    module = types.ModuleType("bertviz")
    module.head_view = module.model_view = view
    monkeypatch.setitem(sys.modules, "bertviz", module)
    monkeypatch.setattr(frames, "installed", lambda: True)
    return given


def test_the_strongest_links_are_those_of_the_head(visit):
    app = visit("links", text=TEXT, layer="1", head="2", count="5")
    expected = make_trace(TEXT.split())[1, 2].links(5)
    assert app.dataframe[0].value["weight"].tolist() == pytest.approx(expected["weight"].tolist())
    assert app.slider(key="count").value == 5


def test_without_bertviz_the_page_says_how_to_get_it(visit, monkeypatch):
    monkeypatch.setattr(frames, "installed", lambda: False)
    app = visit("links", text=TEXT, links="Head view")
    assert [info.value for info in app.info] == [frames.INSTALL]


def test_long_texts_go_elsewhere(visit, fake):
    app = visit("links", text="w " * 200, links="Model view")
    assert "up to 128 tokens, this one has 200" in app.info[0].value
    assert fake == []


@pytest.mark.parametrize(("count", "layers"), [(20, 2), (100, 1)])
def test_texts_of_middling_length_get_one_layer(visit, fake, count, layers):
    app = visit("links", text="w " * count, links="Head view", layer="1")
    assert not app.error
    ((attention, tokens, _),) = fake
    assert (len(attention), len(tokens)) == (layers, count)
    assert attention[0].mul(1000).sub(attention[0].mul(1000).round()).abs().max() < 1e-9


def test_a_page_holds_its_data_once_and_as_data():
    page = offline.offline(written({"left_text": [HOSTILE], "attn": [0.123]}))
    assert page.count("0.123") == 1
    assert HOSTILE not in page
    assert "cdnjs" not in page
    params = re.search(r'<script type="application/json" id="params">(.*?)</script>', page)[1]
    assert json.loads(params)["left_text"] == [HOSTILE]
    assert "d3js.org v5.16.0" in page
    assert "jQuery v3.7.1" in page


@pytest.mark.parametrize("raw", ["", "<script></script><div></div>", written({}).replace("const params", "let p")])
def test_an_unknown_page_is_refused(raw):
    with pytest.raises(DataError, match=r"^this version of BertViz writes a page that is not known here"):
        offline.offline(raw)


def test_frames_are_walled_off():
    runs.traces().put(("frame", "secret"), "<p>hi</p>", 9)
    client = TestClient(Starlette(routes=frames.routes()))
    answer = client.get("/frame/secret")
    assert answer.text == "<p>hi</p>"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("sandbox allow-scripts; default-src 'none'; ")
    assert "allow-same-origin" not in policy
    assert client.get("/frame/other").status_code == 404


def test_names_cannot_be_guessed(fake):
    trace = make_trace()
    names = {frames.made(trace, trace.layers, 0, Job("x"))[0] for _ in range(3)}
    assert len(names) == 3
    assert all(len(name) >= 32 for name in names)


def test_the_libraries_come_with_their_licences():
    names = {path.name for path in offline.VENDOR.iterdir()}
    assert names == {"d3.min.js", "d3.LICENSE.txt", "jquery.min.js", "jquery.LICENSE.txt"}


# bertviz leaves its own files open
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning", "ignore::DeprecationWarning")
def test_what_the_real_bertviz_writes_is_known():
    pytest.importorskip("bertviz", reason="bertviz is not installed: pip install 'attnviz[bertviz]'")
    trace = make_trace((HOSTILE, "b"))
    for first in (1, None):
        _, page = frames.made(trace, trace.layers, first, Job("x"))
        assert HOSTILE not in page
        assert "https://cdnjs" not in page.split("<script>const require")[0]
