"""Models by bundled name, local folder, GGUF file or hub id; see `load_model`."""

from .bundled import BUNDLED, Bundled, fetch
from .cache import Cached, cached, home, remove
from .loading import load_config, load_model, load_reader

__all__ = [
    "BUNDLED",
    "Bundled",
    "Cached",
    "cached",
    "fetch",
    "home",
    "load_config",
    "load_model",
    "load_reader",
    "remove",
]
