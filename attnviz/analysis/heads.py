"""The table of heads: how broad, how far and where each one looks, as means over the rows that see a key.

A mean says what a head usually does in this text. It does not say that the model uses it: see ablation.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ..composed import Unkept
from ..errors import UsageError
from ..head import Head
from ..tokens import Token
from ..trace import Trace
from ..views import WeightView

if TYPE_CHECKING:
    import pandas as pd

_BLOCK = 64
"""Side of the blocks along the diagonal."""
_ROUNDING = 1e-4
"""What a row may fall short of one without a sink: half precision weights."""

DIAGONALS = ("own", "previous", "next", "distance")
"""Columns that need rows and columns to be the same tokens; left out for cross attention."""


def heads_table(trace: Trace) -> pd.DataFrame:
    """One row per layer and head:

    entropy              nats; entropy_normalised divides by ln(visible keys), rows that see one key left out
    largest              largest weight of a row
    distance             expected distance in tokens
    own, previous, next  weight on the query's own token, the one before and the one after, 0 in the row that has none:
                         of N tokens the most that previous can be is (N - 1) / N
    first                weight on the first token
    special, punctuation weight on special tokens ([CLS], [SEP], BOS ...) and on punctuation
    sink                 weight on a learned sink, which is no token
    """
    import pandas as pd

    rows = []
    for layer in trace.layers:
        measured = {name: torch.nanmean(column, dim=-1) for name, column in layer_statistics(trace, layer).items()}
        for index, head in enumerate(trace.record(layer).head_numbers):
            rows.append({"layer": layer, "head": head, **{name: mean[index].item() for name, mean in measured.items()}})
    return pd.DataFrame(rows)


def layer_statistics(trace: Trace, layer: int) -> dict[str, Tensor]:
    """The columns of `heads_table` row by row: each [H, M], NaN for rows that see no key.

    A trace without weights (keep="statistics") has no next, special, punctuation and sink.
    """
    record, view = trace.record(layer), trace.view(layer)
    heads = [trace[layer, head] for head in record.head_numbers]
    tokens = heads[0].cols
    statistics = [head.statistics for head in heads]
    columns = {
        name: torch.stack([getattr(one, name) for one in statistics])
        for name in ("entropy", "largest", "distance", "own", "previous", "first")
    }
    visible = view.visible()[0].to(columns["entropy"].dtype)
    blind = columns["entropy"].isnan()
    columns["entropy_normalised"] = columns["entropy"] / torch.log(visible).masked_fill(visible < 2, torch.nan)
    if not isinstance(view, Unkept):
        found = _masses(view, tokens, columns["entropy"].dtype)
        columns |= {name: column.masked_fill(blind, torch.nan) for name, column in found.items()}
    order = ("entropy", "entropy_normalised", "largest", "distance", "own", "previous", "next", "first")
    names = [*order, "special", "punctuation", "sink"]
    left_out = DIAGONALS if record.kind == "cross" else ()
    return {name: columns[name] for name in names if name in columns and name not in left_out}


def _masses(view: WeightView, tokens: Sequence[Token], dtype: torch.dtype) -> dict[str, Tensor]:
    """What of each row falls on the next token, on kinds of tokens and on no token, each [H, M]."""
    special, punctuation, every = view.push(_marks(tokens, dtype))[0].unbind(-1)
    rest = 1 - every
    return {
        "next": diagonal(view, 1)[0],
        "special": special,
        "punctuation": punctuation,
        "sink": torch.where(rest < _ROUNDING, 0.0, rest),
    }


def head_rows(trace: Trace, layer: int, head: int) -> pd.DataFrame:
    """One row per query of a head: its position, its token, and the columns of `heads_table`, NaN where it is blind."""
    import pandas as pd

    chosen = trace[layer, head]
    index = chosen.record.head_numbers.index(head)
    columns = {name: column[index].cpu().numpy() for name, column in layer_statistics(trace, layer).items()}
    labels = [token.label for token in chosen.rows]
    return pd.DataFrame({"position": range(len(labels)), "token": labels, **columns})


def heads_of_texts(traces: Iterable[Trace]) -> pd.DataFrame:
    """`heads_table` over several texts of one model: the mean over texts, and its standard error as <column>_error.

    Traces are looked at one by one, so that a generator need not hold them all.
    """
    import pandas as pd

    tables = [heads_table(trace) for trace in traces]
    if len(tables) < 2:
        raise UsageError(f"a standard error needs at least 2 texts, got {len(tables)}")
    grouped = pd.concat(tables).groupby(["layer", "head"], sort=False)
    return grouped.mean().join(grouped.sem().add_suffix("_error")).reset_index()


def normalised_entropy(head: Head) -> Tensor:
    """[M]: entropy / ln(visible keys), 0 to 1; NaN for rows that see fewer than two keys."""
    visible = head.visible
    return head.entropy / torch.log(visible.to(head.entropy.dtype)).masked_fill(visible < 2, torch.nan)


def diagonal(view: WeightView, offset: int) -> Tensor:
    """[B, H, M]: the weight of every query on the key `offset` places after its own, 0 where there is no such key.

    O(M) time and memory.
    """
    keys = view.own_keys() + offset
    return torch.cat([_along(view, top, keys[top : top + _BLOCK]) for top in range(0, len(keys), _BLOCK)], dim=-1)


def _along(view: WeightView, top: int, keys: Tensor) -> Tensor:
    """[B, H, len(keys)]: of each row from `top` on the weight on one key."""
    inside = (keys >= 0) & (keys < view.shape[3])
    wanted = keys[inside] if inside.any() else keys.new_zeros(1)
    left, right = int(wanted.min()), int(wanted.max()) + 1
    block = view.tile(slice(top, top + len(keys)), slice(left, right))
    place = (keys - left).clamp(0, right - left - 1).to(block.device)
    found = block.gather(-1, place.expand(*block.shape[:-1])[..., None])[..., 0]
    return found * inside.to(block.device)


def is_punctuation(token: Token) -> bool:
    """Whether a token's text is nothing but punctuation or symbols."""
    text = token.text.strip()
    return not token.special and bool(text) and all(unicodedata.category(char)[0] in "PS" for char in text)


def _marks(tokens: Sequence[Token], dtype: torch.dtype) -> Tensor:
    """[1, 1, N, 3]: one for special tokens, for punctuation, and for every token."""
    marks = [[float(token.special), float(is_punctuation(token)), 1.0] for token in tokens]
    return torch.tensor(marks, dtype=dtype)[None, None]
