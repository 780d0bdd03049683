"""attnviz, the microscope for attention: record what every head of a model did, then look.

    trace = attnviz.inspect("minilm", "The bank of the river was muddy.")
    trace.heads()                    # one row per layer and head
    trace[4, 9].weights()            # the exact map of layer 4, head 9 (both count from zero)

Names are loaded when first used, so that importing attnviz stays light.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from . import analysis, charts, errors, export
    from .errors import AttnvizError
    from .head import Head
    from .models import load_model
    from .recording import attention, inspect, record, tap
    from .storage import load
    from .tokens import Token
    from .trace import Trace

__version__ = "0.1.0"

_HOME = {
    "AttnvizError": "errors",
    "Head": "head",
    "Token": "tokens",
    "Trace": "trace",
    "attention": "recording",
    "inspect": "recording",
    "load": "storage",
    "load_model": "models",
    "record": "recording",
    "tap": "recording",
}
_MODULES = ("analysis", "charts", "errors", "export")

__all__ = [
    "AttnvizError",
    "Head",
    "Token",
    "Trace",
    "analysis",
    "attention",
    "charts",
    "errors",
    "export",
    "inspect",
    "load",
    "load_model",
    "record",
    "tap",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f".{name}", __name__)
    if name in _HOME:
        return getattr(import_module(f".{_HOME[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
