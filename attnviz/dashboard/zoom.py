"""The deep-zoom map as a part of the page: the viewer's own code, fed with tiles by this server."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib import resources
from pathlib import Path
from typing import Any

import streamlit as st

from ..charts.theme import COLOURS, theme_named
from ..head import Head
from . import figures
from .address import warn_unknown
from .grants import grants
from .places import Place
from .session import capability

LOOK = {
    "show": ("Show", ("weight", "visible", "row")),
    "scale": ("Scale", ("root", "log", "linear")),
    "range": ("Range of colours", ("auto", "full")),
    "colours": ("Colours", tuple(COLOURS)),
}
"""How maps are drawn, by the name in the address: what it is called, and what there is, the first left out there."""


def zoom(
    place: Place,
    head: Head,
    numbers: tuple[Sequence[int], Sequence[int]],
    selected: tuple[int, int],
    *,
    key: str,
    pick: Callable[[int, int], None],
) -> None:
    """Draw the map of a head. numbers are the positions that rows and columns are called by, selected is the drawn row
    and column to mark; `pick` is called with a drawn row and column before the page runs again."""

    def picked() -> None:
        found = st.session_state[key].pick
        if found is not None:
            pick(int(found["row"]), int(found["col"]))

    data = described(place, head, numbers, selected)
    _component()(data=data, key=key, on_pick_change=picked, on_look_change=partial(_looked, key))


def linked(place: Place, head: Head, *, key: str, group: str, other: Place | None = None) -> None:
    """Draw a map whose view moves with those of the same group; given the place of another map of the same size, how
    that one differs: the largest weight of each cell there less the one here."""
    data = described(place, head, tuple(range(count) for count in head.shape), None)
    if other is not None:
        look = theme_named(figures.theme())
        told = {"map": grants().allow(capability(), other), "colours": [look.accent, look.masked, look.second]}
        data |= {"change": told, "title": f"difference from {data['title']}"}
    looked = partial(_looked, key)
    _component()(data={**data, "group": group}, key=key, on_pick_change=lambda: None, on_look_change=looked)


def look() -> dict[str, str]:
    """How the address says that maps are drawn, without what is drawn so anyway."""
    asked = {name: st.query_params.get(name) for name in LOOK}
    return {name: value for name, value in asked.items() if value in LOOK[name][1][1:]}


def open_look() -> None:
    """Bring what the address says together with what was chosen on other pages of this visit, which it has lost. A line
    for each choice that the address names and that does not exist."""
    for name, (label, options) in LOOK.items():
        warn_unknown(label, options, name)
    _chosen().update(look())
    _tell(_chosen())


def _looked(key: str) -> None:
    """Keep what was chosen in the map."""
    _chosen().update(st.session_state[key].look or {})
    _tell(_chosen())


def _chosen() -> dict[str, str]:
    """What this visit chose, by the name in the address."""
    chosen: dict[str, str] = st.session_state.setdefault("look", {})
    return chosen


def _tell(chosen: Mapping[str, str]) -> None:
    """Make the address say so; what is drawn so anyway, and what does not exist, is left out there."""
    for name, (_, options) in LOOK.items():
        value = chosen.get(name)
        if value not in options[1:]:
            st.query_params.pop(name, None)
        elif value != st.query_params.get(name):
            st.query_params[name] = value


def described(
    place: Place, head: Head, numbers: tuple[Sequence[int], ...], selected: tuple[int, int] | None
) -> dict[str, Any]:
    """What the viewer is told; labels and tiles it asks for with the capability."""
    rows, cols = head.shape
    secret = capability()
    given = {
        name: list(positions)
        for name, positions in zip(("rowNumbers", "colNumbers"), numbers, strict=True)
        if not isinstance(positions, range)
    }
    return {
        "capability": secret,
        "map": grants().allow(secret, place),
        "axes": grants().name(place.axes),
        "title": f"layer {head.layer} head {head.head}",
        "rows": rows,
        "cols": cols,
        "selected": None if selected is None else {"row": selected[0], "col": selected[1]},
        "colours": {name: list(stops) for name, stops in COLOURS.items()},
        "look": look(),
        "theme": "dark" if figures.theme() == "dark" else "light",
        **given,
    }


def _component() -> Any:
    return st.components.v2.component("attnviz_map", html='<div class="map"></div>\n', css=_css(), js=_js())


@cache
def _css() -> str:
    return _viewer("viewer.css")


@cache
def _js() -> str:
    return _viewer("viewer.js") + (Path(__file__).parent / "map.js").read_text(encoding="utf-8")


def _viewer(name: str) -> str:
    return (resources.files("attnviz.viewer") / name).read_text(encoding="utf-8")
