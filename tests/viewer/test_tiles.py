import re
from importlib import resources

import pytest
import torch
from traces import make_trace

from attnviz.dashboard.zoom import LOOK
from attnviz.errors import UsageError
from attnviz.viewer import TILE, bands, codes, deepest, levels, quantise, restore, tile_bytes


def test_levels_end_when_the_map_fits_one_tile():
    assert deepest(5, 5) == 0
    assert deepest(256, 256) == 0
    assert deepest(257, 10) == 1
    assert deepest(131072, 131072) == 9
    assert levels(600, 300) == [(600, 300), (300, 150), (150, 75)]


def test_bytes_are_log_steps_and_zero_is_masked():
    codes = quantise(torch.tensor([0.0, 1.0, 1e-6, 1e-9, 1e-3, float("nan")]))
    assert codes.tolist() == [0, 255, 1, 1, 128, 0]


def test_restored_weights_are_within_half_a_step():
    weights = torch.logspace(-6, 0, 1000)
    assert (restore(quantise(weights)) / weights - 1).abs().max() < 0.028


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("count", [5, 256, 300, 530])
def test_tiles_of_every_level_are_block_maxima(count, causal):
    head = make_trace([str(i) for i in range(count)], layers=1, heads=1, causal=causal)[0, 0]
    whole = head.weights()
    for level, (high, wide) in enumerate(levels(*head.shape)):
        size = 1 << level
        wanted = torch.zeros(high, wide)
        for r in range(high):
            for c in range(wide):
                wanted[r, c] = whole[r * size : (r + 1) * size, c * size : (c + 1) * size].max()
        for down in range(-(-high // TILE)):
            for across in range(-(-wide // TILE)):
                found = tile_bytes(head, level, down, across)
                part = wanted[down * TILE : (down + 1) * TILE, across * TILE : (across + 1) * TILE]
                # a weight on the border of two steps may round to either
                assert (found.int() - quantise(part).int()).abs().max() <= 1
                assert torch.equal(found == 0, part == 0)


def test_tiles_outside_are_refused():
    head = make_trace()[0, 0]
    with pytest.raises(UsageError, match="level 1 does not exist: this map has levels 0 to 0"):
        tile_bytes(head, 1, 0, 0)
    with pytest.raises(UsageError, match="tile 0, 1 of level 0 lies outside the map of 5 x 5"):
        tile_bytes(head, 0, 0, 1)


@pytest.mark.parametrize("most", [1, 1000, 10**6])
@pytest.mark.parametrize("level", [0, 1, 2])
def test_bands_put_together_are_the_tile(level, most):
    head = make_trace([str(i) for i in range(530)], layers=1, heads=1, causal=True)[0, 0]
    parts = bands(head, level, 0, 0, most)
    assert all((rows.stop - rows.start) * (cols.stop - cols.start) <= max(most, 530 << level) for rows, cols in parts)
    found = torch.cat([codes(head, level, rows, cols) for rows, cols in parts])
    assert torch.equal(found, tile_bytes(head, level, 0, 0))


def test_the_choices_of_the_viewer_are_those_that_an_address_may_name():
    code = resources.files("attnviz.viewer").joinpath("viewer.js").read_text(encoding="utf-8")
    choices = code.partition("const CHOICES = {")[2].partition("\n};")[0]
    lines = dict(re.findall(r"(\w+): \[\"[^\"]*\", \{(.*)\}\]", choices))
    there = {name: tuple(re.findall(r"(\w+): \"", options)) for name, options in lines.items()}
    assert there == {name: options for name, (_, options) in LOOK.items()}
