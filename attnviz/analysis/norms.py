"""Value-weighted norms: how much each key really adds to what a head writes.

Kobayashi et al. 2020 (arXiv 2004.10102): a head adds weight[i, j] * f(x_j) to position i, where f(x_j) is key j's value
through the head's part of the output projection. Its norm is small where a large weight meets a small value, as on
separator and first tokens. It does not show in which direction the sum goes: large parts may cancel.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from ..errors import RecordingError, UsageError
from ..trace import Trace

if TYPE_CHECKING:
    import pandas as pd

_INWARD = re.compile(r"(q|k|v|query|key|value|qkv|c_attn|in)(_|$)|.*_(attn|qkv)$")
"""Names of projections to queries, keys and values."""


def value_norms(trace: Trace, model: nn.Module, layer: int) -> Tensor:
    """[H, N]: |f(x_j)| of every head and key of a layer. trace must hold values (keep="qkv")."""
    record = trace.record(layer)
    if record.value is None:
        raise UsageError('value norms need the values: record with keep="qkv"')
    if record.numbers is not None:
        raise UsageError("value norms need every head of a layer: record without heads=")
    value = record.value[trace.batch, :, trace.axis(record, 1).valid].float()
    value = value.repeat_interleave(record.heads // value.shape[0], dim=0)
    size = value.shape[-1]
    projection = output_projection(model, record.name, record.heads * size).float()
    parts = projection.reshape(-1, record.heads, size).permute(1, 2, 0)
    norms: Tensor = torch.norm(value @ parts, dim=-1)
    return norms


def weighted_norms(trace: Trace, model: nn.Module, layer: int, head: int, rows: slice, cols: slice) -> Tensor:
    """[rows, cols]: weight[i, j] * |f(x_j)| of a part of one head's map."""
    norms = value_norms(trace, model, layer)[head, cols]
    return trace[layer, head].weights(rows, cols) * norms


def norms_table(trace: Trace, model: nn.Module) -> pd.DataFrame:
    """One row per head: the share of special tokens and of the first token in all weights, and in all weighted norms.

    O(N) memory: column sums of the weights times the norms.
    """
    import pandas as pd

    rows = []
    for layer in trace.layers:
        norms = value_norms(trace, model, layer)
        received = trace.view(layer).received()[0].float()
        heads = [trace[layer, head] for head in range(trace.head_count(layer))]
        special = torch.tensor([token.special for token in heads[0].cols])
        added = received * norms
        for head in range(len(heads)):
            rows.append(
                {
                    "layer": layer,
                    "head": head,
                    "special, weight": _share(received[head], special),
                    "special, norm": _share(added[head], special),
                    "first, weight": _share(received[head], slice(0, 1)),
                    "first, norm": _share(added[head], slice(0, 1)),
                }
            )
    return pd.DataFrame(rows)


def output_projection(model: nn.Module, name: str, width: int) -> Tensor:
    """[model size, H * E]: the weight that maps the joined heads of an attention module back to the model.

    It is looked for in the module, then in the one around it: the first linear layer that reads H * E numbers and is no
    projection to queries, keys or values by its name. Raises RecordingError where there is none.
    """
    places = dict(model.named_modules())
    for path in (name, name.rpartition(".")[0]):
        for child, part in places[path].named_modules():
            matrix = _reads(part, width)
            if matrix is not None and not _INWARD.match(child.rpartition(".")[2]):
                return matrix
    raise RecordingError(f"{name} has no output projection that reads {width} numbers, so its values have no norm")


def _reads(part: nn.Module, width: int) -> Tensor | None:
    """The weight [out, in] of a linear layer (or GPT-2's transposed one) that reads `width` numbers."""
    weight = getattr(part, "weight", None)
    if isinstance(part, nn.Linear) and part.in_features == width:
        return part.weight.detach()
    if type(part).__name__ == "Conv1D" and isinstance(weight, Tensor) and weight.shape[0] == width:
        return weight.detach().T
    return None


def _share(values: Tensor, which: Tensor | slice) -> float:
    return (values[which].sum() / values.sum()).item()
