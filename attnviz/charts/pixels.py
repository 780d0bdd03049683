"""A map as a small PNG inside a chart: one pixel a cell, weights on a square-root scale, cells without weight clear."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from io import BytesIO
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from .theme import COLOURS, SIGNED

Bytes: TypeAlias = NDArray[np.uint8]

LARGEST = 512
"""Pixels a side of a map; longer texts are shown as block means."""
_CLEAR = 255


def data_url(weights: Tensor, top: float, side: int, colours: str = "cividis") -> str:
    """The map [R, C] as a data URL; `top` has the brightest colour. Cells are enlarged to about `side` pixels.

    Cells of exactly 0 and rows of NaN (no key in sight) are transparent. A map with negative weights has the colours
    `SIGNED` from -top to top.
    """
    from PIL import Image

    values = np.nan_to_num(weights.double().cpu().numpy())
    signed = bool((values < 0).any())
    levels = _levels(values, top, signed)
    enlarge = [max(1, side // count) for count in levels.shape]
    picture = Image.fromarray(levels.repeat(enlarge[0], 0).repeat(enlarge[1], 1), mode="P")
    picture.putpalette(_palette(SIGNED if signed else COLOURS[colours]).tobytes())
    out = BytesIO()
    picture.save(out, "PNG", transparency=_CLEAR, optimize=True)
    return "data:image/png;base64," + base64.b64encode(out.getvalue()).decode("ascii")


def _levels(values: NDArray[np.float64], top: float, signed: bool) -> Bytes:
    share = values / (top or 1.0)
    place = (np.clip(share, -1, 1) + 1) / 2 if signed else np.sqrt(np.clip(share, 0, 1))
    level: Bytes = np.rint(place * (_CLEAR - 1)).astype(np.uint8)
    level[values == 0] = _CLEAR
    return level


def _palette(colours: Sequence[str]) -> Bytes:
    """255 colours from low to high and one that is not seen, [256, 3]."""
    stops = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in colours])
    place = np.linspace(0, len(stops) - 1, _CLEAR)
    channels = [np.interp(place, np.arange(len(stops)), stops[:, channel]) for channel in range(3)]
    palette: Bytes = np.rint([*zip(*channels, strict=True), (0, 0, 0)]).astype(np.uint8)
    return palette
