"""Pure functions of a trace: what the heads do. Each cites its source and says what its score does not show.

    heads, links, roles              one head or all of them, by scores
    coreference, dependencies        heads against annotated text (documents, readers)
    alignment                        cross-attention against gold links
    flow, norms                      rollout, reach, flow; what each token receives, by weight and by norm
    gradients, ablation, attribution what the output rests on (measures)
    attention_paths, continuation    the same for attention itself, and for several next tokens
    compare, sparsity, theory        two maps, cheaper attention, facts to check
    implicit                         the maps of Mamba's state-space layers

Modules are loaded when first used.
"""

from importlib import import_module
from types import ModuleType

__all__ = [
    "ablation",
    "alignment",
    "attention_paths",
    "attribution",
    "compare",
    "continuation",
    "coreference",
    "dependencies",
    "documents",
    "flow",
    "gradients",
    "heads",
    "implicit",
    "links",
    "measures",
    "norms",
    "readers",
    "roles",
    "sparsity",
    "theory",
]


def __getattr__(name: str) -> ModuleType:
    if name in __all__:
        return import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
