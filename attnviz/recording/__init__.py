"""Recording: `record` any model, `inspect` a text in one call."""

from .custom import attention
from .session import inspect, record
from .taps import tap

__all__ = ["attention", "inspect", "record", "tap"]
