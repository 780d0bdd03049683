"""What every test gets: one torch thread, no network, the bundled models."""

import os
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"

import pytest
import torch

torch.set_num_threads(1)


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
