"""The deep-zoom map: tiles of a head's weights at every scale, and the page code that shows them."""

from .page import map_page, spec_of
from .tiles import TILE, bands, codes, deepest, levels, quantise, restore, tile_bytes

__all__ = [
    "TILE",
    "bands",
    "codes",
    "deepest",
    "levels",
    "map_page",
    "quantise",
    "restore",
    "spec_of",
    "tile_bytes",
]
