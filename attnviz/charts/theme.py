"""Fonts, sizes and colours of every figure, in one place.

The font is Arial or its free twin Liberation Sans, of the same widths: a layout measured with one fits both.
Colour maps are given as 17 stops that are joined by straight lines in RGB, so pictures and marks agree. cividis is the
default: its lightness rises evenly, with and without colour vision deficiency.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import UsageError

if TYPE_CHECKING:
    import altair as alt

AltairChart: TypeAlias = "alt.Chart | alt.LayerChart | alt.VConcatChart"
"""What every function of this package returns."""

FONT = "Liberation Sans, Arial, Helvetica, sans-serif"

_STOPS = {
    "cividis": (
        "00224e002e6a1a386f32436d434e6c535a6d61656f6f70737d7c788b87789a9376aaa073bbad6dccba64ddc858efd748fee838"
    ),
    "viridis": (
        "44015448186a472d7b4240863b528b33638d2c728e26828e21918c1f9f8827ad813dbc745cc86381d34daadc32d5e21afde725"
    ),
    "magma": ("0000040a08221d114736106b51127c6a1c818326819c2e7fb73779cf4070e55064f4695cfb8761fea571fec287fde0a1fcfdbf"),
    "greys": ("fffffff7f7f7f0f0f0e4e4e4d9d9d9cbcbcbbdbdbda9a9a99595958585857373736363635252523c3c3c252525131313000000"),
}
COLOURS = {name: tuple(f"#{stops[at : at + 6]}" for at in range(0, len(stops), 6)) for name, stops in _STOPS.items()}
"""Colour maps from low to high, as stops."""
SIGNED = ("#2f5fae", "#e6e9ee", "#c4742b")
"""Below zero, zero, above: for weights that may be negative (differential attention)."""


@dataclass(frozen=True)
class Theme:
    """The colours of one look; `masked` fills the cells of a map that carry no weight, size is in pixels."""

    background: str
    text: str
    muted: str
    line: str
    masked: str
    accent: str
    second: str
    size: int = 11


THEMES = {
    "screen": Theme("#ffffff", "#1b1f27", "#667080", "#d5dae1", "#e6e9ee", "#2f5fae", "#c4742b"),
    "paper": Theme("#ffffff", "#000000", "#444444", "#c4c4c4", "#e9e9e9", "#1f4e8c", "#a85d17", 10),
    "dark": Theme("#14171d", "#e8ebf0", "#98a2b1", "#39404c", "#2b313b", "#7aa7f0", "#e2a15f"),
}
"""screen: light pages. paper: white, darker and smaller, for print. dark: dark pages."""

MAP = "attention-map"
"""Style name of a map's background: cells that are not drawn show the theme's colour for masked ones."""


def theme_named(name: str) -> Theme:
    """The theme of that name, or UsageError naming those there are."""
    if not isinstance(name, str) or name not in THEMES:
        raise UsageError(f"theme must be one of {', '.join(THEMES)}, got {name!r}")
    return THEMES[name]


def themed(chart: Any, theme: str | None) -> AltairChart:
    """The same altair chart in a theme; None leaves it without one, ready to be part of another chart."""
    from .shown import shown

    done: AltairChart = chart if theme is None else shown(chart.properties(config=config(theme_named(theme))))
    return done


def config(theme: Theme, colours: str = "cividis") -> dict[str, Any]:
    """The Vega-Lite configuration of a theme."""
    small = theme.size - 1
    return {
        "background": theme.background,
        "font": FONT,
        "padding": 12,
        "view": {"stroke": theme.line, "strokeWidth": 1},
        "range": {
            "heatmap": list(COLOURS[colours]),
            "ramp": list(COLOURS[colours]),
            "diverging": list(SIGNED),
            # of differences: less, equal, more
            "category": [theme.accent, theme.masked, theme.second],
        },
        "title": {
            "color": theme.text,
            "subtitleColor": theme.muted,
            "fontSize": theme.size + 3,
            "subtitleFontSize": theme.size,
            "fontWeight": 600,
            "anchor": "start",
            "frame": "bounds",
            "offset": 12,
            "subtitlePadding": 5,
        },
        "axis": {
            "labelColor": theme.text,
            "titleColor": theme.muted,
            "labelFontSize": small,
            "titleFontSize": small,
            "titleFontWeight": "normal",
            "titlePadding": 8,
            "domain": False,
            "grid": False,
            "tickColor": theme.line,
            "gridColor": theme.line,
        },
        "header": {"labelColor": theme.text, "titleColor": theme.muted, "labelFontSize": small, "titleFontSize": small},
        "legend": {
            "labelColor": theme.text,
            "titleColor": theme.muted,
            "labelFontSize": small,
            "titleFontSize": small,
            "titleFontWeight": "normal",
            "gradientThickness": 10,
            "gradientStrokeColor": theme.line,
            "gradientStrokeWidth": 1,
        },
        "text": {"color": theme.text, "fontSize": small},
        "style": {
            # a mark takes its colour from "color", the background of a view from "fill"
            MAP: {"color": theme.masked, "fill": theme.masked, "stroke": theme.line, "strokeWidth": 1},
            "accent": {"color": theme.accent},
            "second": {"color": theme.second},
            "muted": {"color": theme.muted},
            "ground": {"color": theme.background, "stroke": theme.background, "strokeWidth": 4},
        },
    }
