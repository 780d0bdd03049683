"""The frame around every page: navigation, sidebar, and errors as one line."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path

import streamlit as st

from ..errors import AttnvizError
from .address import come_to, make_notes, remember_address, say_ignored, stay
from .alignment import draw as alignment
from .causes import draw as causes
from .compare import draw as compare
from .coreference import draw as coreference
from .dependencies import draw as dependencies
from .entropy import draw as entropy
from .heads import draw as heads
from .links import draw as links
from .map import draw as attention_map
from .safe import plain
from .sidebar import Look, look
from .waiting import make_slot
from .walkthrough import draw as walkthrough

LOG = logging.getLogger(__name__)
HERE = Path(__file__).parent
MARK, LOGO, STYLE = (HERE / name for name in ("mark.svg", "logo.svg", "page.css"))

PAGES: dict[str, tuple[str, Callable[[Look], None]]] = {
    "heads": ("Heads", heads),
    "map": ("Map", attention_map),
    "links": ("Links", links),
    "entropy": ("Entropy", entropy),
    "compare": ("Compare", compare),
    "causes": ("Causes", causes),
    "coreference": ("Coreference", coreference),
    "dependencies": ("Dependencies", dependencies),
    "alignment": ("Alignment", alignment),
    "walkthrough": ("Walkthrough", walkthrough),
}
"""By the name in the address: title and function."""


ABOUT = {"alignment": "cross"}
"""The kind of attention that a page is about."""


def main() -> None:
    """Draw the page that the address names."""
    st.set_page_config(page_icon=str(MARK), layout="wide")
    remember_address()
    st.logo(str(LOGO), size="large", icon_image=str(MARK))
    st.html(STYLE)
    here = st.navigation([_page(name) for name in PAGES], position="top")
    name = here.url_path or next(iter(PAGES))
    st.set_page_config(f"{PAGES[name][0]} · attnviz")
    st.html(f'<h1 class="page-name">{PAGES[name][0]}</h1>')
    come_to(name)
    make_slot()
    make_notes()
    try:
        PAGES[name][1](look(ABOUT.get(name, "")))
        say_ignored()
        stay()
    except AttnvizError as error:
        st.error(plain(error), icon=":material/error:")
    except Exception:
        LOG.exception("a page failed")
        st.error("This page failed; the log of the server says why.", icon=":material/error:")


def _page(name: str) -> st.Page:
    title, _ = PAGES[name]
    return st.Page(lambda: None, title=title, url_path=name, default=name == next(iter(PAGES)))
