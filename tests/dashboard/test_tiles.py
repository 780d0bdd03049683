"""The routes of the map without a browser: who gets in, what comes back, and that nobody computes for nobody."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from starlette.applications import Starlette
from starlette.testclient import TestClient
from traces import make_trace

from attnviz.dashboard import grants as grants_module
from attnviz.dashboard import places, runs, tiles
from attnviz.dashboard.places import DIVIDED, HIDDEN, TOKENS, WORDS, Place
from attnviz.viewer import restore, tile_bytes

WANTED = runs.Wanted("tiny", "text")
WORDS_300 = [f"w{n}" for n in range(300)]


@pytest.fixture(autouse=True)
def _fresh():
    grants_module.grants.cache_clear()
    tiles.tiles.cache_clear()


@pytest.fixture
def kept():
    trace = make_trace(WORDS_300, causal=True)
    runs.traces().put(WANTED, trace, 1)
    return trace


@pytest.fixture
def reader():
    """A function that reads a path of a map as its visitor."""
    grants = grants_module.grants()
    secret = grants.open()
    client = TestClient(Starlette(routes=tiles.routes()))

    def read(path, place=None, **headers):
        place = place or Place(WANTED, "self", 0, 1, 2)
        name = grants.allow(secret, place)
        return client.get(f"/tiles/{name}/{path}", headers={tiles.CAPABILITY: secret} | headers)

    return read


def codes(answer):
    assert answer.status_code == 200, answer.text
    return torch.frombuffer(bytearray(answer.content), dtype=torch.uint8)


@pytest.mark.parametrize("where", [(0, 0, 0), (0, 1, 1), (0, 0, 1), (1, 0, 0)])
def test_tiles_are_those_of_the_viewer(kept, reader, where):
    path = "/".join(map(str, where))
    assert torch.equal(codes(reader(path)), tile_bytes(kept[1, 2], *where).flatten())
    assert torch.equal(codes(reader(path)), tile_bytes(kept[1, 2], *where).flatten())


def test_large_tiles_come_in_bands(kept, reader, monkeypatch):
    whole = tile_bytes(kept[1, 2], 1, 0, 0).flatten()
    plain = tiles.bands
    monkeypatch.setattr(tiles, "bands", lambda *place: plain(*place, most=2000))
    answer = reader("1/0/0")
    assert answer.headers["content-encoding"] == "identity"
    assert torch.equal(codes(answer), whole)
    assert len(plain(kept[1, 2], 1, 0, 0, most=2000)) == 50
    assert tiles.tiles().used == len(whole)


def test_nobody_reads_without_the_secret(kept, reader):
    assert reader("0/0/0", **{tiles.CAPABILITY: "guess"}).status_code == 403
    other = grants_module.grants().open()
    refused = reader("0/0/0", **{tiles.CAPABILITY: other})
    assert (refused.status_code, refused.text) == (403, "this page is out of date: reload it")


def test_the_secret_is_worth_nothing_after_the_visit(kept):
    grants = grants_module.grants()
    secret = grants.open()
    name = grants.allow(secret, Place(WANTED, "self", 0, 0, 0))
    assert grants.find(secret, name) is not None
    grants.close(secret)
    assert grants.find(secret, name) is None


def test_a_visitor_reads_so_many_maps_at_once():
    grants = grants_module.grants()
    secret = grants.open()
    names = [grants.allow(secret, Place(WANTED, "self", 0, 0, head)) for head in range(grants_module.MAPS + 1)]
    assert [grants.find(secret, name) is None for name in names] == [True] + [False] * grants_module.MAPS


def test_names_say_nothing_and_differ_from_start_to_start():
    place = Place(WANTED, "self", 0, 0, 0)
    one, other = grants_module.Grants(), grants_module.Grants()
    assert one.name(place) != other.name(place)
    assert one.name(place) == one.name(Place(WANTED, "self", 0, 0, 0))


def test_what_made_room_for_others_is_gone(kept, reader):
    runs.traces.cache_clear()
    answer = reader("0/0/0")
    assert (answer.status_code, answer.text) == (410, "this run had made room for others: reload the page")


def test_a_tile_that_does_not_exist_is_a_line(kept, reader):
    answer = reader("7/0/0")
    assert (answer.status_code, answer.text) == (404, "level 7 does not exist: this map has levels 0 to 1")


def test_labels_are_data(kept, reader):
    answer = reader("labels")
    assert json.loads(answer.content) == [WORDS_300, WORDS_300]
    assert answer.headers["content-type"] == "application/json"


def test_rows_tell_visible_keys_and_largest_weights(kept, reader):
    found = torch.frombuffer(bytearray(reader("rows").content), dtype=torch.float32).view(2, 300)
    assert found[0].tolist() == list(range(1, 301))
    torch.testing.assert_close(found[1], kept[1, 2].weights().max(-1).values)


def test_browsers_may_keep_tiles_for_themselves(kept, reader):
    headers = reader("0/0/0").headers
    assert headers["cache-control"].startswith("private")
    assert tiles.CAPABILITY in headers["vary"]


def test_a_request_that_is_dropped_while_it_waits_is_not_computed(kept, monkeypatch):
    """Two threads are held; a third request is cancelled before one is free."""
    import asyncio

    go, begun, done = threading.Event(), threading.Semaphore(0), []

    def work(name):
        begun.release()
        go.wait(10)
        done.append(name)
        return b""

    async def main():
        busy = [asyncio.create_task(tiles._run(lambda: work("busy"))) for _ in range(tiles.THREADS)]
        await asyncio.sleep(0)
        for _ in busy:
            await asyncio.to_thread(begun.acquire)
        late = asyncio.create_task(tiles._run(lambda: work("late")))
        await asyncio.sleep(0.05)
        late.cancel()
        await asyncio.sleep(0.05)
        go.set()
        await asyncio.gather(*busy, return_exceptions=True)
        await asyncio.gather(late, return_exceptions=True)

    # a thread of its own: the browser of other tests keeps an event loop in this one
    with ThreadPoolExecutor(1) as outside:
        outside.submit(asyncio.run, main()).result(60)
    tiles._threads().submit(int).result(10)
    assert done == ["busy"] * tiles.THREADS


def special_trace():
    """Two special tokens around words of several tokens."""
    from dataclasses import replace

    from attnviz.tokens import TokenAxis

    trace = make_trace(("[CLS]", "un", "do", "it", "[SEP]"), layers=1, heads=1)
    axis = trace.axes["self"][0]
    spans = {1: (0, 2), 2: (2, 4), 3: (5, 7)}
    tokens = [
        replace(token, start=spans[place][0], end=spans[place][1]) if place in spans else replace(token, special=True)
        for place, token in enumerate(axis.tokens)
    ]
    trace.axes["self"] = (TokenAxis(tuple(tokens), axis.valid, "undo it"),)
    return trace


@pytest.mark.parametrize("unit", [TOKENS, WORDS])
@pytest.mark.parametrize("special", [HIDDEN, DIVIDED])
def test_words_and_hidden_tokens_have_tiles_of_their_own(reader, unit, special):
    trace = special_trace()
    runs.traces().put(WANTED, trace, 1)
    place = Place(WANTED, "self", 0, 0, 0, unit, special)
    head = places.prepared(place)
    count = len(head.rows)
    found = restore(codes(reader("0/0/0", place))).view(count, count)
    torch.testing.assert_close(found, head.weights(), rtol=0.03, atol=1e-6)
    sums = head.weights().sum(-1)
    assert (sums < 0.9999).any() if special == HIDDEN else torch.allclose(sums, torch.ones(count))
    labels = ["undo", "it"] if unit == WORDS else ["un", "do", "it"]
    assert json.loads(reader("labels", place).content) == [labels, labels]
    assert places.starts(place)[0] == ([1, 3] if unit == WORDS else [1, 2, 3])


def test_positions_find_their_row():
    assert [places.drawn_at([1, 3, 4], position) for position in range(6)] == [0, 0, 0, 1, 2, 2]


def test_no_entry_but_the_trace_itself_holds_its_queries_and_keys():
    """A budget that counts traces means nothing if something else keeps them alive."""
    import gc
    import weakref

    trace = special_trace()
    runs.traces().put(WANTED, trace, 1)
    for unit in (TOKENS, WORDS):
        for special in (HIDDEN, DIVIDED):
            places.prepared(Place(WANTED, "self", 0, 0, 0, unit, special))
    query = weakref.ref(trace.records[0].view.view.query)
    runs.traces()._values.pop(WANTED)
    del trace
    gc.collect()
    assert query() is None
