"""BertViz's head view and model view in a frame that can reach nothing, for texts short enough for it."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING, Any

import streamlit as st

from ..trace import Trace
from . import runs
from .jobs import Job
from .network import computed
from .offline import POLICY, offline
from .sidebar import Look

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

ALL_LAYERS, ONE_LAYER = 64, 128
"""Tokens up to which BertViz stays usable: with every layer, and with one."""
INSTALL = "This view is drawn by BertViz, which is not installed here: pip install 'attnviz[bertviz]'"
HEADERS = {
    "content-security-policy": f"sandbox allow-scripts; {POLICY}; frame-ancestors 'self'",
    "cache-control": "no-store",
}


def draw(look: Look, heads: bool) -> None:
    """The head view, or the model view."""
    count = max(look.head.shape)
    if not installed():
        st.info(INSTALL, icon=":material/info:")
    elif count > ONE_LAYER:
        st.info(
            f"BertViz draws texts of up to {ONE_LAYER} tokens, this one has {count:,}: use the strongest links or the"
            " map.",
            icon=":material/info:",
        )
    else:
        _frame(look, heads, count)


def _frame(look: Look, heads: bool, count: int) -> None:
    layers = look.trace.layers if count <= ALL_LAYERS else (look.head.layer,)
    if len(layers) == 1:
        st.caption(f"One layer, {layers[0]}: of texts over {ALL_LAYERS} tokens BertViz draws no more.")
    if heads:
        st.caption("Opens on the selected layer; BertViz has a list of its own to choose others.")
    first = layers.index(look.head.layer) if heads else None
    key = (look.wanted, look.kind, look.trace.batch, "bertviz", heads, layers, first)
    name, page = computed(key, partial(made, look.trace, layers, first), 8 << 20)
    runs.traces().put(("frame", name), page, len(page))
    wide = look.trace.record(layers[0]).heads
    tall = 120 + 24 * count if heads else 100 + len(layers) * min(400, 1200 // wide)
    st.iframe(f"/frame/{name}", height=min(tall, 1600))
    view = "head-view" if heads else "model-view"
    st.download_button("html", page, f"bertviz-{view}.html", "text/html", key=f"bertviz_{view}", on_click="ignore")
    st.code(python(look, heads), "python")


def installed() -> bool:
    """Whether BertViz can be imported."""
    from importlib.util import find_spec

    return find_spec("bertviz") is not None


def made(trace: Trace, layers: tuple[int, ...], first: int | None, job: Job) -> tuple[str, str]:
    """A name that nobody can guess, and the page: the head view that opens on one of the layers, or the model view."""
    import bertviz

    job.step("Drawing with BertViz")
    arguments = trace.to_bertviz(layers)
    rounded = {name: _rounded(value) for name, value in arguments.items()}
    options: dict[str, Any] = {"display_mode": "light"} if first is None else {"layer": first}
    view = bertviz.model_view if first is None else bertviz.head_view
    return secrets.token_urlsafe(24), offline(view(**rounded, html_action="return", **options).data)


def _rounded(value: Any) -> Any:
    """Weights with three decimals, which halves the page; tokens as they are."""
    if value and not isinstance(value[0], str):
        return [weights.double().round(decimals=3) for weights in value]
    return value


def python(look: Look, heads: bool) -> str:
    """The lines that draw the same in a notebook."""
    from .lines import recorded

    view = "head_view" if heads else "model_view"
    return f"import attnviz, bertviz\n\n{recorded(look.wanted)}\nbertviz.{view}(**trace.to_bertviz())"


def answer(request: Request) -> Response:
    """A page by its name, walled off from the one that frames it."""
    from starlette.responses import HTMLResponse, PlainTextResponse

    page = runs.traces().get(("frame", request.path_params["name"]))
    if page is None:
        return PlainTextResponse("This view made room for others: reload the page.", 404)
    return HTMLResponse(page, headers=HEADERS)


def routes() -> list[Route]:
    """Where frames come from."""
    from starlette.routing import Route

    return [Route("/frame/{name}", answer)]
