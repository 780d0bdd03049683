"""What the dashboard opens with: a head whose largest weights fall on content, and the largest of those weights.

A largest weight counts if its key is not the first, the own, the previous or the next token, and neither query nor key
is special or punctuation. A head's score is the mean over its queries of the largest weights that count.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ..analysis.heads import is_punctuation
from ..head import Head
from ..tokens import Token
from ..trace import Trace


def start(trace: Trace) -> dict[int, tuple[int, float]]:
    """For each layer the head with the largest score, and that score."""
    return {layer: _best(trace, layer) for layer in trace.layers}


def start_link(head: Head) -> tuple[int, int]:
    """(query, key) of the largest weight that counts; the last query and its largest key where none does."""
    keys = head.statistics.largest_key
    counted = _counted(head.statistics.largest, keys, head.rows, head.cols, head.record.kind == "cross")
    row = int(counted.argmax()) if counted.max() > 0 else len(keys) - 1
    return row, max(0, int(keys[row]))


def _best(trace: Trace, layer: int) -> tuple[int, float]:
    """Head and score; -1 where nothing was measured while recording."""
    record = trace.record(layer)
    measured = record.statistics
    if measured is None:
        return record.head_numbers[0], -1.0
    rows, cols = trace.axis(record, 0), trace.axis(record, 1)
    largest = measured.largest[trace.batch, :, rows.valid]
    keys = measured.largest_key[trace.batch, :, rows.valid] - (cols.valid.start or 0)
    scores = _counted(largest, keys, rows.real, cols.real, record.kind == "cross").mean(-1)
    return record.head_numbers[int(scores.argmax())], scores.max().item()


def _counted(largest: Tensor, keys: Tensor, rows: Sequence[Token], cols: Sequence[Token], cross: bool) -> Tensor:
    """The largest weights [..., M], 0 where they do not count."""
    counts = _content(rows) & _content(cols)[keys.clamp(0, len(cols) - 1)] & (keys >= 0)
    if not cross:
        counts &= (keys > 0) & ((keys - torch.arange(len(rows))).abs() > 1)
    return torch.where(counts, torch.nan_to_num(largest.float()), 0.0)


def _content(tokens: Sequence[Token]) -> Tensor:
    return torch.tensor([not token.special and not is_punctuation(token) for token in tokens])
