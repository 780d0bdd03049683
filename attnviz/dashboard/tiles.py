"""The map over HTTP: tiles, labels and what is known of rows.

Everything is computed when asked for, in threads of its own, band by band: whoever no longer waits is not computed for,
and a browser draws what is there. Finished tiles are kept under a budget of their own.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import TYPE_CHECKING, Any

import torch

from ..errors import AttnvizError
from ..viewer import bands, codes
from .cache import Cache
from .grants import grants
from .places import GoneError, Place, head_of

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

CAPABILITY = "x-attnviz-capability"
"""The header with a visitor's secret. Other sites cannot send it."""

BUDGET = 64 << 20
"""Bytes of kept tiles."""

THREADS = 2
"""Tiles computed at once, each in one thread: several threads a tile wait for each other on a busy machine."""

_HEADERS = {"cache-control": "private, max-age=3600", "vary": CAPABILITY}


def routes() -> list[Route]:
    """The routes of the server under /tiles."""
    from starlette.routing import Route

    return [
        Route("/tiles/{name}/labels", _answers(_labels)),
        Route("/tiles/{name}/rows", _answers(_rows)),
        Route("/tiles/{name}/{level:int}/{down:int}/{across:int}", _answers(_tile)),
    ]


@cache
def tiles() -> Cache:
    """The finished tiles of all visitors."""
    return Cache(BUDGET)


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(THREADS, "attnviz-tile", initializer=partial(torch.set_num_threads, 1))


def _answers(answer: Callable[..., Any]) -> Callable[[Request], Any]:
    """The endpoint: finds the map that the request may read, and says in a line what is wrong with one that may not."""

    async def endpoint(request: Request) -> Response:
        from starlette.responses import PlainTextResponse

        place = grants().find(request.headers.get(CAPABILITY, ""), request.path_params["name"])
        if place is None:
            return PlainTextResponse("this page is out of date: reload it", 403)
        try:
            found: Response = await answer(place, request)
        except GoneError as error:
            return PlainTextResponse(str(error), 410)
        except AttnvizError as error:
            return PlainTextResponse(str(error), 404)
        return found

    return endpoint


async def _tile(place: Place, request: Request) -> Response:
    from starlette.responses import StreamingResponse

    where = tuple(request.path_params[name] for name in ("level", "down", "across"))
    kept = tiles().get((place, where))
    if kept is not None:
        return _octets(kept)
    parts = bands(head_of(place), *where)
    if len(parts) == 1:
        return _octets(await _computed((place, where), partial(_band, place, where[0], *parts[0])))
    headers = {**_HEADERS, "content-encoding": "identity"}
    return StreamingResponse(_streamed(place, where, parts), media_type="application/octet-stream", headers=headers)


async def _streamed(place: Place, where: tuple[int, ...], parts: list[tuple[slice, slice]]) -> AsyncIterator[bytes]:
    """The bands of a tile as they are finished; ends where the browser hangs up."""
    done = []
    for rows, cols in parts:
        done.append(await _run(partial(_band, place, where[0], rows, cols)))
        yield done[-1]
    whole = b"".join(done)
    tiles().put((place, where), whole, len(whole))


def _band(place: Place, level: int, rows: slice, cols: slice) -> bytes:
    return codes(head_of(place), level, rows, cols).numpy().tobytes()


async def _labels(place: Place, _: Request) -> Response:
    from starlette.responses import Response

    text = await _computed((place.axes, "labels"), partial(_labels_of, place))
    return Response(text, media_type="application/json", headers=_HEADERS)


def _labels_of(place: Place) -> bytes:
    head = head_of(place)
    labels = [[token.label for token in tokens] for tokens in (head.rows, head.cols)]
    return json.dumps(labels, ensure_ascii=True, separators=(",", ":")).encode()


async def _rows(place: Place, _: Request) -> Response:
    return _octets(await _computed((place, "rows"), partial(_rows_of, place)))


def _rows_of(place: Place) -> bytes:
    """float32, little-endian: for each row the keys it may see, then for each row its largest weight."""
    head = head_of(place)
    largest = torch.nan_to_num(head.statistics.largest)
    return torch.stack([head.visible.float(), largest.float()]).numpy().astype("<f4").tobytes()


def _octets(content: bytes) -> Response:
    from starlette.responses import Response

    return Response(content, media_type="application/octet-stream", headers=_HEADERS)


async def _computed(key: Any, work: Callable[[], bytes]) -> bytes:
    """The bytes kept under the key, made first where there are none."""
    kept: bytes | None = tiles().get(key)
    if kept is None:
        kept = await _run(work)
        tiles().put(key, kept, len(kept))
    return kept


async def _run(work: Callable[[], bytes]) -> bytes:
    """Done in a thread for tiles; a request that is dropped while it waits for one is never begun."""
    return await asyncio.get_running_loop().run_in_executor(_threads(), work)
