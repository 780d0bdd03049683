"""Colours: even lightness, enough contrast, and one message for a theme that is not there."""

import itertools

import pytest

from attnviz.charts.theme import COLOURS, THEMES, config, theme_named
from attnviz.errors import UsageError


def luminance(colour):
    """Relative luminance as WCAG defines it."""
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("name", COLOURS)
def test_lightness_of_a_colour_map_only_rises_or_only_falls(name):
    steps = [luminance(b) - luminance(a) for a, b in itertools.pairwise(COLOURS[name])]
    assert len(COLOURS[name]) == 17
    assert all(step > 0 for step in steps) or all(step < 0 for step in steps)


@pytest.mark.parametrize("name", THEMES)
def test_text_can_be_read_on_its_background(name):
    theme = THEMES[name]
    assert contrast(theme.text, theme.background) > 7
    for colour in (theme.muted, theme.accent):
        assert contrast(colour, theme.background) > 4.5
    assert contrast(theme.second, theme.background) > 3
    assert config(theme)["font"].endswith("sans-serif")


def test_masked_colour_is_grey_and_in_no_colour_map():
    for theme in THEMES.values():
        channels = [int(theme.masked[at : at + 2], 16) for at in (1, 3, 5)]
        assert max(channels) - min(channels) < 20


def test_unknown_theme():
    with pytest.raises(UsageError, match=r"^theme must be one of screen, paper, dark, got 'neon'$"):
        theme_named("neon")
