"""Every backend against the float64 reference, over the whole table; see `kernel_cases` for table and budget."""

from functools import lru_cache

import pytest
import torch
from kernel_cases import CASES, DTYPES, assert_within_budget, attended, backends, build, named, of_view, plain, truth

from attnviz_kernels import view_of

pytestmark = pytest.mark.usefixtures("small_tiles")


@lru_cache(maxsize=4)
def expected(case, dtype):
    call = build(case, dtype)
    return truth(call), plain(call)


def test_the_table_is_long():
    assert len(CASES) >= 200
    assert len({str(case) for case in CASES}) == len(CASES)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("backend", backends())
def test_call_and_view_stay_within_the_error_budget(backend, case, dtype):
    call = build(case, DTYPES[dtype])
    (true, true_view), (honest, honest_view) = expected(case, DTYPES[dtype])
    result = attended(call, backend)
    assert result.output.dtype == call.query.dtype
    assert {tensor.dtype for name, tensor in named(result).items() if name not in ("output", "largest_key")} == {
        torch.float32
    }
    assert_within_budget(named(result), true, honest)
    assert_within_budget(of_view(view_of(call, result), backend), true_view, honest_view)
