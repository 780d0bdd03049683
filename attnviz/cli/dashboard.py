"""`attnviz dashboard`: serve the dashboard on this machine."""

from __future__ import annotations

import os
import runpy
import socket
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated

import typer

from ..errors import UsageError


def register(app: typer.Typer) -> None:
    """Add `dashboard` to the application."""
    app.command(epilog="Example: attnviz dashboard run.attn --model-root ~/models --port 8600")(dashboard)


def dashboard(
    traces: Annotated[
        list[Path] | None, typer.Argument(help="Saved traces (.attn) to open; the first is shown.", show_default=False)
    ] = None,
    host: Annotated[str, typer.Option(help="Address to serve at; 0.0.0.0 lets other machines in.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port; else 8501, or the next one that is free.")
    ] = None,
    model_root: Annotated[
        Path | None, typer.Option(help="Folder whose models and saved traces (.attn) visitors may open.")
    ] = None,
    allow_hub: Annotated[bool, typer.Option("--allow-hub", help="Let visitors load models from the hub.")] = False,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest text, in tokens.")] = 32768,
    memory: Annotated[float, typer.Option(min=0.01, help="Memory for the traces of all visitors, in GiB.")] = 2.0,
    name: Annotated[
        list[str] | None, typer.Option(help="Host name by which browsers reach this server; may be repeated.")
    ] = None,
) -> None:
    """Look at any head of any run in the browser. Nothing leaves this machine."""
    if find_spec("streamlit") is None:
        raise UsageError("the dashboard needs streamlit: pip install 'attnviz[dashboard]'")
    if port is not None:
        _check_free(host, port)
    hosts = [*(name or []), *([] if host == "0.0.0.0" else [host])]
    os.environ |= {
        "ATTNVIZ_HOST": host,
        "ATTNVIZ_PORT": str(port or ""),
        "ATTNVIZ_HOSTS": ",".join(hosts),
        "ATTNVIZ_MODEL_ROOT": str(model_root or ""),
        "ATTNVIZ_ALLOW_HUB": "1" if allow_hub else "",
        "ATTNVIZ_MAX_TOKENS": str(max_tokens),
        "ATTNVIZ_TRACE_BUDGET": str(int(memory * 2**30)),
        "ATTNVIZ_TRACES": os.pathsep.join(str(path) for path in traces or ()),
    }
    runpy.run_module("attnviz.dashboard", run_name="__main__", alter_sys=True)


def _check_free(host: str, port: int) -> None:
    """UsageError for a port that another program listens at, and a host that is not this machine."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        socket.create_server((host, port), family=family).close()
    except OSError as error:
        raise UsageError(
            f"cannot serve at {host}, port {port} ({error.strerror}): choose another --port, or leave it out"
        ) from error
