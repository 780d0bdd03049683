"""Which weights a model had: what a trace keeps to tell one checkpoint from the next."""

from __future__ import annotations

import hashlib
from typing import Any

from torch import nn

_VALUES = 16
"""Of each parameter, how many values are read: hashing all of them would take as long as a short recording."""


def revision(model: nn.Module) -> str:
    """The hub's commit where there is one, else a hash over names, shapes and the first values of the parameters.

    Training a parameter changes the hash; "" for a model without parameters.
    """
    commit: Any = getattr(getattr(model, "config", None), "_commit_hash", None)
    if isinstance(commit, str):
        return commit
    digest, count = hashlib.sha256(), 0
    for name, parameter in model.named_parameters():
        if parameter.is_meta or not parameter.numel():
            continue
        first = parameter.detach()[(0,) * (parameter.dim() - 1)].reshape(-1)[:_VALUES]
        digest.update(f"{name} {tuple(parameter.shape)}".encode())
        digest.update(first.float().cpu().numpy().tobytes())
        count += 1
    return f"sha256:{digest.hexdigest()[:16]}" if count else ""
