"""Who may read which map: a secret for each visitor, sent with every request for a tile, worth nothing afterwards."""

from __future__ import annotations

import hashlib
import secrets
from collections import OrderedDict
from functools import cache
from threading import Lock

from .places import Place

MAPS = 64
"""Maps that a visitor may read at once; a further one takes the place of the first."""


class Grants:
    """For each capability the maps it opens, by ids that say nothing about them and differ from start to start."""

    def __init__(self) -> None:
        self._maps: dict[str, OrderedDict[str, Place]] = {}
        self._salt = secrets.token_bytes(16)
        self._lock = Lock()

    def open(self) -> str:
        """A new capability."""
        capability = secrets.token_urlsafe(24)
        with self._lock:
            self._maps[capability] = OrderedDict()
        return capability

    def close(self, capability: str) -> None:
        """The end of a capability."""
        with self._lock:
            self._maps.pop(capability, None)

    def allow(self, capability: str, place: Place) -> str:
        """The id under which the capability may read a map from now on."""
        name = self.name(place)
        with self._lock:
            maps = self._maps.setdefault(capability, OrderedDict())
            maps[name] = place
            maps.move_to_end(name)
            while len(maps) > MAPS:
                maps.popitem(last=False)
        return name

    def find(self, capability: str, name: str) -> Place | None:
        """The map, if this capability may read it."""
        with self._lock:
            return self._maps[capability].get(name) if capability in self._maps else None

    def name(self, place: Place) -> str:
        """The id of a map: the same for all visitors, so that their browsers' caches serve them again."""
        return hashlib.sha256(self._salt + repr(place).encode("utf-8", "surrogatepass")).hexdigest()[:32]


@cache
def grants() -> Grants:
    """Those of this server."""
    return Grants()
