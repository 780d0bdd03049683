"""Changing attention while a model runs: what a head writes, or which keys its queries may see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from threading import Lock

from torch import Tensor, nn

from attnviz_kernels import Mask

from ..errors import RecordingError
from .modules import Place


@dataclass(frozen=True)
class Intervention:
    """What is done to every attention call of a model.

    output(place, tensor) is given what the heads of a module write, [B, H, M, E], and returns what goes on instead;
    mask(place, mask, shape) is given the mask of a call and (B, H, M, N) and returns the one that is used.
    """

    places: dict[int, Place]
    output: Callable[[Place, Tensor], Tensor] | None = None
    mask: Callable[[Place, Mask, tuple[int, int, int, int]], Mask] | None = None


_lock = Lock()
_active: list[Intervention] = []


def changed_mask(module: nn.Module, mask: Mask, shape: tuple[int, int, int, int]) -> Mask:
    """The mask after every active intervention on the module."""
    for intervention in _of(module):
        if intervention.mask is not None:
            mask = intervention.mask(intervention.places[id(module)], mask, shape)
    return mask


def changed_output(module: nn.Module, output: Tensor) -> Tensor:
    """The heads' output [B, H, M, E] after every active intervention on the module."""
    for intervention in _of(module):
        if intervention.output is not None:
            output = intervention.output(intervention.places[id(module)], output)
    return output


def changes(module: nn.Module) -> bool:
    """Whether an intervention is active on the module."""
    return bool(_of(module))


def hidden_links(mask: Mask, hidden: Tensor) -> Mask:
    """The mask with more hidden: `hidden` is bool and broadcasts to [B, H, M, N], True where a key must not be seen."""
    if mask.dense is None:
        return replace(mask, dense=~hidden)
    if mask.dense.dtype.is_floating_point:
        return replace(mask, dense=mask.dense.masked_fill(hidden, float("-inf")))
    return replace(mask, dense=mask.dense & ~hidden)


@contextmanager
def intervene(
    model: nn.Module,
    *,
    output: Callable[[Place, Tensor], Tensor] | None = None,
    mask: Callable[[Place, Mask, tuple[int, int, int, int]], Mask] | None = None,
) -> Iterator[dict[str, Place]]:
    """Change the attention of `model` inside the block; see `Intervention`. Gives the places it reaches, by module.

    Everything else of the model stays as it is, and all of it afterwards. Raises RecordingError for a model that does
    not call transformers' AttentionInterface.
    """
    from .interface import switched
    from .modules import survey

    found = survey(model)
    if not found.interface:
        raise RecordingError(
            f"{type(model).__name__} does not call transformers' AttentionInterface, so its heads cannot be changed:"
            " use a hook on its output projection"
        )
    places = {id(module): found.places[name] for name, module in found.interface.items()}
    intervention = Intervention(places, output, mask)
    with switched(found.interface.values(), ()):
        with _lock:
            _active.append(intervention)
        try:
            yield {name: found.places[name] for name in found.interface}
        finally:
            with _lock:
                _active.remove(intervention)


def _of(module: nn.Module) -> list[Intervention]:
    return [intervention for intervention in _active if id(module) in intervention.places]
