"""Causes: what changes in the model's output when heads are silenced or links are cut.

Zero, mean and keep-only ablation as in Michel et al. 2019 (arXiv 1905.10650) and Voita et al. 2019; cutting links
between groups of tokens as in Geva et al. 2023 (arXiv 2304.14767, attention knock-out). A change shows that the model
uses the head here; no change does not show that it is useless, since other heads may do the same (backup heads).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from attnviz_kernels import Mask

from ..errors import UsageError
from ..recording.intervene import hidden_links, intervene
from .kinds import kind_of
from .measures import Measure, measured
from .tables import by_size

if TYPE_CHECKING:
    import pandas as pd

    from ..recording.modules import Place

HOW = ("zero", "mean", "keep")
"""zero: the heads write nothing; mean: they write their mean over the positions of this input, everywhere; keep: all
other heads write nothing."""

Heads = Iterable[tuple[int, int]]


@dataclass(frozen=True)
class Effect:
    """A measure before and after a change."""

    before: float
    after: float

    @property
    def change(self) -> float:
        """after - before."""
        return self.after - self.before


def ablate(
    model: nn.Module,
    inputs: Mapping[str, Any],
    heads: Heads,
    measure: Measure,
    *,
    how: str = "zero",
    kind: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Effect:
    """The effect of silencing (layer, head) pairs; runs the model twice.

    kind is "encoder", "decoder" or "cross" for models that have several kinds of attention. progress(done, total) is
    called after each run, and may raise to stop. Raises UsageError for heads the model does not have, RecordingError
    for a model whose heads cannot be reached.
    """
    return _effect(
        lambda: measured(model, inputs, measure).item(),
        lambda: _ablated(model, inputs, list(heads), measure, how, kind_of(model, kind)),
        progress,
    )


def ablate_each(
    model: nn.Module,
    inputs: Mapping[str, Any],
    measure: Measure,
    *,
    heads: Heads | None = None,
    how: str = "zero",
    kind: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """One row per head, silenced alone: layer, head, before, after, change; the largest change first.

    Runs the model once a head (all of them unless given); progress(done, total) is called after each, and may raise
    to stop.
    """
    import pandas as pd

    kind = kind_of(model, kind)
    chosen = every_head(model, inputs, kind) if heads is None else list(heads)
    rows = []
    with torch.inference_mode():
        before = measured(model, inputs, measure).item()
        for done, (layer, head) in enumerate(chosen, 1):
            after = _ablated(model, inputs, [(layer, head)], measure, how, kind)
            rows.append({"layer": layer, "head": head, "before": before, "after": after, "change": after - before})
            if progress is not None:
                progress(done, len(chosen))
    return by_size(pd.DataFrame(rows), "change")


def knock_out(
    model: nn.Module,
    inputs: Mapping[str, Any],
    queries: Sequence[int],
    keys: Sequence[int],
    measure: Measure,
    *,
    layers: Sequence[int] | None = None,
    heads: Heads | None = None,
    kind: str | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Effect:
    """The effect of keeping some queries from seeing some keys (positions), in all layers and heads unless given.

    The weights that are left are renormalised, as a mask does; a query left without keys writes nothing. Holds one
    mask of M x N bits a call. Runs the model twice; kind and progress are those of `ablate`.
    """
    only = None if heads is None else set(heads)
    kind = kind_of(model, kind)

    def cut(place: Place, mask: Mask, shape: tuple[int, int, int, int]) -> Mask:
        _, count, rows, cols = shape
        if place.kind != kind or (layers is not None and place.layer not in layers):
            return mask
        _within("queries", queries, rows)
        _within("keys", keys, cols)
        chosen = torch.tensor([only is None or (place.layer, head) in only for head in range(count)])
        if not chosen.any():
            return mask
        links = torch.zeros(rows, cols, dtype=torch.bool)
        links[torch.tensor(queries)[:, None], torch.tensor(keys)] = True
        hidden = links if chosen.all() else chosen[:, None, None] & links
        return hidden_links(mask, hidden[(None,) * (4 - hidden.dim())])

    def run() -> float:
        return measured(model, inputs, measure).item()

    def without() -> float:
        with intervene(model, mask=cut):
            return run()

    return _effect(run, without, progress)


def every_head(model: nn.Module, inputs: Mapping[str, Any], kind: str | None = None) -> list[tuple[int, int]]:
    """(layer, head) of every head that the inputs reach, in order; runs the model once."""
    kind = kind_of(model, kind)
    found: list[tuple[int, int]] = []

    def note(place: Place, output: Tensor) -> Tensor:
        found.extend((place.layer, head) for head in range(output.shape[1]) if place.kind == kind)
        return output

    with torch.inference_mode(), intervene(model, output=note):
        model(**inputs)
    return list(dict.fromkeys(found))


def _effect(
    run: Callable[[], float], changed: Callable[[], float], progress: Callable[[int, int], None] | None
) -> Effect:
    tell = progress or (lambda done, total: None)
    with torch.inference_mode():
        before = run()
        tell(1, 2)
        after = changed()
        tell(2, 2)
    return Effect(before, after)


def _ablated(
    model: nn.Module, inputs: Mapping[str, Any], heads: list[tuple[int, int]], measure: Measure, how: str, kind: str
) -> float:
    if how not in HOW:
        raise UsageError(f"how must be one of {', '.join(HOW)}, got {how!r}")
    met: dict[int, int] = {}

    def silence(place: Place, output: Tensor) -> Tensor:
        if place.kind != kind:
            return output
        met[place.layer] = output.shape[1]
        chosen = torch.tensor([(place.layer, head) in heads for head in range(output.shape[1])], device=output.device)
        if how == "keep":
            chosen = ~chosen
        other = output.mean((0, 2), keepdim=True) if how == "mean" else torch.zeros_like(output[:1, :, :1])
        return torch.where(chosen[:, None, None], other, output)

    with intervene(model, output=silence):
        after = measured(model, inputs, measure).item()
    for layer, head in heads:
        _exists(layer, head, met)
    return after


def _exists(layer: int, head: int, met: Mapping[int, int]) -> None:
    """UsageError for a head that is none of those met, which are counted by layer."""
    if not 0 <= head < met.get(layer, 0):
        known = (
            f"it has 0 to {met[layer] - 1}" if layer in met else f"the layers that ran are {', '.join(map(str, met))}"
        )
        raise UsageError(f"layer {layer} head {head} does not exist: {known}")


def _within(name: str, positions: Sequence[int], count: int) -> None:
    wrong = [position for position in positions if not 0 <= position < count]
    if wrong or not positions:
        raise UsageError(f"{name} must be positions from 0 to {count - 1}, got {wrong[0] if wrong else 'none'}")
