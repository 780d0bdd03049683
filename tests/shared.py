"""The one place that reads evaluation data and oracles kept beside the checkout; tests skip where they are missing."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "shared"


def shared(relative: str) -> Path:
    """The path of a file or folder under the shared folder, or a skip that says what is missing."""
    path = ROOT / relative
    if not path.exists():
        pytest.skip(f"needs {relative} in a folder `shared` beside the checkout, which is not there")
    return path
