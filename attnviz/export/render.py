"""Charts as SVG, PNG, PDF and HTML; figures and tables as JSON, CSV and parquet. Everything comes back as bytes.

There is one way to a picture: Vega-Lite makes the SVG, and PNG and PDF are drawn from that same SVG.
"""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import check_pixels, check_whole, path_of, refuse
from ..charts.theme import FONT, config, theme_named
from ..errors import UsageError
from .figure import Figure
from .fonts import check_family, in_fonts, missing, use_folder
from .page import page
from .pdf import ordered
from .words import JOINERS, replaced, wrapped

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("svg", "png", "pdf", "html", "json", "csv", "parquet")
"""File endings that can be written."""
_INCH = 96
"""Pixels of an inch, as in CSS."""
_PADDING = 24
"""Pixels left and right of a figure that titles keep free."""
_ROOT = re.compile(r'width="([\d.]+)" height="([\d.]+)"')
"""The size of a picture, first of all in it."""


@dataclass(frozen=True)
class Look:
    """How a picture is drawn.

    width is pixels (96 an inch) of the whole figure, or what it needs if None; dpi counts for PNG only; font is a
    family that is installed or lies in one of `font_folders`. UsageError for values that are none.
    """

    theme: str = "screen"
    width: float | None = None
    dpi: int = 200
    font: str | None = None
    font_folders: tuple[Path, ...] = ()

    def __post_init__(self) -> None:
        """Refuse what is none of these."""
        theme_named(self.theme)
        check_pixels(self.width)
        check_whole("dpi", self.dpi)
        folders: Any = self.font_folders
        if isinstance(folders, str | Path):
            raise refuse("font_folders", "a list of folders", str(folders))
        object.__setattr__(self, "font_folders", tuple(map(path_of, folders)))


def render(source: Any, kind: str, look: Look | None = None) -> bytes:
    """A figure, an altair chart or a DataFrame as a file of one of `FORMATS`; the same input gives the same bytes.

    Raises UsageError for a format that is unknown or does not fit the source.
    """
    look = look or Look()
    if kind in ("json", "csv", "parquet"):
        return _numbers(source, kind)
    if kind not in FORMATS:
        raise UsageError(f"format must be one of {', '.join(FORMATS)}, got {kind!r}")
    if kind == "html" and isinstance(source, Figure) and (own := source.page(look.theme)):
        return _encoded(own)
    spec = _laid_out(source, kind, look)
    if kind == "html":
        return _encoded(page(spec))
    svg = _svg(spec)
    return _sized(svg, look.width).encode() if kind == "svg" else _drawn(svg, kind, look)


def pixels(width: str) -> float:
    """Pixels of a width in mm, cm, in or px ("85mm")."""
    if not isinstance(width, str):
        raise refuse("width", "text with a unit, such as 85mm", width)
    units = {"px": 1.0, "mm": _INCH / 25.4, "cm": _INCH / 2.54, "in": float(_INCH)}
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(\D*?)\s*", width)
    if not found or found[2] not in units or not 40 <= float(found[1]) * units[found[2]] <= 10_000:
        raise UsageError(
            f"width must be a number of mm, cm, in or px from 40 to 10,000 px, such as 85mm, got {width!r}"
        )
    return float(found[1]) * units[found[2]]


def _encoded(text: str) -> bytes:
    """UTF-8; half characters, which it cannot hold, as escapes that JSON understands."""
    return text.encode("utf-8", "backslashreplace")


def _numbers(source: Any, kind: str) -> bytes:
    import pandas as pd

    if isinstance(source, Figure):
        if kind == "json":
            return _encoded(json.dumps(source.document(), ensure_ascii=False, allow_nan=False) + "\n")
        source = source.table()
    if not isinstance(source, pd.DataFrame):
        what = type(source).__name__
        raise UsageError(f"{kind} holds numbers: export a figure(trace, view) or a table, not a {what}")
    if kind == "csv":
        return _encoded(source.to_csv(index=False, lineterminator="\n"))
    if kind == "parquet":
        return _parquet(source)
    return _encoded(source.to_json(orient="records", force_ascii=False, double_precision=15) + "\n")


def _parquet(table: pd.DataFrame) -> bytes:
    try:
        content: bytes = table.to_parquet(index=False)
    except ImportError as error:
        raise UsageError("parquet needs pyarrow: pip install pyarrow") from error
    return content


def _laid_out(source: Any, kind: str, look: Look) -> dict[str, Any]:
    """The spec of a picture. A figure that came out more than a fiftieth too wide or too narrow is laid out again by
    what was wrong, so that its letters have the size of the theme."""
    _check(source, look)
    asked = None if look.width is None else math.floor(look.width)
    first = _spec(source, look, asked)
    absent = {} if kind in ("svg", "html") else _written(first, look)
    spec: dict[str, Any] = replaced(first, absent)
    if asked is None or not isinstance(source, Figure):
        return spec
    off = _size(_svg(spec))[0] - asked
    if abs(off) <= asked / 50 or off >= asked:
        return spec
    again: dict[str, Any] = replaced(_spec(source, look, round(asked - off)), absent)
    return again if abs(_size(_svg(again))[0] - asked) < abs(off) else spec


def _check(source: Any, look: Look) -> None:
    """UsageError for what is no picture, and for fonts that are not there."""
    import altair as alt

    if not (isinstance(source, Figure | alt.TopLevelMixin)):
        raise UsageError(
            f"pictures and pages show a figure or a chart, got a {type(source).__name__}: a figure(trace, view) is one,"
            " a table is written as csv, json or parquet"
        )
    for folder in look.font_folders:
        use_folder(folder)
    if look.font is not None:
        check_family(look.font, look.font_folders)


def _spec(source: Any, look: Look, width: int | None) -> dict[str, Any]:
    """The Vega-Lite spec, themed unless the chart brings its own configuration."""
    import altair as alt

    chart = source.chart(width) if isinstance(source, Figure) else source
    with alt.data_transformers.enable("default", max_rows=None):
        spec: dict[str, Any] = chart.to_dict()
    if isinstance(source, Figure):
        theme = theme_named(look.theme)
        spec["config"] = config(theme)
        spec = spec if look.width is None else wrapped(spec, look.width - _PADDING, theme.size)
    if look.font is not None:
        spec.setdefault("config", {})["font"] = f"{look.font}, {FONT}"
    return spec


def _written(spec: dict[str, Any], look: Look) -> dict[str, str]:
    """How characters are written that no font has: as <U+XXXX>, with a warning that names them."""
    absent = missing(set(json.dumps(spec, ensure_ascii=False)), look.font_folders)
    names = {char: "" if char in JOINERS else f"<U+{ord(char):04X}>" for char in absent}
    if shown := sorted(name for name in names.values() if name):
        warnings.warn(
            f"no font has {len(shown)} of the characters, they are drawn as {', '.join(shown[:5])}"
            f"{', ...' if len(shown) > 5 else ''}: install a font for them or name its folder",
            stacklevel=5,
        )
    return names


def _svg(spec: dict[str, Any]) -> str:
    import vl_convert

    try:
        svg: str = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])
    except ValueError as error:
        raise UsageError(f"the chart cannot be drawn: {str(error).splitlines()[0]}") from error
    # whoever draws the picture would fetch them
    if found := re.search(r'<[^>]* (?:xlink:)?href="((?!data:|#)[^"]*)"', svg):
        raise UsageError(f"the chart refers to {found[1]}: put the data into the chart, nothing is fetched")
    # the converter counts its gradients and clips on from picture to picture
    names = dict.fromkeys(re.findall(r'<[^>]* id="((?:gradient|clip)_?\d+)"', svg))
    fresh = {name: re.sub(r"\d+", str(place), name) for place, name in enumerate(names)}
    mark = re.compile(r'(?<= id=")(\w+)(?=")|(?<=="url\(#)(\w+)(?=\)")')
    return re.sub(r"<[^>]*>", lambda tag: mark.sub(lambda m: fresh.get(m[0], m[0]), tag[0]), svg)


def _sized(svg: str, width: float | None, unit: float = 1.0) -> str:
    """The picture at exactly that width in pixels, or at its own, in units of so many pixels."""
    own = _size(svg)
    scale = (width or own[0]) / own[0] / unit
    return _ROOT.sub(f'width="{own[0] * scale:.6g}" height="{own[1] * scale:.6g}"', svg, count=1)


def _size(svg: str) -> tuple[float, float]:
    """Width and height in pixels."""
    found = _ROOT.search(svg)
    assert found is not None
    return float(found[1]), float(found[2])


def _drawn(svg: str, kind: str, look: Look) -> bytes:
    import vl_convert

    # the converter takes pixels for points
    sized = _sized(in_fonts(svg, look.font, look.font_folders), look.width, unit=_INCH / 72)
    if kind == "png":
        picture: bytes = vl_convert.svg_to_png(sized, ppi=look.dpi)
        return picture
    return ordered(vl_convert.svg_to_pdf(sized))
