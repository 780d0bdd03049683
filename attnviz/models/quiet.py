"""Loading without transformers' own bars and log lines; problems reach the user as errors instead."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def transformers() -> Iterator[None]:
    """No bar and no log line of transformers inside the block; its settings are put back afterwards."""
    import logging as levels
    import os

    with warnings.catch_warnings():
        # its bars would be widgets in a notebook, and ask for a package that draws them
        warnings.filterwarnings("ignore", "IProgress not found")
        from transformers.utils import logging

    # else transformers asks a service of the hub to convert pickled weights
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity(levels.CRITICAL)
    logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()  # type: ignore[no-untyped-call]
