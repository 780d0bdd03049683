"""Recording: `record` any model, `inspect` a text in one call."""

from .session import inspect, record

__all__ = ["inspect", "record"]
