import torch
from traces import make_trace

from attnviz.dashboard.cache import Cache, tensor_bytes


def test_the_value_unused_for_longest_goes_first():
    cache = Cache(10)
    for key in "abc":
        cache.put(key, key.upper(), 4 if key != "c" else 2)
    assert cache.get("a") == "A"
    cache.put("d", "D", 3)
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert cache.used == 9


def test_the_visitor_hears_once_that_a_value_was_dropped():
    cache = Cache(1)
    cache.put("a", 1, 1)
    cache.put("b", 2, 1)
    assert [cache.take("a"), cache.take("a"), cache.take("b")] == [True, False, False]


def test_a_value_larger_than_the_budget_is_kept_alone():
    cache = Cache(10)
    cache.put("small", 1, 1)
    cache.put("large", 2, 100)
    assert (cache.get("small"), cache.get("large")) == (None, 2)


def test_the_same_key_counts_once():
    cache = Cache(10)
    for _ in range(3):
        cache.put("a", 1, 6)
    assert cache.used == 6


def test_bytes_of_a_trace_are_those_of_its_tensors():
    trace = make_trace(("a", "b", "c"), layers=1, heads=2)
    query_key_logsumexp = 2 * 3 * (8 + 8 + 1) * 4
    assert tensor_bytes(trace.records) >= query_key_logsumexp
    twice = make_trace(("a", "b", "c"), layers=2, heads=2)
    assert tensor_bytes(twice.records) == 2 * tensor_bytes(trace.records)


def test_shared_memory_counts_once():
    tensor = torch.zeros(100)
    assert tensor_bytes([tensor, tensor[:10], {"again": (tensor,)}]) == 400
