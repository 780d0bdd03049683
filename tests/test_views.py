"""Every view against the dense map it stands for."""

import pytest
import torch
from torch.testing import assert_close

from attnviz.composed import Difference, Stacked, Unkept
from attnviz.errors import UsageError
from attnviz.views import Dense, QueryKey
from attnviz_kernels import Mask, View, attend, pool_edges, tile

BATCH, HEADS, COUNT = 2, 4, 11


def query_key(seed=0, rows=COUNT, keys=COUNT, mask=None, sinks=None):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(BATCH, HEADS, rows, 6, generator=generator, dtype=torch.float64) * 2
    key, value = (torch.randn(BATCH, 2, keys, 6, generator=generator, dtype=torch.float64) for _ in range(2))
    mask = Mask(causal=True, offset=keys - rows) if mask is None else mask
    found = attend(query, key, value, mask=mask, sinks=sinks)
    return QueryKey(View(query, key, found.logsumexp, 6**-0.5, mask, sinks=sinks))


def stacked():
    """A causal map cut after rows 4 and 5; the second part lost its first two keys, as a sliding cache does."""
    whole = query_key(mask=Mask(causal=True, window=(3, None))).view
    parts, lefts = [], []
    for top, bottom, left in ((0, 4, 0), (4, 5, 1), (5, COUNT, 2)):
        parts.append(QueryKey(whole.crop(slice(top, bottom), slice(left, bottom))))
        lefts.append(left)
    return Stacked(tuple(parts), tuple(lefts), COUNT), tile(whole)


def difference():
    first, second = query_key(0), query_key(1)
    return Difference(first, second, 0.7), tile(first.view) - 0.7 * tile(second.view)


def dense():
    weights = tile(query_key().view)
    return Dense(weights), weights


def plain():
    view = query_key()
    return view, tile(view.view)


@pytest.fixture(params=[plain, dense, stacked, difference], ids=["query and key", "dense", "stacked", "difference"])
def case(request):
    return request.param()


def test_shape_and_tiles(case):
    view, weights = case
    assert view.shape == (BATCH, HEADS, COUNT, COUNT)
    assert_close(view.tile(slice(None), slice(None)), weights)
    for rows, cols in ((slice(3, 7), slice(2, 9)), (slice(0, 1), slice(10, 11)), (slice(4, 5), slice(0, 3))):
        assert_close(view.tile(rows, cols), weights[:, :, rows, cols])


def test_own_keys_stand_on_the_diagonal(case):
    view, _ = case
    assert view.own_keys().tolist() == list(range(COUNT))
    assert view.crop(slice(4, 9), slice(2, COUNT)).own_keys().tolist() == [2, 3, 4, 5, 6]


def test_one_sequence_and_one_head(case):
    view, weights = case
    assert_close(view.sequence(1).tile(slice(None), slice(None)), weights[1:])
    assert_close(view.select(1, 2).tile(slice(None), slice(None)), weights[1:, 2:3])


def test_crop(case):
    view, weights = case
    cropped = view.crop(slice(6, 10), slice(0, 10))  # the key left out is hidden from all queries
    assert cropped.shape == (BATCH, HEADS, 4, 10)
    assert_close(cropped.tile(slice(None), slice(None)), weights[:, :, 6:10, :10])


def test_sums_and_products(case):
    view, weights = case
    vector = torch.randn(1, HEADS, COUNT, 3, dtype=torch.float64)
    assert_close(view.received(), weights.sum(-2))
    assert_close(view.push(vector), weights @ vector)
    assert_close(view.pull(vector), weights.transpose(-1, -2) @ vector)


@pytest.mark.parametrize("reduce", ["mean", "max"])
@pytest.mark.parametrize("shape", [(3, 4), (1, 1), (20, 20)])
def test_pooling(case, shape, reduce):
    view, weights = case
    part = weights[:, :, 2:10, 1:11]
    rows, cols = (pool_edges(n, k) for n, k in zip(part.shape[2:], shape, strict=True))
    found = view.pool(shape, slice(2, 10), slice(1, 11), reduce)
    assert found.shape[2:] == (len(rows) - 1, len(cols) - 1)
    for r in range(len(rows) - 1):
        for c in range(len(cols) - 1):
            block = part[:, :, rows[r] : rows[r + 1], cols[c] : cols[c + 1]]
            expected = block.mean((-1, -2)) if reduce == "mean" else block.amax((-1, -2))
            assert_close(found[:, :, r, c], expected)


def test_statistics(case):
    view, weights = case
    found = view.statistics()
    position = torch.arange(COUNT)
    distance = (weights * (position[:, None] - position).abs()).sum(-1)
    assert_close(found.distance, distance)
    assert_close(found.largest, weights.amax(-1))
    assert torch.equal(found.largest_key, weights.argmax(-1))
    assert_close(found.own, weights.diagonal(dim1=-2, dim2=-1))
    assert_close(found.previous[..., 1:], weights.diagonal(-1, dim1=-2, dim2=-1))
    if isinstance(view, Difference):
        assert found.entropy.isnan().all()
    else:
        assert_close(found.entropy, -torch.xlogy(weights, weights).sum(-1))


def test_visible_keys(case):
    view, weights = case
    expected = (weights != 0).sum(-1)
    assert torch.equal(view.visible(), expected)


def test_dense_rows_that_see_no_key_are_left_out_of_block_means_wherever_the_block_is():
    weights = torch.tensor([[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0]])[None, None]
    pooled = Dense(weights).pool((1, 3), slice(None), slice(None), "mean")
    assert_close(pooled[0, 0], torch.tensor([[0.75, 0.25, 0.0]]))
    assert_close(Dense(weights).pool((1, 1), slice(None), slice(1, 3), "mean")[0, 0], torch.tensor([[0.125]]))


def test_whole_rows_sum_to_one_less_the_sink():
    sinks = torch.tensor([0.5, -1.0, 2.0, 0.0], dtype=torch.float64)
    view = query_key(sinks=sinks)
    missing = 1 - view.tile(slice(None), slice(None)).sum(-1)
    assert_close(missing, torch.exp(sinks[:, None] - view.view.logsumexp))


def test_rows_of_half_precision_storage_sum_to_one():
    view = query_key().view
    rounded = View(view.query.half(), view.key.half(), view.logsumexp.float(), view.scale, view.mask)
    sums = QueryKey(rounded).tile(slice(None), slice(None)).sum(-1)
    assert_close(sums, torch.ones_like(sums), atol=1e-5, rtol=0)


def test_a_map_that_was_not_kept_answers_for_its_shape_only():
    view = Unkept((2, 3, 5, 5), torch.arange(5).expand(2, 3, 5))
    assert view.crop(slice(1, 4), slice(0, 4)).shape == (2, 3, 3, 4)
    assert view.select(1, 2).visible().tolist() == [[[0, 1, 2, 3, 4]]]
    everything = (slice(None), slice(None))
    for ask in (lambda: view.tile(*everything), lambda: view.pool((1, 1), *everything, "mean"), view.received):
        with pytest.raises(UsageError, match='record with keep="qk" to look at weights'):
            ask()
