"""Reading weights back from the colours of a map."""

import numpy as np

from attnviz.charts.theme import COLOURS


def weights_of(pixels, top):
    """The weights that cividis colours [.., 3] stand for on a root scale up to `top`, by the nearest colour."""
    stops = np.array([[int(stop[at : at + 2], 16) for at in (1, 3, 5)] for stop in COLOURS["cividis"]])
    shares = np.linspace(0, 1, 1001)
    palette = np.stack([np.interp(shares * 16, np.arange(17), stops[:, c]) for c in range(3)], axis=1)
    colours, where = np.unique(pixels.astype(float), axis=0, return_inverse=True)
    nearest = np.abs(colours[:, None, :] - palette[None]).sum(-1).argmin(1)
    return shares[nearest[where]] ** 2 * top
