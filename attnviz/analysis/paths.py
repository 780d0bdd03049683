"""Paths from a baseline to a text, along which Captum integrates, and the steps that such an integral takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import AttnvizError, UsageError
from ..recording.modules import survey
from .gradients import frozen, one_text
from .measures import Measure, measured_each

CONVERGED = 0.05
"""Relative error of the sum below which integrated gradients count as converged."""

_BATCH = 8
"""Points of the path evaluated together."""

Progress = Callable[[int, int], None] | None


def doubled(compute: Callable[[int], tuple[Tensor, float]], steps: int, most: int) -> tuple[Tensor, float, int]:
    """What compute(steps) finds, its error and the steps: doubled until it has converged or `most` would be passed."""
    steps = min(steps, most)
    while True:
        found, error = compute(steps)
        if error < CONVERGED or steps * 2 > most:
            return found, error, steps
        steps *= 2


@contextmanager
def path(
    model: nn.Module, tokenizer: Any, inputs: Mapping[str, Any], measure: Measure, steps: int, progress: Progress
) -> Iterator[tuple[Callable[[Tensor], Tensor], Tensor, Tensor]]:
    """The measure as a function of embeddings [S, M, D] of one text, and the two ends of the path, [1, M, D].

    Parameters are frozen inside the block.
    """
    one_text(inputs)
    embed: nn.Module = model.get_input_embeddings()  # type: ignore[operator]
    ids = inputs["input_ids"]
    others = {name: value for name, value in inputs.items() if name not in ("input_ids", "token_type_ids")}

    def forward(points: Tensor) -> Tensor:
        given = {name: value.expand(len(points), *value.shape[1:]) for name, value in others.items()}
        return measured_each(model, {"inputs_embeds": points, **given}, measure)

    with frozen(model):
        yield counted(forward, progress, steps), embed(baseline(tokenizer, ids)).detach(), embed(ids).detach()


def counted(forward: Callable[[Tensor], Tensor], progress: Progress, total: int) -> Callable[[Tensor], Tensor]:
    """The same function of points [S, ...], telling after each call how many of `total` points it has seen."""
    done = 0

    def told(points: Tensor) -> Tensor:
        nonlocal done
        found = forward(points)
        done += len(points)
        if progress is not None:
            progress(min(done, total), total)
        return found

    return told


def along(forward: Callable[[Tensor], Tensor], layer: nn.Module, start: Tensor, end: Tensor, steps: int) -> Any:
    """Captum's conductance of what a module gives, between two points."""
    # the trapezoid's points hold both ends of the path, those of other rules leave its first and last piece out
    return (
        captum()
        .LayerConductance(forward, layer)
        .attribute(end, baselines=start, n_steps=steps, internal_batch_size=_BATCH, method="riemann_trapezoid")
    )


def difference(forward: Callable[[Tensor], Tensor], start: Tensor, end: Tensor) -> float:
    """The measure at the end of a path less that at its start."""
    with torch.no_grad():
        return (forward(end) - forward(start)).item()


def baseline(tokenizer: Any, ids: Tensor) -> Tensor:
    """The ids with every ordinary token replaced by padding (or the end token, where there is no padding)."""
    special = torch.tensor(sorted(set(tokenizer.all_special_ids)))
    return torch.where(torch.isin(ids, special), ids, filler(tokenizer))


def filler(tokenizer: Any) -> int:
    """The id that stands for no token: padding, or the end token."""
    found = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
    if found is None:
        raise UsageError("this tokenizer has neither a padding nor an end token to use as baseline")
    return int(found)


def layers_of(model: nn.Module, layers: Sequence[int] | None, kind: str) -> list[int]:
    """The layers asked for, all of those with this kind of attention for None."""
    known = sorted({place.layer for place in survey(model).places.values() if place.kind == kind and not place.shared})
    missing = [layer for layer in layers or () if layer not in known]
    if missing:
        told = ", ".join(map(str, known)) or "none"
        raise UsageError(f"layer {missing[0]} does not attend: the layers of {type(model).__name__} that do are {told}")
    return known if layers is None else list(layers)


def captum() -> Any:
    """captum.attr, or one line where it is missing."""
    try:
        import captum.attr
    except ImportError:
        raise AttnvizError("attributions need captum: pip install 'attnviz[attribution]'") from None
    return captum.attr
