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
    """A score, the side of the threshold that counts, and where threshold and score come from."""

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
    Role("induction", "prefix_matching", 0.5, True, "Olsson et al. 2022: prefix matching on repeated random tokens"),
    Role("duplicate token", "duplicate", 0.5, True, "Wang et al. 2022: weight on earlier copies of the same token"),
)
"""Roles that `roles` reports where their column has been measured."""


def roles(scores: pd.DataFrame) -> pd.DataFrame:
    """One row per head and role whose threshold it passes, from `heads_table`, `prefix_matching` or both merged.

    Columns layer, head, role, score, threshold, source; strongest first within a role.
    """
    import pandas as pd

    found = []
    for role in ROLES:
        if role.column not in scores:
            continue
        passed = scores[role.column] > role.threshold if role.above else scores[role.column] < role.threshold
        for row in scores[passed].to_dict("records"):
            score, sign = row[role.column], ">" if role.above else "<"
            place = {"layer": int(row["layer"]), "head": int(row["head"])}
            found.append(
                {
                    **place,
                    "role": role.name,
                    "score": score,
                    "threshold": f"{sign} {role.threshold:g}",
                    "source": role.source,
                }
            )
    table = pd.DataFrame(found, columns=["layer", "head", "role", "score", "threshold", "source"])
    order = table.groupby("role", sort=False)["score"].rank(ascending=False, method="first")
    return (
        table.assign(order=order)
        .sort_values(["role", "order"], kind="stable")
        .drop(columns="order")
        .reset_index(drop=True)
    )


def positional(trace: Trace, reach: int = 4) -> pd.DataFrame:
    """One row per head: the offset k in -reach to +reach with the most weight, and how often it is the row's largest.

    Voita et al. call a head positional when its largest weight falls on one offset at least 90 % of the time. Rows that
    have no key at that offset are left out.
    """
    import pandas as pd

    rows = []
    for layer in trace.layers:
        view = trace.view(layer)
        queries, keys = view.shape[2:]
        largest = torch.stack([trace[layer, head].statistics.largest_key for head in range(view.shape[1])])
        offsets = [k for k in range(-reach, reach + 1) if k != 0]
        place = torch.arange(queries)
        for head in range(view.shape[1]):
            scored = []
            for k in offsets:
                exists = (place + k >= 0) & (place + k < keys)
                weight = diagonal(view, k)[0, head][exists].mean().item()
                share = (largest[head] == place + k)[exists].double().mean().item()
                scored.append((weight, k, share))
            weight, k, share = max(scored)
            rows.append({"layer": layer, "head": head, "offset": k, "weight": weight, "largest": share})
    return pd.DataFrame(rows)


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
