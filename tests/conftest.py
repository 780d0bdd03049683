"""What every test gets: one torch thread, no network, the bundled models."""

import os
import shutil
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

torch.set_num_threads(1)

CHROMIUM_ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """`pytest tests/export/test_golden.py --rewrite-golden` writes the expected files anew."""
    parser.addoption("--rewrite-golden", action="store_true", help="write tests/golden anew instead of comparing")


def _bundled(name: str) -> tuple[Any, Any]:
    from attnviz.models import BUNDLED, load_model

    if not BUNDLED[name].fetched:
        pytest.skip(f"the bundled model {name} is not fetched; run: attnviz models fetch {name}")
    return load_model(name)


@pytest.fixture(scope="session")
def minilm() -> tuple[Any, Any]:
    """(model, tokenizer) of MiniLM: a BERT encoder, 6 layers x 12 heads."""
    return _bundled("minilm")


@pytest.fixture(scope="session")
def smollm2() -> tuple[Any, Any]:
    """(model, tokenizer) of SmolLM2: a Llama decoder, 30 layers x 9 heads, 3 key/value heads."""
    return _bundled("smollm2")


@pytest.fixture(scope="session")
def browser() -> Any:
    """One Chromium for all tests of a process: a second one beside it would meet the first one's event loop."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("browser tests need Chromium; install the Debian package chromium")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=path, args=CHROMIUM_ARGUMENTS)
        yield chromium
        chromium.close()
