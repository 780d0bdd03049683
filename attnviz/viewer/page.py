"""A head's map as one self-contained page: the viewer, coarse tiles of the whole map and all tiles of a region."""

from __future__ import annotations

import base64
import json
import zlib
from importlib import resources
from typing import Any

from ..charts.theme import COLOURS, theme_named
from ..errors import UsageError
from ..head import Head
from .tiles import TILE, levels, tile_bytes

COARSE = 1024
"""Cells along the side of the finest level that is kept for the whole map."""

REGION = 1024
"""Tokens along the side of the region that is kept at full resolution."""


def spec_of(head: Head, theme: str = "screen") -> dict[str, Any]:
    """What the viewer must know of a head beside its tiles."""
    rows, cols = head.shape
    return {
        "id": f"{head.model} {head.layer} {head.head}",
        "title": f"layer {head.layer} head {head.head}",
        "rows": rows,
        "cols": cols,
        "rowLabels": [token.label for token in head.rows],
        "colLabels": [token.label for token in head.cols],
        "visible": head.visible.tolist(),
        "largest": [round(value, 6) for value in head.statistics.largest.nan_to_num(nan=0.0).tolist()],
        "colours": {name: list(stops) for name, stops in COLOURS.items()},
        "masked": theme_named(theme).masked,
    }


def kept_tiles(head: Head, at: tuple[int, int] = (0, 0)) -> list[tuple[int, int, int]]:
    """(level, down, across) of the tiles a page holds: the coarse levels whole, the finer ones around `at`.

    at is the row and column where the region of full resolution begins.
    """
    rows, cols = head.shape
    if not (0 <= at[0] < rows and 0 <= at[1] < cols):
        raise UsageError(f"the region must begin inside the map of {rows} x {cols}, got row {at[0]}, column {at[1]}")
    found = []
    for level, (high, wide) in enumerate(levels(rows, cols)):
        whole = max(high, wide) <= COARSE
        down = _reach(0, high) if whole else _reach(at[0] >> level, min(high, (at[0] + REGION) >> level))
        across = _reach(0, wide) if whole else _reach(at[1] >> level, min(wide, (at[1] + REGION) >> level))
        found += [(level, d, a) for d in down for a in across]
    return found


def _reach(start: int, stop: int) -> range:
    return range(start // TILE, -(-stop // TILE))


def map_page(head: Head, *, at: tuple[int, int] = (0, 0), theme: str = "screen") -> str:
    """HTML of the map with its own zoom; makes no request, and token text in it is never markup."""
    look, altered = theme_named(theme), head.altered
    tiles = {
        "/".join(map(str, place)): base64.b64encode(_deflate(tile_bytes(head, *place).numpy().tobytes())).decode()
        for place in kept_tiles(head, at)
    }
    data = json.dumps({"spec": spec_of(head, theme), "tiles": tiles}, ensure_ascii=False).replace("<", "\\u003c")
    parts = {
        "title": f"Attention of {head.model}, layer {head.layer} head {head.head}" + (altered and f", {altered}"),
        "theme": "dark" if theme == "dark" else "light",
        "style": _asset("viewer.css"),
        "viewer": _asset("viewer.js").replace("export function", "function").replace("export const", "const"),
        "data": data,
        "background": look.background,
        "text": look.text,
    }
    page = _asset("page.html")
    for name in ("title", "theme", "background", "text"):
        page = page.replace(f"%{name}%", _escape(parts[name]))
    # data last: nothing in it is looked at again
    return page.replace("%style%", parts["style"]).replace("%viewer%", parts["viewer"]).replace("%data%", data)


def _deflate(content: bytes) -> bytes:
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    return packer.compress(content) + packer.flush()


def _asset(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


def _escape(text: str) -> str:
    from html import escape

    return escape(text, quote=True)
