"""Why scores are divided by sqrt(d_k): a walkthrough that computes softmax inside the chart.

Choose a query, move the slider, and watch raw scores turn into weights. Everything is computed by Vega-Lite from
raw products query . key, so the chart works in the dashboard, in a notebook and as a file without any server.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ..tokens import Token
from .axis import fit, position_axis, position_scale
from .heatmap import heading
from .labels import AxisText, axis_text, axis_text_at, numbered, parameters
from .scores import Scores, scores_of
from .sources import check_head
from .theme import AltairChart, themed

if TYPE_CHECKING:
    import altair as alt

    from ..head import Head

KEYS = 100
"""Positions up to which all keys are drawn and the query is chosen in the chart."""
TOP = 40
"""Keys that are drawn of longer texts."""
_HEIGHT = 110
_MARGIN = 76
"""Pixels that axis and padding take beside the bars."""
_LEAST = 240
"""Pixels across that few positions take."""
_GAP = 0.08
"""Empty part of a position on each side of its bar."""


def scaling(
    head: Head, query: int | None = None, *, theme: str | None = "screen", width: int | None = None
) -> AltairChart:
    """Raw scores of one query, its weights at any divisor, and the entropy at every divisor.

    The divisor starts at the model's own (1 / scale, often sqrt(d_k)); query is the position chosen at first, the last
    that is no special token if None. Softcap, additive bias or mask, and sinks are applied after the division, as the
    model does. Beyond 100 positions one query and its 40 largest weights are drawn; softmax and entropy are of all.
    UsageError for a head recorded without query and key. Source: Vaswani et al. 2017 (arXiv 1706.03762, 3.2.1).
    """
    import altair as alt

    check_head(head)
    scores = scores_of(head, query)
    sink = () if scores.view.sinks is None else (Token(None, "sink", "sink", special=True),)
    keys = (*head.cols, *sink)
    rows, cols = axis_text(head.rows), axis_text(keys)
    count, note = len(keys), ""
    long = max(head.shape) > KEYS
    if long:
        visible = int((scores.cells["query"] == scores.chosen).sum())
        scores, top = _cut(scores)
        cols, count = axis_text_at(keys, top), len(top)
        note = f" · the {count} of {visible:,} keys with the largest weights"
    across = count if long else max(count, len(head.rows))
    step = fit(across, _MARGIN, width, most=max(40, _LEAST / across), total=760)
    pick = f"datum.query === {scores.chosen}" if long else _pick(scores, head.rows)
    axis = position_axis(cols, "key", count, step, "bottom")
    x = alt.X("start:Q", scale=position_scale(count), axis=axis)
    panels: list[Any] = [
        *([] if isinstance(pick, str) else [_strip(scores, rows, len(head.rows), step, pick)]),
        _raw(scores, x, cols, pick).properties(width=step * count, height=_HEIGHT),
        _weights(scores, x, cols, rows, pick).properties(width=step * count, height=_HEIGHT),
        _curve(scores, pick).properties(width=step * across, height=_HEIGHT),
    ]
    title = heading(head)
    chart = alt.vconcat(*panels, spacing=16).add_params(_divisor(scores.divisor), *parameters(rows, cols))
    chart = chart.properties(
        title={**title, "subtitle": f"{title['subtitle']} · {scores.formula}; orange: the model's own divisor{note}"},
        description=f"Scores, weights and entropy of a query of layer {head.layer}, head {head.head}, at any divisor.",
    )
    return themed(chart, theme)


def _cut(scores: Scores) -> tuple[Scores, list[int]]:
    """The chosen query alone, its keys numbered by their place among those of largest weight, in the order of the text;
    -1 for all others, which still count. And the positions of those keys."""
    cells = scores.cells[scores.cells["query"] == scores.chosen].reset_index(drop=True)
    top = sorted(cells.nlargest(TOP, "own")["key"].tolist())
    places = {key: place for place, key in enumerate(top)}
    cells["key"] = [places.get(key, -1) for key in cells["key"]]
    curves = scores.curves[scores.curves["query"] == scores.chosen]
    return replace(scores, rows=(scores.chosen,), cells=cells, curves=curves), top


def _divisor(own: float) -> Any:
    """A slider from an eighth of the model's own divisor to four times it, in steps that meet it."""
    import altair as alt

    own = float(f"{own:.6g}")  # the page shows the number
    slider = alt.binding_range(min=own / 8, max=own * 4, step=own / 64, name="divisor (√dₖ) ")
    return alt.param(name="divisor", value=own, bind=slider)


def _pick(scores: Scores, tokens: tuple[Token, ...]) -> Any:
    import altair as alt

    names = [numbered(row, tokens[row]) for row in scores.rows]
    return alt.selection_point(
        name="chosen",
        fields=["query"],
        value=[{"query": scores.chosen}],
        on="click",
        toggle=False,
        clear=False,
        empty=False,
        bind=alt.binding_select(options=list(scores.rows), labels=names, name="query "),
    )


def _strip(scores: Scores, text: AxisText, count: int, step: float, pick: alt.Parameter) -> Any:
    """One cell per query that can be chosen."""
    import altair as alt
    import pandas as pd

    axis = position_axis(text, "query", count, step, "top")
    return (
        alt.Chart(pd.DataFrame({"query": scores.rows}))
        .transform_calculate(
            start=f"datum.query + {_GAP}", stop=f"datum.query + {1 - _GAP}", token=f"{text.whole.name}[datum.query]"
        )
        .mark_rect(style="second", cursor="pointer")
        .encode(
            x=alt.X("start:Q", scale=position_scale(count), axis=axis),
            x2="stop:Q",
            opacity=alt.when(pick).then(alt.value(1)).otherwise(alt.value(0.2)),
            tooltip=[alt.Tooltip("token:N", title="query")],
        )
        .add_params(pick)
        .properties(width=step * count, height=14)
    )


def _bars(scores: Scores, text: AxisText, pick: alt.Parameter | str) -> Any:
    """The chosen query's cells with what the model makes of them: score, weight and share of the entropy."""
    import altair as alt

    capped = "datum.raw / divisor"
    if scores.view.softcap is not None:
        # tanh, which Vega's expressions lack
        cap = scores.view.softcap
        capped = f"{cap} * (2 / (1 + exp(-2 * {capped} / {cap})) - 1)"
    return (
        alt.Chart(scores.cells)
        .transform_filter(pick)
        .transform_calculate(
            start=f"datum.key + {_GAP}",
            stop=f"datum.key + {1 - _GAP}",
            token=f"{text.whole.name}[datum.key]",
            score=f"{capped} + datum.added",
        )
        .transform_joinaggregate(peak="max(score)")
        .transform_calculate(power="exp(datum.score - datum.peak)")
        .transform_joinaggregate(total="sum(power)")
        .transform_calculate(weight="datum.power / datum.total")
        .transform_calculate(surprise="datum.weight > 0 ? -datum.weight * log(datum.weight) : 0")
    )


def _drawn(scores: Scores, text: AxisText, pick: alt.Parameter | str) -> Any:
    """The bars that are seen; all others count in the softmax only."""
    bars = _bars(scores, text, pick)
    return bars.transform_filter("datum.key >= 0") if isinstance(pick, str) else bars


def _tooltip() -> list[alt.Tooltip]:
    import altair as alt

    return [
        alt.Tooltip("token:N", title="key"),
        alt.Tooltip("raw:Q", title="q·k", format=".3f"),
        alt.Tooltip("score:Q", format=".3f"),
        alt.Tooltip("weight:Q", format=".4f"),
        alt.Tooltip("own:Q", title="the model's weight", format=".4f"),
    ]


def _raw(scores: Scores, x: alt.X, text: AxisText, pick: alt.Parameter | str) -> Any:
    import altair as alt

    return (
        _drawn(scores, text, pick)
        .mark_rect(style="muted")
        .encode(
            x=x.copy().axis(None),
            x2="stop:Q",
            y=alt.Y("raw:Q", title="q·k, not divided", axis={"grid": True, "tickCount": 4}),
            y2=alt.datum(0),
            tooltip=_tooltip(),
        )
    )


def _weights(scores: Scores, x: alt.X, text: AxisText, rows: AxisText, pick: alt.Parameter | str) -> Any:
    """Weights at the chosen divisor as bars, the model's own as lines, and the entropy in words."""
    import altair as alt

    base = _drawn(scores, text, pick).encode(x=x, x2="stop:Q", tooltip=_tooltip())
    y = alt.Y("weight:Q", title="weight", scale={"domain": [0, 1]}, axis={"grid": True, "tickCount": 4})
    bars = base.mark_rect(style="accent").encode(y=y, y2=alt.datum(0))
    own = base.mark_rule(style="second", strokeWidth=2, aria=False).encode(y="own:Q")
    words = (
        _bars(scores, text, pick)
        .transform_aggregate(entropy="sum(surprise)", keys="count()", groupby=["query"])
        .transform_calculate(
            words=f"'query ' + datum.query + ' “' + {rows.labels.name}[datum.query]"
            " + '” · divisor ' + format(divisor, '.2f') + '\\n' + 'entropy ' + format(datum.entropy, '.3f')"
            " + ' of at most ' + format(log(datum.keys), '.3f') + ' nats'"
        )
        .mark_text(align="left", baseline="bottom", dy=-16, lineBreak="\n")
        .encode(x=alt.value(0), y=alt.value(0), text="words:N")
    )
    return alt.layer(bars, own, words)


def _curve(scores: Scores, pick: alt.Parameter | str) -> Any:
    """Entropy at every divisor, and where the slider and the model stand."""
    import altair as alt
    import pandas as pd

    x = alt.X("divisor:Q", title="divisor", scale={"type": "log", "nice": False}, axis={"tickCount": 6, "format": "~g"})
    y = alt.Y("entropy:Q", title="entropy (nats)", scale={"domainMin": 0}, axis={"grid": True, "tickCount": 4})
    line = alt.Chart(scores.curves).transform_filter(pick).mark_line(style="accent").encode(x=x, y=y)
    here = alt.Chart(pd.DataFrame({"at": [0]})).transform_calculate(divisor="divisor")
    model = alt.Chart(pd.DataFrame({"divisor": [scores.divisor]}))
    return alt.layer(
        line,
        model.mark_rule(style="second", strokeWidth=2).encode(x=x, tooltip=[alt.Tooltip("divisor:Q", title="model")]),
        here.mark_rule(style="muted", strokeDash=[4, 4]).encode(x=x),
    )
