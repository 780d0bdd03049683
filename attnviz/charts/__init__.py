"""Pure functions that turn a trace or a head into an altair chart.

Every function takes theme= ("screen", "paper", "dark", or None for a chart to put into another one) and width=, the
pixels of the whole figure. `attnviz.export` writes them to files.
"""

from .alignment import alignment_links, alignment_matrix
from .arcs import Arc, arcs
from .difference import change_grid, difference, difference_table
from .entropy import entropy
from .grid import head_grid
from .heatmap import heatmap
from .links import links
from .results import score_grid, token_bars
from .scaling import scaling
from .thumbnails import small_maps, thumbnails

__all__ = [
    "Arc",
    "alignment_links",
    "alignment_matrix",
    "arcs",
    "change_grid",
    "difference",
    "difference_table",
    "entropy",
    "head_grid",
    "heatmap",
    "links",
    "scaling",
    "score_grid",
    "small_maps",
    "thumbnails",
    "token_bars",
]


def __dir__() -> list[str]:
    return __all__
