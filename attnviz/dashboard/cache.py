"""A least-recently-used store under a byte budget, shared by all visitors and threads of one server."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import fields, is_dataclass
from threading import Lock
from typing import Any

from torch import Tensor


class Cache:
    """Values with their sizes in bytes. Adding one drops those unused for longest until `budget` holds."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self.dropped: set[Hashable] = set()
        self._values: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    @property
    def used(self) -> int:
        """Bytes held now."""
        return sum(size for _, size in self._values.values())

    def get(self, key: Hashable) -> Any | None:
        """The value, now the most recently used, or None."""
        with self._lock:
            if key not in self._values:
                return None
            self._values.move_to_end(key)
            return self._values[key][0]

    def put(self, key: Hashable, value: Any, size: int) -> None:
        """Keep a value. One larger than the whole budget is kept alone, until the next comes."""
        with self._lock:
            self._values[key] = (value, size)
            self._values.move_to_end(key)
            self.dropped.discard(key)
            while self.used > self.budget and len(self._values) > 1:
                self.dropped.add(self._values.popitem(last=False)[0])

    def take(self, key: Hashable) -> bool:
        """Whether the key was dropped for want of room since last asked."""
        with self._lock:
            gone = key in self.dropped
            self.dropped.discard(key)
            return gone

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._values.clear()

    def make(self, key: Hashable, build: Callable[[], Any], size: Callable[[Any], int]) -> Any:
        """The value kept under the key, built first where there is none."""
        value = self.get(key)
        if value is None:
            value = build()
            self.put(key, value, size(value))
        return value


def tensor_bytes(value: Any) -> int:
    """Bytes of all tensors reachable through dataclasses, lists, tuples and dictionaries; shared memory once."""
    storages: dict[int, int] = {}
    _collect(value, storages)
    return sum(storages.values())


def _collect(value: Any, storages: dict[int, int]) -> None:
    if isinstance(value, Tensor):
        storage = value.untyped_storage()
        storages[storage.data_ptr()] = storage.nbytes()
    elif is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            _collect(getattr(value, field.name), storages)
    elif isinstance(value, list | tuple):
        for item in value:
            _collect(item, storages)
    elif isinstance(value, dict):
        for item in value.values():
            _collect(item, storages)
