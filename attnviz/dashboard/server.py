"""The application that both ways of starting serve: its script, routes, middleware and settings."""

from __future__ import annotations

import os
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..models import BUNDLED
from . import tiles
from .settings import settings

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

HERE = Path(__file__).parent

# Vega compiles its expressions, and Streamlit's own page starts from an inline script
POLICY = "; ".join(
    (
        "default-src 'self'",
        "script-src 'self' 'unsafe-inline' 'unsafe-eval' blob:",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data: blob:",
        "font-src 'self' data:",
        "connect-src 'self' data: blob:",
        "worker-src 'self' blob:",
        "object-src 'none'",
        "base-uri 'self'",
        "form-action 'self'",
        "frame-ancestors 'self'",
    )
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
}


class SecurityHeaders:
    """Adds `HEADERS` to every answer that does not set them itself."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, and complete its answer."""

        async def complete(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message.get("headers", []), *_missing(message)]
            await send(message)

        await self.app(scope, receive, complete if scope["type"] == "http" else send)


def _missing(message: MutableMapping[str, Any]) -> list[tuple[bytes, bytes]]:
    have = {name.lower() for name, _ in message.get("headers", [])}
    return [(name.encode(), value.encode()) for name, value in HEADERS.items() if name.encode() not in have]


def index(_: Request) -> Response:
    """Streamlit's page, told where its server is: without that the client looks below every page's own path first, and
    logs an error for each miss."""
    import streamlit
    from starlette.responses import HTMLResponse

    page = (Path(streamlit.__file__).parent / "static" / "index.html").read_text()
    head = f"<title>attnviz</title><script>{(HERE / 'page.js').read_text()}</script>"
    return HTMLResponse(page.replace("<title>Streamlit</title>", head), headers={"cache-control": "no-cache"})


@asynccontextmanager
async def warm(_: Any) -> AsyncIterator[None]:
    """Load the first model while the first visitor's browser still opens, if that takes no download."""
    import torch

    from . import runs
    from .jobs import LOADING

    # the default of threads that begin from here on, which draw pages: many small steps, for several visitors
    torch.set_num_threads(1)

    first = next(iter(BUNDLED))
    if BUNDLED[first].fetched:
        runs.queue().submit("server", first, partial(runs.keep_model, first), LOADING)
    yield


def app_options() -> dict[str, Any]:
    """The arguments of `streamlit.App`. Unless hub models are allowed, nothing may reach for the network."""
    from starlette.middleware import Middleware
    from starlette.middleware.trustedhost import TrustedHostMiddleware
    from starlette.routing import Route

    from . import frames
    from .shell import PAGES

    if not settings().allow_hub:
        os.environ["HF_HUB_OFFLINE"] = "1"
    return {
        "script_path": HERE / "script.py",
        "lifespan": warm,
        "routes": [*tiles.routes(), *frames.routes(), *(Route(f"/{name}", index) for name in ("", *PAGES))],
        "middleware": [
            Middleware(SecurityHeaders),
            Middleware(TrustedHostMiddleware, allowed_hosts=list(settings().hosts)),
        ],
    }


def config(host: str | None = None, port: int | None = None) -> dict[str, Any]:
    """The options of config.toml under their dotted names, with the address to serve at."""
    options = _flat(tomllib.loads((HERE / "config.toml").read_text()))
    given = {"server.address": host, "browser.serverAddress": host, "server.port": port}
    return options | {name: value for name, value in given.items() if value is not None}


def _flat(table: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in table.items():
        found |= _flat(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return found
