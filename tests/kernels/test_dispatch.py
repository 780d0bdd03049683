"""Which backend serves a call, and that the choice is said aloud."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

from attnviz_kernels import (
    BACKENDS,
    ArgumentError,
    BackendError,
    Call,
    attend,
    choose,
    dispatch,
    pool,
    pull,
    push,
    received,
    statistics,
    tile,
    unavailable,
    view_of,
)


def some_call(dtype=torch.float32, **options):
    query, key, value = (torch.randn(1, 2, 5, 16, dtype=dtype, **options) for _ in range(3))
    return Call(query, key, value, 0.25)


class Backend(SimpleNamespace):
    """A backend that records what it is asked, and answers everything with the same thing."""

    def __init__(self, absent=None, objection=None):
        super().__init__(asked=[], absent=absent, objection=objection)

    def unavailable(self):
        return self.absent

    def refuses(self, call):
        return self.objection


@pytest.fixture
def backends(monkeypatch):
    """Four stand-ins in the order of `BACKENDS`."""
    made = {name: Backend() for name in BACKENDS}
    monkeypatch.setattr(dispatch, "_load", made.__getitem__)
    return made


def test_the_order_of_preference(backends):
    assert list(BACKENDS) == ["triton", "native", "blockwise", "reference"]
    assert choose(some_call()) == "triton"
    backends["triton"].absent = "no GPU"
    assert choose(some_call()) == "native"
    backends["native"].objection = "too large"
    assert choose(some_call()) == "blockwise"


@pytest.mark.parametrize("name", BACKENDS)
def test_an_explicit_choice_wins(backends, name):
    assert choose(some_call(), name) == name


@pytest.mark.parametrize("trouble", ["absent", "objection"])
def test_an_explicit_choice_that_cannot_serve_says_why(backends, trouble):
    setattr(backends["native"], trouble, "the moon is full")
    with pytest.raises(BackendError) as caught:
        choose(some_call(), "native")
    assert str(caught.value) == (
        "the native backend cannot serve this call: the moon is full; leave backend unset to use another"
    )


def test_an_unknown_name_lists_the_known_ones():
    message = "backend must be one of triton, native, blockwise, reference, got 'cuda'"
    for ask in (lambda: choose(some_call(), "cuda"), lambda: unavailable("cuda")):
        with pytest.raises(ArgumentError) as caught:
            ask()
        assert str(caught.value) == message


@pytest.mark.parametrize("name", ["blockwise", "reference"])
def test_these_serve_everything_everywhere(name):
    assert unavailable(name) is None
    assert choose(some_call(torch.float64), name) == name
    assert choose(some_call(device="meta"), name) == name


def test_float64_on_the_cpu_is_served_blockwise():
    assert choose(some_call(torch.float64)) == "blockwise"


def test_every_function_goes_to_the_backend_asked_for(monkeypatch):
    call = some_call()
    view = view_of(call, attend(call.query, call.key, call.value, backend="reference"))
    vector = torch.zeros(1, 1, 5, 2)
    asked = []

    def answering(name):
        return lambda *arguments: asked.append((name, len(arguments)))

    names = ("attend", "statistics", "tile", "pool", "received", "push", "pull")
    other = Backend()
    for name in names:
        setattr(other, name, answering(name))
    monkeypatch.setattr(dispatch, "_load", {"blockwise": other}.__getitem__)
    attend(call.query, call.key, call.value, backend="blockwise")
    statistics(view, backend="blockwise")
    tile(view, backend="blockwise")
    pool(view, (2, 2), backend="blockwise")
    received(view, backend="blockwise")
    push(view, vector, backend="blockwise")
    pull(view, vector, backend="blockwise")
    assert asked == list(zip(names, (2, 1, 3, 5, 1, 2, 2), strict=True))


def test_ranges_arrive_resolved(monkeypatch):
    call = some_call()
    view = view_of(call, attend(call.query, call.key, call.value, backend="reference"))
    other = Backend()
    other.tile = lambda view, rows, cols: (rows, cols)
    monkeypatch.setattr(dispatch, "_load", lambda name: other)
    assert tile(view) == (slice(0, 5), slice(0, 5))
    assert tile(view, slice(-2, None), slice(1, 100)) == (slice(3, 5), slice(1, 5))


def test_functions_of_a_view_leave_no_graph_behind():
    call = some_call(requires_grad=True)
    view = view_of(call, attend(call.query, call.key, call.value, backend="blockwise"))
    vector = torch.zeros(1, 1, 5, 2, requires_grad=True)
    for name in ("blockwise", "reference"):
        found = [tile(view, backend=name), pool(view, (2, 2), backend=name), received(view, backend=name)]
        found += [push(view, vector, backend=name), pull(view, vector, backend=name)]
        found += [statistics(view, backend=name).entropy]
        assert not any(tensor.requires_grad for tensor in found)


def test_no_gradient_is_prepared_where_none_is_wanted():
    call = some_call(requires_grad=True)
    with torch.no_grad():
        assert not attend(call.query, call.key, call.value).output.requires_grad
    with torch.inference_mode():
        assert not attend(call.query, call.key, call.value).output.requires_grad
    assert attend(call.query, call.key, call.value).output.requires_grad


def test_importing_the_package_imports_no_optional_backend():
    code = "import sys, attnviz_kernels; print(sorted({'triton', 'transformers', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
