"""One attention call through the kernel, kept by the watches that hear it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from attnviz_kernels import Attended, Emit, Mask, View, attend, check, choose, view_of

from .chains import Origin
from .frames import Frame
from .heard import Heard
from .masks import Placed
from .torch_arguments import Inputs
from .watch import Watch


def read(
    watches: Sequence[Watch],
    inputs: Inputs,
    rung: str,
    kind: str | None = None,
    label: str | None = None,
    notes: tuple[str, ...] = (),
) -> Attended:
    """Attend with statistics; every watch keeps the call. The output is differentiable; kind None is told by its place.

    Raises ArgumentError where the call breaks the kernels' contract.
    """
    inputs = inputs.autocast()
    kind = kind or _kind(watches[-1].here, inputs)
    if kind not in ("cross", "pool"):
        inputs = replace(inputs, mask=_after_cache(inputs))
    emit = Emit(statistics=True, weights=any(watch.options.keep == "weights" for watch in watches))
    attended, view, backend = _attend(inputs, emit)
    heard = Heard(view, Placed(view.mask), inputs.value, notes, attended.statistics, attended.weights)
    origin = Origin(rung, kind, label, None, backend, notes)
    for watch in watches:
        watch.chains.add(watch.here, origin, heard)
    return attended


def _kind(here: Frame, inputs: Inputs) -> str:
    batch, _, rows, _ = inputs.query.shape
    return here.kind(rows, inputs.key.shape[2] - inputs.extra, batch)


def _after_cache(inputs: Inputs) -> Mask:
    """The mask with the queries of self attention at the end of the keys, where nothing says where they stand."""
    mask, rows = inputs.mask, inputs.query.shape[2]
    earlier = inputs.key.shape[2] - inputs.extra - rows
    silent = not (mask.causal or mask.offset or mask.window or mask.chunk)
    if not silent or earlier < 0 or (earlier == 0 and rows > 1):
        return mask
    # what the last token alone sees, a causal mask says too, and it joins with those of other steps
    return replace(mask, offset=earlier, causal=rows == 1 and not inputs.extra)


def _attend(inputs: Inputs, emit: Emit) -> tuple[Attended, View, str]:
    """The kernel's answer, the view of its weights, and the backend that gave it."""
    tensors, options = (inputs.query, inputs.key, inputs.value), inputs.options()
    call = check(*tensors, emit=emit, **options)
    backend = choose(call)
    attended = attend(*tensors, emit=emit, backend=backend, **options)
    return attended, view_of(call, attended), backend
