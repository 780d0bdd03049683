"""What only the blockwise backend promises: which tiles it visits, and how much memory it takes."""

from dataclasses import replace

import pytest
import torch
from kernel_cases import Case, assert_within_budget, attended, build, in_double, named, of_view, plain, truth
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from attnviz_kernels import (
    Call,
    Emit,
    Mask,
    attend,
    blockwise_pool,
    blockwise_tiles,
    check,
    pool,
    reference,
    tile,
    view_of,
)


class Largest(TorchDispatchMode):
    """Records the most bytes that any one operation allocated for its result."""

    def __init__(self):
        super().__init__()
        self.bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        given = {storage.data_ptr() for storage in storages(args)}
        new = [storage.nbytes() for storage in storages(result) if storage.data_ptr() not in given]
        self.bytes = max(self.bytes, *new, 0)
        return result


def storages(tree):
    """What the tensors in it lie in."""
    return [leaf.untyped_storage() for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def visited(monkeypatch, mask, rows, keys):
    """Cells of the tiles that a call of one head computes."""
    cells, products = [], blockwise_tiles.products

    def counted(call, rows, cols):
        cells.append((rows.stop - rows.start) * (cols.stop - cols.start))
        return products(call, rows, cols)

    monkeypatch.setattr(blockwise_tiles, "products", counted)
    attend(draw(1, 1, rows, 16), draw(1, 1, keys, 16), draw(1, 1, keys, 16), mask=mask, backend="blockwise")
    return sum(cells)


ids = torch.arange(400)[None] // 50

SPARSE = {  # mask, and the cells of a 400 x 400 map that bands of 16 rows have to visit, row by row
    "causal": (Mask(causal=True), 400 * 400 / 2),
    "window": (Mask(window=(20, 20)), 400 * 41),
    "chunk": (Mask(chunk=50), 400 * 50),
    "padding": (Mask(key_padding=torch.arange(400)[None] < 30), 400 * 30),
    "segments": (Mask(segments=(ids, ids)), 400 * 50),
    "beyond": (Mask(window=(10, None), offset=1000), 0),
}


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("name", SPARSE)
def test_hidden_tiles_are_never_computed(monkeypatch, name):
    mask, needed = SPARSE[name]
    assert needed <= visited(monkeypatch, mask, 400, 400) <= needed + 400 * 32


@pytest.mark.parametrize(("batch", "heads"), [(1, 1), (1, 9), (8, 32), (64, 64)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_a_tile_of_all_heads_keeps_its_budget(batch, heads, dtype, device):
    query = torch.empty(batch, heads, 1, 1, dtype=dtype, device=device)
    rows, cols = blockwise_tiles.tile_size(Call(query, query, query, 1.0))
    held = rows * cols * batch * heads * dtype.itemsize
    assert held <= (blockwise_tiles.CACHED if device == "cpu" else blockwise_tiles.BUDGET) or rows == 16


@pytest.mark.parametrize("mask", [Mask(), Mask(causal=True, window=(700, None))], ids=["full", "window"])
def test_memory_grows_with_the_rows_and_not_with_the_map(mask):
    query, key, value = (draw(1, 2, 3000, 16, seed=seed) for seed in range(3))  # the map would take 72 MB
    emit = Emit(statistics=True, pooled=(32, 32))
    with Largest() as largest:
        result = attend(query, key, value, mask=mask, emit=emit, backend="blockwise")
        view = view_of(check(query, key, value, None, mask, None, None, None, emit), result)
        pool(view, (500, 77), reduce="max", backend="blockwise")
    assert largest.bytes <= blockwise_tiles.CACHED + 2 * query.nbytes


def test_keys_and_values_are_not_copied_or_repeated():
    query = draw(4, 8, 20, 16)
    key, value = (draw(1, 1, 2000, 16, seed=seed).expand(4, 2, 2000, 16) for seed in (1, 2))
    repeated = 4 * 2 * 2000 * 16 * 4  # bytes of the keys, were they copied
    with Largest() as largest:
        attend(query, key, value, emit=Emit(statistics=True), backend="blockwise")
    assert largest.bytes < repeated


def test_a_dense_mask_is_not_expanded():
    query, key, value = (draw(4, 8, length, 16) for length in (16, 3000, 3000))
    mask = Mask(dense=draw(1, 1, 1, 3000) > 0)
    with Largest() as largest:
        attend(query, key, value, mask=mask, backend="blockwise")
    assert largest.bytes < 4 * 8 * 16 * 3000 * 4


def test_tiles_of_ordinary_size_keep_the_budget_as_well():
    query, key, value = (draw(1, 1, length, 32, seed=seed) for seed, length in enumerate((600, 2500, 2500)))
    rows, cols = blockwise_tiles.tile_size(Call(query, key, value, 1.0))
    assert (rows, cols) < (600, 2500)
    call = check(query, key, value, None, Mask(causal=True, offset=1900), None, None, None, Emit())
    (true, true_view), (honest, honest_view) = truth(call), plain(call)
    result = attended(call, "blockwise")
    assert_within_budget(named(result), true, honest)
    assert_within_budget(of_view(view_of(call, result), "blockwise"), true_view, honest_view)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize("mask", ["full", "causal-offset", "everything", "padding-left", "scattered"])
def test_float64_is_kept(mask):
    call = in_double(build(Case("long", mask, "all", "contiguous"), torch.float32))
    true, true_view = truth(call)
    result = attended(call, "blockwise")
    for name, tensor in named(result).items():
        torch.testing.assert_close(tensor, true[name], equal_nan=True, atol=1e-13, rtol=1e-12)
    for name, tensor in of_view(view_of(call, result), "blockwise").items():
        torch.testing.assert_close(tensor, true_view[name], equal_nan=True, atol=1e-13, rtol=1e-12)


@pytest.mark.parametrize(
    "edges", [[0, 3, 6, 9], [0, 2, 5, 7], [0, 1], [0, 1, 2, 3], [0, 100, 200], [0, 99, 201]], ids=str
)
@pytest.mark.parametrize("size", [1, 4, 7, 1000])
def test_an_axis_is_cut_into_whole_blocks_or_parts_of_one(edges, size):
    parts = list(blockwise_pool.cut(edges, size))
    assert [place for part, _ in parts for place in range(part.start, part.stop)] == list(range(edges[-1]))
    for part, blocks in parts:
        assert part.stop - part.start <= size
        inside = edges[blocks.start] <= part.start < part.stop <= edges[blocks.stop]
        whole = (part.start, part.stop) == (edges[blocks.start], edges[blocks.stop])
        assert inside
        assert whole or blocks.stop - blocks.start == 1


@pytest.mark.parametrize("reduce", ["mean", "max"])
@pytest.mark.parametrize("shape", [(3, 5), (7, 100), (64, 64), (130, 1)], ids=str)
def test_pooling_parts_of_a_long_map(reduce, shape):
    query, key, value = (draw(1, 2, length, 16, seed=seed) for seed, length in enumerate((700, 1300, 1300)))
    call = check(query, key, value, None, Mask(causal=True, offset=300), None, None, None, Emit())
    exact = in_double(call)
    result = reference.attend(exact, Emit())
    rows, cols = slice(50, 680), slice(3, 1290)
    expected = pool(view_of(exact, result), shape, rows, cols, reduce, backend="reference")
    view = view_of(call, replace(result, logsumexp=result.logsumexp.float()))
    torch.testing.assert_close(pool(view, shape, rows, cols, reduce, backend="blockwise"), expected.float())
    assert tile(view, slice(0, 256), slice(0, 256), backend="blockwise").shape == (1, 2, 256, 256)
