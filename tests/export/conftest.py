"""Traces small enough to export often, and a browser."""

import pytest
from hostile import TOKENS
from traces import make_trace


@pytest.fixture(scope="session")
def trace():
    return make_trace(("The", "bank", "of", "the", "bank"), layers=2, heads=3, causal=True)


@pytest.fixture(scope="session")
def hostile():
    return make_trace(TOKENS, layers=2, heads=2)


class Visit:
    """An opened file, and everything it did that it should not: dialogs, requests, errors."""

    def __init__(self, browser, path):
        self.dialogs, self.requests, self.errors = [], [], []
        self.page = browser.new_page()
        self.page.on("dialog", lambda dialog: (self.dialogs.append(dialog.message), dialog.dismiss()))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", lambda message: message.type == "error" and self.errors.append(message.text))
        self.page.goto(path.as_uri())
        self.page.wait_for_selector("svg, canvas", timeout=15_000)

    @property
    def outside(self):
        return [url for url in self.requests if not url.startswith(("file:", "data:", "blob:"))]


@pytest.fixture
def visit(browser):
    visits = []

    def go(path):
        visits.append(Visit(browser, path))
        return visits[-1]

    yield go
    for each in visits:
        each.page.close()
