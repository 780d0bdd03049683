"""Which attention is meant where a model has several kinds, as an encoder-decoder has."""

from __future__ import annotations

from torch import nn

from ..errors import UsageError
from ..recording.modules import survey
from ..trace import AXES

_BESIDE = ("vision", "audio", "pool")


def kind_of(model: nn.Module, kind: str | None) -> str:
    """The kind that is asked for, else the only one of the model; towers of images and sound only count when named.

    Raises UsageError for a kind that the model does not have, and for several when none is named.
    """
    found = {place.kind for place in survey(model).places.values()}
    known = [name for name in AXES if name in found]
    main = [name for name in known if name not in _BESIDE] or known or ["self"]
    if kind is None and len(main) > 1:
        raise UsageError(f"this model has several kinds of attention: name one of {', '.join(main)} as kind")
    if kind is not None and known and kind not in known:
        raise UsageError(f"this model has no {kind} attention: it has {', '.join(known)}")
    return main[0] if kind is None else kind
