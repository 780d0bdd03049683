"""Tiled attention that leaves weights, maps and statistics behind when asked. Needs torch only."""

from .checks import check
from .dispatch import (
    BACKENDS,
    attend,
    choose,
    pool,
    pull,
    push,
    received,
    statistics,
    tile,
    unavailable,
    view_of,
    weight_gradients,
)
from .spec import (
    ArgumentError,
    Attended,
    BackendError,
    Call,
    Emit,
    Mask,
    Statistics,
    View,
    pool_edges,
)
from .visibility import visible_keys

__all__ = [
    "BACKENDS",
    "ArgumentError",
    "Attended",
    "BackendError",
    "Call",
    "Emit",
    "Mask",
    "Statistics",
    "View",
    "attend",
    "check",
    "choose",
    "pool",
    "pool_edges",
    "pull",
    "push",
    "received",
    "statistics",
    "tile",
    "unavailable",
    "view_of",
    "visible_keys",
    "weight_gradients",
]
