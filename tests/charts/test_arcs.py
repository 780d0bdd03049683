"""Arcs begin and end at the words they join."""

import itertools

import pytest

from attnviz.charts import Arc, arcs

WORDS = ("Ann", "met", "</script>", "she")


def points(chart):
    found = [row for data in chart.to_dict()["datasets"].values() for row in data if "arc" in row]
    return [[row for row in found if row["arc"] == arc] for arc in sorted({row["arc"] for row in found})]


def table(chart):
    return next(data for data in chart.to_dict()["datasets"].values() if "label" in data[0])


def test_an_arc_joins_the_middles_of_its_words_and_rises_on_its_side():
    chart = arcs(WORDS, [Arc(3, 0, "she is Ann"), Arc(3, 1, "no", above=False, right=False)], {0: "1", 3: "1"})
    words = table(chart)
    for rows, stop, side in zip(points(chart), (0, 1), (1, -1), strict=True):
        assert rows[0]["x"] == pytest.approx(words[3]["x"])
        assert rows[-1]["x"] == pytest.approx(words[stop]["x"])
        assert all(side * row["y"] > 0 for row in rows)
    assert [row["group"] for row in words] == ["1", None, None, "1"]


def test_words_do_not_touch():
    rows = table(arcs(WORDS, [Arc(3, 0, "x")]))
    assert all(one["right"] < other["left"] for one, other in itertools.pairwise(rows))


def test_a_text_without_arcs_is_drawn():
    assert arcs(WORDS, []).to_dict()["width"] > 100


def test_a_selection_is_made_among_words():
    import altair as alt

    chart = arcs(WORDS, [Arc(3, 0, "x")], {0: "1"}).add_params(alt.selection_point(name="pick", fields=["word"]))
    (view,) = [param["views"] for param in chart.to_dict()["params"] if param["name"] == "pick"]
    first = chart.to_dict()["layer"][0]
    assert view == [first["name"]]
    assert first["mark"]["type"] == "text"


def test_arcs_can_be_drawn():
    import vl_convert

    svg = vl_convert.vegalite_to_svg(arcs(WORDS, [Arc(3, 0, "x")], {0: "1"}).to_dict(), allowed_base_urls=[])
    assert "&lt;/script&gt;" in svg


def test_relations_stand_over_their_arcs_and_arrows_at_the_dependent():
    import vl_convert

    drawn = [Arc(3, 0, "she is obj of Ann", relation="obj", back=True), Arc(3, 1, "no", above=False, right=False)]
    chart = arcs(WORDS, drawn)
    words, spec = table(chart), chart.to_dict()
    arrows = [layer for layer in spec["layer"] if layer["mark"]["type"] == "point"]
    ends = {layer["mark"]["shape"]: spec["datasets"][layer["data"]["name"]][0]["x"] for layer in arrows}
    assert ends == {"triangle-down": words[3]["x"], "triangle-up": words[1]["x"]}
    svg = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    assert ">obj</text>" in svg
    assert "grey and dashed where wrong. Arrows above end at the dependent.</text>" in svg
