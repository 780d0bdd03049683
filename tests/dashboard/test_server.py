import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.testclient import TestClient

from attnviz.dashboard import server
from attnviz.dashboard.settings import Settings, from_environment
from attnviz.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client():
    """Our routes and middleware without Streamlit, of which a process can hold only one."""
    options = server.app_options()
    app = Starlette(routes=options["routes"], middleware=options["middleware"])
    return TestClient(app, base_url="http://localhost")


@pytest.mark.parametrize("path", ["/", "/map", "/nothing"])
def test_every_answer_carries_the_security_headers(client, path):
    headers = client.get(path).headers
    for name, value in server.HEADERS.items():
        assert headers[name] == value
    assert "frame-ancestors 'self'" in headers["content-security-policy"]


def test_a_foreign_host_is_refused(client):
    assert client.get("/", headers={"host": "evil.example"}).status_code == 400
    assert client.get("/", headers={"host": "127.0.0.1:8501"}).status_code == 200


def test_pages_tell_the_client_where_the_server_is(client):
    page = client.get("/entropy").text
    assert "BACKEND_BASE_URL: location.origin" in page
    assert page.index("BACKEND_BASE_URL") < page.index('type="module"')


def test_a_route_may_bring_its_own_policy():
    have = {"headers": [(b"Content-Security-Policy", b"sandbox")]}
    assert b"content-security-policy" not in dict(server._missing(have))


def test_settings_of_the_server():
    options = server.config("127.0.0.1", 1234)
    assert options["server.address"] == "127.0.0.1"
    assert options["server.port"] == 1234
    assert options["browser.gatherUsageStats"] is False
    assert options["client.showErrorDetails"] == "none"
    assert options["theme.dark.backgroundColor"] == "#14171d"


def test_both_ways_of_starting_have_the_same_settings():
    assert (ROOT / ".streamlit/config.toml").read_text() == (server.HERE / "config.toml").read_text()
    lines = (ROOT / "app.py").read_text().splitlines()
    assert len(lines) <= 15
    started = (server.HERE / "__main__.py").read_text()
    assert "app = st.App(**app_options())" in lines
    assert "app = st.App(**app_options())" in started


@pytest.mark.skipif(sys.platform == "win32", reason="there is no uvloop for Windows")
def test_small_answers_do_not_wait_for_delayed_acknowledgements():
    """Streamlit's sockets leave Nagle's algorithm on under asyncio; uvloop turns it off."""
    factory = uvicorn.Config("app:app").get_loop_factory()
    loop = factory()
    try:
        assert type(loop).__module__.startswith("uvloop")
    finally:
        loop.close()


def test_what_the_environment_says(tmp_path):
    found = from_environment(
        {"ATTNVIZ_MODEL_ROOT": str(tmp_path), "ATTNVIZ_MAX_TOKENS": "99", "ATTNVIZ_HOSTS": "a.example, b.example"}
    )
    hosts = ("127.0.0.1", "localhost", "a.example", "b.example")
    assert found == Settings(tmp_path.resolve(), max_tokens=99, hosts=hosts)
    assert from_environment({}) == Settings()
    (tmp_path / "run.attn").touch()
    traces = os.pathsep.join([str(tmp_path / "run.attn")] * 2)
    assert from_environment({"ATTNVIZ_TRACES": traces}).traces == ((tmp_path / "run.attn").resolve(),) * 2


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"ATTNVIZ_MAX_TOKENS": "many"}, "ATTNVIZ_MAX_TOKENS must be a positive whole number, got 'many'"),
        ({"ATTNVIZ_MAX_TOKENS": "0"}, "ATTNVIZ_MAX_TOKENS must be a positive whole number, got '0'"),
        (
            {"ATTNVIZ_MODEL_ROOT": "/no/such"},
            "the model root /no/such is not a folder: give one that holds model folders or .attn files",
        ),
        (
            {"ATTNVIZ_TRACES": "/no/run.attn"},
            "/no/run.attn is not there or no trace: give .attn files written by attnviz record",
        ),
    ],
)
def test_settings_that_make_no_sense(environment, message):
    with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
        from_environment(environment)


def test_nothing_heavy_is_imported_to_show_the_command_line():
    code = "import sys, attnviz.cli.dashboard; sys.exit('streamlit' in sys.modules or 'transformers' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
