import math
from dataclasses import replace

import pytest
import torch
from traces import make_trace, trace_of

from attnviz.analysis.heads import (
    diagonal,
    head_rows,
    heads_of_texts,
    heads_table,
    is_punctuation,
    layer_statistics,
    normalised_entropy,
)
from attnviz.analysis.links import strongest_links
from attnviz.composed import Stacked
from attnviz.errors import UsageError
from attnviz.tokens import Token, TokenAxis
from attnviz.views import Dense

# rows: sees itself only; half on itself, half on the previous; a quarter on 0, a quarter on 1, half on 2 (all causal)
WORKED = [[[[1.0, 0, 0], [0.5, 0.5, 0], [0.25, 0.25, 0.5]]]]


def test_heads_table_on_the_worked_case():
    row = heads_table(trace_of(WORKED, ["the", "cat", "!"])).iloc[0]
    entropies = [0.0, math.log(2), 1.5 * math.log(2)]
    assert row["entropy"] == pytest.approx(sum(entropies) / 3)
    # the first row sees one key and is left out: (1 + 1.5 ln2 / ln3) / 2
    assert row["entropy_normalised"] == pytest.approx((1 + entropies[2] / math.log(3)) / 2)
    assert row["largest"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert row["distance"] == pytest.approx((0 + 0.5 + (0.25 * 2 + 0.25)) / 3)
    assert row["own"] == pytest.approx((1 + 0.5 + 0.5) / 3)
    assert row["previous"] == pytest.approx((0 + 0.5 + 0.25) / 3)
    assert row["next"] == 0
    assert row["first"] == pytest.approx((1 + 0.5 + 0.25) / 3)
    assert row["punctuation"] == pytest.approx(0.5 / 3)
    assert row["special"] == 0
    assert row["sink"] == 0


def test_special_tokens_and_sink_mass():
    trace = trace_of([[[[0.5, 0.2], [0.1, 0.3]]]])
    tokens = (Token(0, "[CLS]", "[CLS]", special=True), Token(1, "a", "a"))
    trace.axes = {"self": (TokenAxis(tokens, slice(0, 2)),)}
    row = heads_table(trace).iloc[0]
    assert row["special"] == pytest.approx((0.5 + 0.1) / 2)
    assert row["sink"] == pytest.approx((0.3 + 0.6) / 2)


def test_rows_that_see_nothing_are_left_out_of_every_mean():
    blind = trace_of([[[[0.0, 0, 0], [0, 1, 0], [0, 0.5, 0.5]]]])
    row = heads_table(blind).iloc[0]
    assert row["largest"] == pytest.approx(0.75)
    assert row["own"] == pytest.approx(0.75)
    assert row["sink"] == pytest.approx(0.0)
    assert row["entropy_normalised"] == 1.0


def test_cross_attention_has_no_weight_on_itself():
    trace = trace_of(WORKED)
    trace = replace(trace, records=[replace(trace.records[0], kind="cross")])
    trace.axes = dict.fromkeys(("encoder", "decoder"), trace.axes["self"])
    assert set(heads_table(trace)).isdisjoint({"own", "previous", "next", "distance"})
    assert heads_table(trace)["first"][0] == pytest.approx((1 + 0.5 + 0.25) / 3)


def test_entropy_is_divided_by_that_of_an_even_row_over_what_is_seen():
    trace = make_trace(["a", "b", "c", "d"], causal=True)
    found, plain = normalised_entropy(trace[1, 2]), trace[1, 2].entropy
    assert found[0].isnan()
    assert found[1:].tolist() == pytest.approx([plain[row].item() / math.log(row + 1) for row in (1, 2, 3)])


@pytest.mark.parametrize("count", [1, 5, 63, 64, 65, 130])
@pytest.mark.parametrize("offset", [-2, -1, 0, 1, 3])
def test_diagonal_equals_the_dense_one(count, offset):
    weights = torch.rand(1, 2, count, count)
    found = diagonal(Dense(weights), offset)
    wanted = torch.zeros(1, 2, count)
    for i in range(count):
        if 0 <= i + offset < count:
            wanted[..., i] = weights[..., i, i + offset]
    assert torch.equal(found, wanted)


def decoded(rows=70, keys=135):
    """The last rows of a causal map, as decoding behind a cache leaves them; and all of the map."""
    whole = make_trace([str(i) for i in range(keys)], layers=1, heads=2, causal=True).record(0).view
    return whole.crop(slice(keys - rows, keys), slice(0, keys)), whole.tile(slice(None), slice(None))


@pytest.mark.parametrize("offset", [-134, -66, -1, 0, 1, 66])
def test_diagonal_of_rows_behind_a_cache(offset):
    view, whole = decoded()
    wanted = torch.zeros(1, 2, 70)
    for row in range(70):
        if 0 <= 65 + row + offset < 135:
            wanted[..., row] = whole[..., 65 + row, 65 + row + offset]
    parts = Stacked((view.crop(slice(0, 3), slice(0, 68)), view.crop(slice(3, 70), slice(2, 135))), (0, 2), 135)
    assert torch.allclose(diagonal(view, offset), wanted, atol=1e-6)
    assert torch.allclose(diagonal(Dense(whole[..., 65:, :], offset=65), offset), wanted, atol=1e-6)
    if offset > -66:
        assert torch.allclose(diagonal(parts, offset), wanted, atol=1e-6)


def test_next_token_of_rows_behind_a_cache():
    # the queries stand at positions 1 and 2: the first gives a quarter to the token after it, the second has none
    weights = torch.tensor([[[[0.5, 0.25, 0.25], [0.2, 0.3, 0.5]]]])
    trace = trace_of([[[[0.0] * 3] * 2]], ["a", "b", "c"])
    trace.records = [replace(trace.records[0], view=Dense(weights, offset=1), row_start=1)]
    rows = head_rows(trace, 0, 0)
    assert rows["token"].tolist() == ["b", "c"]
    assert rows["next"].tolist() == [0.25, 0.0]
    assert rows["own"].tolist() == [0.25, 0.5]
    assert rows["previous"].tolist() == [0.5, pytest.approx(0.3)]


def test_rows_have_the_means_of_the_table():
    trace = make_trace(["a", ",", "b", "."], causal=True)
    table = heads_table(trace).set_index(["layer", "head"])
    rows = head_rows(trace, 1, 2)
    assert rows["position"].tolist() == [0, 1, 2, 3]
    for name in table:
        assert rows[name].mean() == pytest.approx(table.loc[(1, 2), name]), name


@pytest.mark.parametrize("causal", [False, True])
def test_columns_agree_with_the_dense_map(causal):
    trace = make_trace(["a", ",", "b", "c", "."] * 3, layers=1, heads=2, causal=causal)
    columns = layer_statistics(trace, 0)
    for head in range(2):
        weights = trace[0, head].weights().double()
        assert torch.allclose(columns["entropy"][head].double(), -torch.xlogy(weights, weights).sum(1), atol=1e-6)
        assert torch.allclose(columns["punctuation"][head].double(), weights[:, [1, 4, 6, 9, 11, 14]].sum(1), atol=1e-6)
        assert torch.allclose(columns["next"][head, :-1].double(), weights.diagonal(1), atol=1e-6)
        assert columns["next"][head, -1] == 0


def test_entropy_does_not_change_when_keys_are_permuted():
    weights = torch.rand(1, 4, 4)
    weights /= weights.sum(-1, keepdim=True)
    order = torch.tensor([2, 0, 3, 1])
    one, other = (heads_table(trace_of([w.tolist()])).iloc[0] for w in (weights, weights[:, :, order]))
    assert one["entropy"] == pytest.approx(other["entropy"], abs=1e-6)


def test_several_texts_give_standard_errors():
    traces = [make_trace(seed=seed) for seed in range(4)]
    pooled = heads_of_texts(iter(traces))
    single = [heads_table(trace)["entropy"][0] for trace in traces]
    assert pooled["entropy"][0] == pytest.approx(sum(single) / 4)
    mean = sum(single) / 4
    error = math.sqrt(sum((x - mean) ** 2 for x in single) / 3 / 4)
    assert pooled["entropy_error"][0] == pytest.approx(error)
    with pytest.raises(UsageError, match="at least 2 texts, got 1"):
        heads_of_texts(traces[:1])


def test_punctuation_is_told_from_words_and_special_tokens():
    assert is_punctuation(Token(1, "Ġ.", " ."))
    assert not is_punctuation(Token(1, "a", "a"))
    assert not is_punctuation(Token(1, "[SEP]", "!", special=True))
    assert not is_punctuation(Token(1, "Ġ", " "))
    assert is_punctuation(Token(1, "+", "+"))
    assert not is_punctuation(Token(1, "'s", "'s"))


def test_of_equal_links_the_first_are_taken():
    even = trace_of([[[[0.25] * 4 for _ in range(40)]]])
    assert strongest_links(even[0, 0], 6)[["row", "column"]].values.tolist() == [
        [0, 0], [0, 1], [0, 2], [0, 3], [1, 0], [1, 1]
    ]  # fmt: skip


def test_strongest_links_in_order():
    trace = trace_of(WORKED, ["the", "cat", "!"])
    found = strongest_links(trace[0, 0], 4)
    assert found[["row", "column", "weight"]].values.tolist() == [[0, 0, 1.0], [1, 0, 0.5], [1, 1, 0.5], [2, 2, 0.5]]
    assert found["from"].tolist() == ["the", "cat", "cat", "!"]
    assert strongest_links(trace[0, 0], 1, rows=[2])[["row", "column"]].values.tolist() == [[2, 2]]
