"""Heads by what they do, as scores with the threshold beside them, never as bare labels.

Sources: previous token and prefix matching after Olsson et al. 2022 (transformer-circuits.pub, In-context Learning and
Induction Heads); positional heads after Voita et al. 2019 (arXiv 1905.09418, 5.1); sinks after Xiao et al. 2024 (arXiv
2309.17453) and Gu et al. 2025 (arXiv 2410.10781); broad heads after Clark et al. 2019 (arXiv 1906.04341, 3.3).

A score describes where a head looks on these texts. Whether the model's behaviour depends on it is for ablation.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..composed import Unkept
from ..errors import UsageError
from ..recording import record
from ..trace import Trace
from .heads import diagonal

if TYPE_CHECKING:
    import pandas as pd

_BAND = 256
"""Rows looked at together."""


@dataclass(frozen=True)
class Role:
    """A score, the side of the threshold that counts, and where threshold and score come from.

    The name may hold other columns of the score's table in braces.
    """

    name: str
    column: str
    threshold: float
    above: bool
    source: str


ROLES = (
    Role("previous token", "previous", 0.5, True, "Clark et al. 2019: over half of the attention"),
    Role("next token", "next", 0.5, True, "Clark et al. 2019: over half of the attention"),
    Role("sink", "first", 0.3, True, "Gu et al. 2025: mean weight on the first token above 0.3"),
    Role("special tokens", "special", 0.6, True, "Clark et al. 2019, notebook: over 0.6"),
    Role("punctuation", "punctuation", 0.6, True, "Clark et al. 2019, notebook: over 0.6"),
    Role("broad", "entropy_normalised", 0.9, True, "entropy above 0.9 of its maximum"),
    Role("collapsed", "entropy_normalised", 0.1, False, "entropy below 0.1 of its maximum"),
    Role("local", "distance", 5.0, False, "expected distance below 5 tokens"),
    Role("offset {offset:+d}", "positional", 0.9, True, "Voita et al. 2019: largest weight there in 90 % of rows"),
    Role("induction", "prefix_matching", 0.5, True, "Olsson et al. 2022: prefix matching on repeated random tokens"),
    Role("duplicate token", "duplicate", 0.5, True, "Wang et al. 2022: weight on earlier copies of the same token"),
)
"""Roles that `roles` reports where their column has been measured."""


def roles(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per head and role whose threshold it passes, from `heads_table`, `positional` and `prefix_matching`.

    Tables are merged by layer and head beforehand; a role without its column is left out. Columns layer, head, role,
    score, threshold, source; roles by name, the most pronounced head first.
    """
    import pandas as pd

    found = []
    for role in ROLES:
        if role.column not in scores:
            continue
        passed = scores[scores[role.column] > role.threshold if role.above else scores[role.column] < role.threshold]
        for row in passed.sort_values(role.column, ascending=not role.above, kind="stable").to_dict("records"):
            found.append(
                {
                    "layer": int(row["layer"]),
                    "head": int(row["head"]),
                    "role": role.name.format_map({str(column): value for column, value in row.items()}),
                    "score": row[role.column],
                    "threshold": f"{'>' if role.above else '<'} {role.threshold:g}",
                    "source": role.source,
                }
            )
    table = pd.DataFrame(found, columns=["layer", "head", "role", "score", "threshold", "source"])
    return table.sort_values("role", kind="stable", ignore_index=True)


def has_offsets(trace: Trace) -> bool:
    """Whether `positional` can be asked: weights were kept, and rows and columns are the same two or more tokens."""
    records = [trace.record(layer) for layer in trace.layers]
    return len(trace.tokens) > 1 and not any(one.kind == "cross" or isinstance(one.view, Unkept) for one in records)


def positional(trace: Trace, reach: int = 4) -> pd.DataFrame:
    """One row per head: the offset k in -reach to +reach with the most weight, that weight, and as `positional` how
    often it is the row's largest.

    Voita et al. call a head positional when its largest weight falls on one offset at least 90 % of the time. Rows that
    have no key at that offset, or see none, are left out; so are offsets that no row has. Raises UsageError for a text
    of one token.
    """
    import pandas as pd

    rows = []
    for layer in trace.layers:
        own, numbers = trace.view(layer).own_keys(), trace.record(layer).head_numbers
        largest = torch.stack([trace[layer, head].statistics.largest_key for head in numbers])
        scored = [found for k in range(-reach, reach + 1) if k and (found := _at_offset(trace, layer, own, largest, k))]
        if not scored:
            raise UsageError(f"offsets of up to {reach} need at least 2 tokens, this text has {len(own)}")
        for index, head in enumerate(numbers):
            weight, k, share = max((weights[index], k, shares[index]) for weights, k, shares in scored)
            rows.append({"layer": layer, "head": head, "offset": k, "weight": weight, "positional": share})
    return pd.DataFrame(rows)


def _at_offset(
    trace: Trace, layer: int, own: Tensor, largest: Tensor, k: int
) -> tuple[list[float], int, list[float]] | None:
    """Every head's mean weight at one offset, the offset, and how often it is the largest; None without such a key."""
    view = trace.view(layer)
    exists = (own + k >= 0) & (own + k < view.shape[3])
    counted = exists & (largest >= 0)
    if not counted.any():
        return None
    weights = torch.where(counted, diagonal(view, k)[0], 0.0).sum(-1) / counted.sum(-1)
    shares = ((largest == own + k) & counted).sum(-1) / counted.sum(-1)
    return weights.tolist(), k, shares.tolist()


def repeated_tokens(tokenizer: Any, length: int = 25, repeats: int = 4, seed: int = 0) -> list[int]:
    """Ids of `length` random ordinary tokens, `repeats` times over, behind the tokenizer's start token if it has one.

    Drawn from the middle of the vocabulary: the most and the least common (first and last tenth of the ids) and special
    tokens are left out, as in Olsson et al.
    """
    size = len(tokenizer)
    low, high = size // 10, size - size // 10
    special = set(tokenizer.all_special_ids)
    drawn = torch.randperm(high - low, generator=torch.Generator().manual_seed(seed))
    ids = [low + int(index) for index in drawn[: length + len(special)] if low + int(index) not in special][:length]
    start = tokenizer.bos_token_id
    return [start] * (start is not None) + ids * repeats


def prefix_matching(
    model: Any,
    tokenizer: Any,
    *,
    length: int = 25,
    repeats: int = 4,
    examples: int = 10,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """One row per head: prefix_matching and duplicate, means over `examples` texts of repeated random tokens.

    prefix_matching is the weight from a token back to the tokens that followed its earlier occurrences, duplicate the
    weight on those occurrences themselves; both are summed over the occurrences and averaged over the tokens of all
    repeats but the first. Runs the model `examples` times; progress(done, total) is called after each.
    """
    import pandas as pd

    if repeats < 2:
        raise UsageError(f"repeats must be at least 2, got {repeats}")
    totals: dict[tuple[int, int], list[float]] = {}
    for example in range(examples):
        ids = repeated_tokens(tokenizer, length, repeats, seed=example)
        with record(model, tokenizer=tokenizer) as trace, torch.inference_mode():
            model(input_ids=torch.tensor([ids], device=model.device))
        for layer in trace.layers:
            for head, scores in enumerate(_matches(trace, layer, ids, len(ids) - length * (repeats - 1)).tolist()):
                total = totals.setdefault((layer, head), [0.0, 0.0])
                total[0], total[1] = total[0] + scores[0] / examples, total[1] + scores[1] / examples
        if progress is not None:
            progress(example + 1, examples)
    return pd.DataFrame(
        [
            {"layer": layer, "head": head, "prefix_matching": scores[0], "duplicate": scores[1]}
            for (layer, head), scores in totals.items()
        ]
    )


def _matches(trace: Trace, layer: int, ids: list[int], first: int) -> Tensor:
    """[H, 2]: mean weight of the rows from `first` on, after and on earlier occurrences of the row's token."""
    sequence = torch.tensor(ids)
    count = len(ids)
    total = torch.zeros(trace.head_count(layer), 2)
    for top in range(first, count, _BAND):
        band = slice(top, min(top + _BAND, count))
        weights = trace.view(layer).tile(band, slice(None))[0].float()
        earlier = (sequence[band, None] == sequence[None, :]) & (torch.arange(count) < torch.arange(count)[band, None])
        after = torch.zeros_like(earlier)
        after[:, 1:] = earlier[:, :-1]
        total[:, 0] += (weights * after).sum((1, 2))
        total[:, 1] += (weights * earlier).sum((1, 2))
    return total / (count - first)
