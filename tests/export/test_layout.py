"""What a printed column shows: letters of at least six points, labels apart, and whose numbers they are."""

import json
import re
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from hostile import TOKENS
from traces import make_trace

from attnviz.errors import UsageError
from attnviz.export import VIEWS, Look, figure, pixels, render
from attnviz.export.lessons import masked, toy
from attnviz.export.shuffling import shuffled_toy
from attnviz.export.words import replaced

DRAWN = [view for view in VIEWS if view not in ("lines", "map", "order")]
OF_HEADS = [view for view in DRAWN if VIEWS[view].of != "trace"]
COLUMN = Look("paper", width=pixels("85mm"))


@pytest.fixture(scope="module")
def middle():
    return make_trace([f"word{number}" for number in range(40)], layers=20, heads=2, causal=True)


def drawn(made, look=COLUMN):
    """The picture, and by how much it was made larger to have its width."""
    root = ET.fromstring(render(made, "svg", look))
    return root, float(root.get("width")) / float(root.get("viewBox").split()[2])


def texts(root, start=""):
    """All texts that are seen and begin so."""
    found = root.iter("{http://www.w3.org/2000/svg}text")
    return [text for text in found if text.get("opacity") != "0" and "".join(text.itertext()).startswith(start)]


def letters(root):
    """The sizes of all texts in pixels."""
    return [float(text.get("font-size")[:-2]) for text in texts(root)]


@pytest.mark.parametrize("view", DRAWN)
def test_letters_of_a_column_have_the_size_of_the_theme(middle, view):
    root, grown = drawn(figure(middle, view))
    assert grown == pytest.approx(1, abs=0.03)
    assert min(letters(root)) * grown >= 7.8


@pytest.mark.parametrize("view", ["heatmap", "links", "entropy", "scaling"])
def test_long_tokens_and_titles_leave_letters_as_they_are(view):
    trace = make_trace([*TOKENS, *["bank"] * 100], layers=1, heads=1)
    layer = 0 if view == "entropy" else None
    root, grown = drawn(figure(trace, view, layer))
    assert grown == pytest.approx(1, abs=0.05)
    assert min(letters(root)) * grown >= 7.5


def axes(made, width=None):
    spec = made.chart(width).to_dict()
    return [axis for axis in re.findall(r'"axis": ({[^}]*})', json.dumps(spec)) if "title" in axis]


def test_of_labels_that_have_no_room_every_other_is_left_out(middle):
    assert [len(texts(drawn(figure(middle, "heatmap"), look)[0], "word")) for look in (Look(), COLUMN)] == [80, 40]


def test_numbers_of_many_layers_do_not_overlap(middle):
    wide, narrow = ([json.loads(axis) for axis in axes(figure(middle, "entropy"), width)] for width in (900, 300))
    assert [axis["labelOverlap"] for axis in (wide[0], narrow[0])] == [False, True]


@pytest.mark.parametrize("view", [*OF_HEADS, "order"])
def test_a_figure_of_a_head_names_model_and_head(view):
    given = {"shuffled": shuffled_toy(1)} if view == "order" else {}
    title = figure(toy(), view, 0, 1, **given).chart().to_dict()["title"]
    words = f"{title['text']} · {title['subtitle']}".lower()
    assert "toy" in words
    assert ("layer 0" if view == "one-or-many" else "layer 0, head 1") in words


def test_figures_of_a_part_say_of_which():
    trace = make_trace(["a"] * 1030, layers=1, heads=2)
    said = {view: figure(trace, view).chart().to_dict()["title"]["subtitle"] for view in ("mask", "one-or-many")}
    assert "the first 48 of 1,030 tokens" in said["mask"]
    assert "the last 1,024 of 1,030 tokens" in said["one-or-many"]
    assert "without a mask" in said["one-or-many"]


def test_lines_and_colours_without_a_legend_are_told(middle):
    said = {view: figure(middle, view).chart().to_dict()["title"]["subtitle"] for view in DRAWN if view != "cost"}
    assert "orange: median of a layer; dashed: equal weights" in said["entropy"]
    assert "brightest: the largest of each map" in said["thumbnails"]
    assert re.search(r"links: \d\.\d+ to \d\.\d+$", said["links"])
    shared = figure(middle, "thumbnails", shared=True).chart().to_dict()["title"]["subtitle"]
    assert shared == "tiny · brightest: 1, in all maps"


def test_dots_of_costs_have_the_colours_of_their_lines(middle):
    svg = render(figure(middle, "cost"), "svg").decode()
    strokes = set(re.findall(r'aria-roledescription="line mark"[^>]* stroke="(#\w+)"', svg))
    fills = set(re.findall(r'aria-roledescription="circle" aria[^>]*? fill="(#\w+)"', svg)) or set(
        re.findall(r'aria-roledescription="circle"[^>]* fill="(#\w+)"', svg)
    )
    assert len(strokes) == 2
    assert fills == strokes


def test_numbers_of_the_walkthrough_name_what_they_are(middle):
    mask = figure(middle, "mask", 1, 1).table()
    assert list(mask)[3:] == ["row", "column", "from", "to", "without", "causal"]
    assert mask["to"].tolist()[:2] == ["word0", "word1"]
    order = figure(toy(), "order", 0, 1, shuffled=shuffled_toy(1)).table()
    assert list(order)[3:] == ["row", "column", "from", "to", "before", "after", "positions"]
    gradients = figure(middle, "gradients", 1, 1, query=7).document()
    assert (gradients["query"], gradients["divisor"]) == (7, pytest.approx(8**0.5))
    assert len(gradients["divisors"]) > 50


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("12 a☃", "12 a<U+2603>"),
        ("☃☃", "<U+2603><U+2603>"),
        ("☃" * 5, "<U+2603><U+2603>…"),
        ("a" * 30 + "☃", "a" * 30 + "<U+2603>"),
    ],
)
def test_codes_in_a_label_are_as_many_as_fit(text, shown):
    assert replaced([{"label": text}], {"☃": "<U+2603>"}) == [{"label": shown}]


def test_cross_attention_has_no_causal_mask():
    whole = make_trace()
    cross = replace(whole, records=[replace(whole.records[0], kind="cross")])
    with pytest.raises(UsageError, match=r"^a causal mask is for tokens of one text: cross-attention has none, "):
        masked(cross[0, 0])


def test_the_query_of_a_figure_cannot_be_taken_for_its_number():
    trace = make_trace(("3", "2"), 1, 1)
    assert "query 1 “2”" in figure(trace, "gradients").chart().to_dict()["title"]["subtitle"]
    assert "query 1 “2” · divisor" in render(figure(trace, "scaling"), "svg").decode()
