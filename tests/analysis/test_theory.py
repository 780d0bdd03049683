import math

import pytest
import torch

from attnviz.analysis.theory import jacobian_norm, masked, one_head_or_many, scaling, shuffled, softmax_row
from attnviz.errors import UsageError


def test_jacobian_norm_equals_autograd():
    scores = torch.randn(6, dtype=torch.float64)
    dense = torch.autograd.functional.jacobian(lambda x: torch.softmax(x, -1), scores)
    assert jacobian_norm(torch.softmax(scores, -1)).item() == pytest.approx(dense.norm().item())
    assert jacobian_norm(torch.tensor([0.0, 1.0, 0.0])).item() == 0
    # uniform over n: sqrt(1/n - 1/n^2)
    assert jacobian_norm(torch.full((4,), 0.25)).item() == pytest.approx(math.sqrt(1 / 4 - 1 / 16))


def test_small_divisors_sharpen_and_kill_the_gradient():
    table = scaling(torch.tensor([0.0, 8.0, 4.0]), [0.1, 1.0, 8.0, 1e6])
    assert table["entropy"].is_monotonic_increasing
    assert table["largest"].is_monotonic_decreasing
    assert table["jacobian"][0] < 1e-8
    assert table["entropy"].iloc[-1] == pytest.approx(math.log(3), abs=1e-6)
    with pytest.raises(UsageError, match="the divisor must be positive, got 0"):
        softmax_row(torch.zeros(2), 0)


def test_scaling_on_the_worked_case():
    """Weights 1/4 and 3/4: squares sum to 10/16, cubes to 28/64; 10/16 - 56/64 + 100/256 = 9/64 under the root."""
    (row,) = scaling(torch.tensor([0.0, math.log(9)]), [2.0]).to_dict("records")
    entropy = math.log(4) - 0.75 * math.log(3)
    assert row == pytest.approx({"divisor": 2.0, "entropy": entropy, "largest": 0.75, "jacobian": 3 / 8})


def test_order_does_not_matter_without_positions():
    query, key = torch.randn(7, 4), torch.randn(7, 4)
    order = [3, 0, 6, 2, 1, 5, 4]
    assert shuffled(query, key, order) < 1e-12
    position = torch.arange(7.0)[:, None] * 0.5
    moved = torch.tensor(order)
    # the position of the place, not of the token, is added: now the weights between two tokens change
    before = softmax_row((query + position) @ (key + position).T, 2.0)
    after = softmax_row((query[moved] + position) @ (key[moved] + position).T, 2.0)
    assert (after - before[moved][:, moved]).abs().max() > 0.01
    with pytest.raises(UsageError, match="order must hold each of 0 to 6 once"):
        shuffled(query, key, [0] * 7)


def test_masking_keeps_ratios():
    scores = torch.randn(3, 3)
    visible = torch.tensor([[True, False, False], [True, True, False], [False, False, False]])
    found = masked(scores, visible)
    wanted = torch.softmax(scores.double().masked_fill(~visible, -torch.inf), -1).nan_to_num()
    assert torch.allclose(found, wanted)


def test_one_head_or_many():
    query, key = torch.randn(5, 8), torch.randn(5, 8)
    table = one_head_or_many(query, key, 2)
    assert table["head"].tolist() == [-1, 0, 1]
    weights = torch.softmax(query[:, 4:].double() @ key[:, 4:].double().T / 2, -1)
    assert table["largest"][2] == pytest.approx(weights.max(1).values.mean().item())
    assert table["entropy"][2] == pytest.approx(-(weights * weights.log()).sum(1).mean().item())
    single = torch.softmax(query.double() @ key.double().T / 8**0.5, -1)
    assert table["largest"][0] == pytest.approx(single.max(1).values.mean().item())
    with pytest.raises(UsageError, match="heads must divide the width 8, got 3"):
        one_head_or_many(query, key, 3)
