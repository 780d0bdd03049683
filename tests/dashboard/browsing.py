"""A real browser on a real server: what browser tests share."""

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from contextlib import contextmanager
from pathlib import Path

import torch
from dashboard.models import cross_trace
from traces import make_trace

CHROMIUM = next((path for path in map(Path, ("/usr/bin/chromium", "/usr/bin/chromium-browser")) if path.exists()), None)
WORDS = ("The", "bank", "of", "the", "river", "was", "muddy")
HOSTILE = (
    "</script><script>alert(1)</script>",
    "![](http://attnviz.example/x.png)",
    '<img src="http://attnviz.example/y" onerror=alert(2)>',
    ":red[x] **b** $\\frac12$ `c`",
    "a" * 300,
    "שלום",
    "👩",
    "\u200d🚀",
    "{{constructor}}",
    "datum['x']",
)


def write_traces(folder):
    """Saved traces to open: plain words, hostile words, and a longer text."""
    for name, words, heads in (
        ("words", WORDS, 4),
        ("hostile", HOSTILE, 2),
        ("long", [f"w{n}" for n in range(700)], 2),
    ):
        trace = make_trace(words, layers=3, heads=heads, causal=name == "long")
        trace.save(folder / f"{name}.attn")
    torch.manual_seed(0)
    weights = torch.randn(2, 3, len(HOSTILE), len(WORDS)).softmax(-1)
    cross_trace(weights, WORDS, HOSTILE).save(folder / "pair.attn")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def serving(folder, *, command=("-m", "attnviz.dashboard"), **environment):
    """The dashboard as `attnviz dashboard` starts it, or as another Python command does; yields its address."""
    port = free_port()
    settings = {"ATTNVIZ_PORT": str(port), "ATTNVIZ_MODEL_ROOT": str(folder), **environment}
    log = (folder / "server.log").open("w")
    process = subprocess.Popen(
        [sys.executable, *map(str, command)], env=os.environ | settings, stdout=log, stderr=log, cwd=folder
    )
    try:
        wait_for(f"http://127.0.0.1:{port}/_stcore/health", process, folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(20)
        log.close()


def wait_for(address, process, log, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(address, timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    raise RuntimeError(f"the server did not start:\n{log.read_text()}")


def settled(page):
    """Wait until the script has run and charts are drawn."""
    what = ".stVegaLiteChart svg, .stVegaLiteChart canvas, .attnviz-map, .stAlert"
    drawn = page.locator(f'[data-test-script-state="notRunning"] :is({what})')
    drawn.first.wait_for(state="attached", timeout=60_000)
    page.wait_for_function("!document.querySelector('.stProgress, [data-stale=true]')")
    page.wait_for_timeout(300)


def wait_for_query(page, **expected):
    """Wait until the address has these query parameters."""
    page.wait_for_function(
        "expected => Object.entries(expected).every(([name, value]) =>"
        " new URLSearchParams(location.search).get(name) === String(value))",
        arg=expected,
    )


class Visitor:
    """One browser page that remembers everything that must not happen."""

    def __init__(self, page, server):
        self.page, self.server = page, server
        self.errors, self.outside = [], []
        page.on("console", self._console)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.on("dialog", self._dialog)
        page.on("request", self._request)

    def _console(self, message):
        if message.type == "error":
            self.errors.append(message.text)

    def _dialog(self, dialog):
        self.errors.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    def _request(self, request):
        own = (self.server, self.server.replace("http", "ws"), "data:", "blob:")
        if not request.url.startswith(own):
            self.outside.append(request.url)

    def go(self, path=""):
        self.page.goto(f"{self.server}/{path}")
        settled(self.page)
        return self.page
