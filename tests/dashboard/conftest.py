"""Pages on small made-up traces, in process, and one real server for browsers."""

from pathlib import Path

import pytest
from dashboard import browsing
from dashboard.models import TEXT, write_models
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash
from traces import make_trace

from attnviz import load_model
from attnviz.dashboard import runs
from attnviz.dashboard import settings as settings_module

SCRIPT = Path(settings_module.__file__).with_name("script.py")


@pytest.fixture(autouse=True)
def _fresh_server(monkeypatch):
    """No test sees what another left in the server's stores."""
    for store in (runs.traces, runs.models, runs.queue, settings_module.settings):
        store.cache_clear()
    for name in ("MODEL_ROOT", "ALLOW_HUB", "MAX_TOKENS", "TRACE_BUDGET", "HOSTS", "TRACES"):
        monkeypatch.delenv(f"ATTNVIZ_{name}", raising=False)


class Words:
    """A tokenizer that counts a text's words, and otherwise does as the real one."""

    def __init__(self, real):
        self.real = real

    def __call__(self, text, verbose=True, **options):
        return self.real(text, **options) if options else {"input_ids": text.split()}

    def __getattr__(self, name):
        return getattr(self.real, name)


@pytest.fixture
def recorded(monkeypatch, model_folder):
    """Every text is recorded as a random trace of its words; the list says which texts were."""
    done = []

    def record(model, tokenizer, wanted, job):
        done.append(wanted.text)
        trace = make_trace(wanted.text.split(), causal=wanted.model == "smollm2")
        trace.model = wanted.model
        return trace

    model, tokenizer = load_model(model_folder / "bert")
    monkeypatch.setattr(runs, "load", lambda name, job: (model, Words(tokenizer)))
    monkeypatch.setattr(runs, "record", record)
    return done


@pytest.fixture
def visit(recorded):
    """Open a page of the dashboard with query parameters, as a browser would."""

    def opened(page="", **query):
        app = AppTest.from_file(SCRIPT, default_timeout=90)
        app._page_hash = calc_hash(page) if page else ""
        for name, value in query.items():
            app.query_params[name] = value
        app.run()
        assert not app.exception
        return app

    return opened


@pytest.fixture(scope="session")
def server_folder(tmp_path_factory):
    """The model root of the running dashboard: three saved traces."""
    folder = tmp_path_factory.mktemp("models")
    browsing.write_traces(folder)
    write_models(folder)
    return folder


@pytest.fixture(scope="session")
def server(server_folder):
    """The address of one running dashboard."""
    if browsing.CHROMIUM is None:
        pytest.skip("browser tests need Chromium; install the Debian package chromium")
    with browsing.serving(server_folder) as address:
        yield address


@pytest.fixture
def visitor(browser, server):
    """A visitor in a fresh profile. No test may leave an error in the console or a request to elsewhere behind."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    one = browsing.Visitor(context.new_page(), server)
    yield one
    context.close()
    assert one.errors == []
    assert one.outside == []


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory):
    return write_models(tmp_path_factory.mktemp("tiny"))


@pytest.fixture
def real(monkeypatch, model_folder):
    """Open a page with tiny real models offered: `bert` and `llama`."""
    monkeypatch.setenv("ATTNVIZ_MODEL_ROOT", str(model_folder))

    def opened(page, **query):
        app = AppTest.from_file(SCRIPT, default_timeout=90)
        app._page_hash = calc_hash(page)
        for name, value in {"text": TEXT, **query}.items():
            app.query_params[name] = value
        app.run()
        assert not app.exception
        return app

    return opened
