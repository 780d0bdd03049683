"""The architectures that every test of transformers models runs over."""

import pytest
from recording.oracle import names


@pytest.fixture(params=names())
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)
