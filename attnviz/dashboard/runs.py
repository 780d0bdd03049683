"""From a model's name and a text to a trace: loaded once, recorded once, kept while there is room."""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import UsageError
from ..estimate import Estimate, estimate, readable, shape_of
from .cache import Cache
from .choices import TRACE, locate
from .jobs import Job, Queue, watched
from .settings import settings

if TYPE_CHECKING:
    import pandas as pd

    from ..trace import Trace

MODELS_KEPT = 2
"""Loaded models held at once; a third takes the place of the one unused for longest."""


@dataclass(frozen=True)
class Wanted:
    """What a visitor wants to look at; the key under which its trace is kept.

    file is the name of the file that text or trace came from, where a visitor brought it; version tells files of the
    same name apart.
    """

    model: str
    text: str
    file: str = field(default="", compare=False)
    version: str = ""

    @property
    def saved(self) -> bool:
        """Whether it is a saved trace, which comes with its text."""
        return self.model.endswith(TRACE)


@cache
def traces() -> Cache:
    """The traces of all visitors, and what was computed from them."""
    return Cache(settings().budget)


@cache
def models() -> Cache:
    """(model, tokenizer) by name; the budget counts models."""
    return Cache(MODELS_KEPT)


@cache
def queue() -> Queue:
    """The one queue of this server, so that runs do not compete for the processor."""
    return Queue()


def keep(cache: Cache, key: Hashable, work: Callable[[Job], Any], size: Callable[[Any], int], job: Job) -> Any:
    """The value kept under the key, made first unless another visitor's job already did."""
    value = cache.get(key)
    if value is None:
        value = work(job)
        cache.put(key, value, size(value))
    return value


def load(model: str, job: Job) -> tuple[Any, Any]:
    """(model, tokenizer)."""
    from ..models import load_model

    job.step(f"Loading {model}")
    return load_model(locate(model, settings()), allow_hub=settings().allow_hub)


def keep_model(model: str, job: Job) -> None:
    """Load a model before anyone asks for it."""
    keep(models(), model, partial(load, model), lambda _: 1, job)


def open_trace(name: str, job: Job) -> Trace:
    """A saved trace that the server offers."""
    return open_file(Path(locate(name, settings())), name, job)


def open_file(path: Path, name: str, job: Job) -> Trace:
    """A saved trace; what is wrong with it is said of `name`, not of where the server keeps it."""
    from ..errors import TraceFileError
    from ..storage import load as load_trace

    job.step(f"Opening {name}")
    try:
        return load_trace(path)
    except TraceFileError as error:
        raise TraceFileError(str(error).replace(str(path), name)) from None


def version_of(name: str) -> str:
    """Tells a trace that was written anew from the one before."""
    found = Path(locate(name, settings())).stat()
    return f"{found.st_mtime_ns} {found.st_size}"


def cost(model: Any, tokens: int) -> Estimate | None:
    """What recording takes; None for models that do not say how many heads they have."""
    config: Any = getattr(model, "config", None)
    if not hasattr(config, "get_text_config") or not hasattr(config.get_text_config(), "num_attention_heads"):
        return None
    return estimate(shape_of(config), tokens)


def twin(model: Any) -> Any:
    """The same model, its weights in the same memory, as modules of their own: what is done to them while it runs, by
    recording, silencing heads or watching progress, does not meet what another job does to the model."""
    shared = {id(tensor): tensor for tensor in (*model.parameters(), *model.buffers())}
    return copy.deepcopy(model, shared)


def record(model: Any, tokenizer: Any, wanted: Wanted, job: Job) -> Trace:
    """The trace of a text."""
    import attnviz

    stage = f"Recording every head of {wanted.model}"
    job.step(stage)
    own = twin(model)
    with watched(own, job, stage):
        trace = attnviz.inspect((own, tokenizer), wanted.text)
    trace.model = wanted.model
    return trace


def measure_heads(trace: Trace, job: Job) -> pd.DataFrame:
    """`Trace.heads()`, with progress from layer to layer."""
    import pandas as pd

    tables = []
    for done, layer in enumerate(trace.layers):
        job.step("Measuring every head", done / len(trace.layers))
        own = [record for record in trace.records if record.layer == layer and record.kind != "pool"]
        tables.append(replace(trace, records=own).heads())
    return pd.concat(tables, ignore_index=True)


def mapped_bytes(trace: Trace) -> int:
    """The memory a trace from a file takes: its tensors stay in the file, which the system reads as it likes."""
    return 200 * sum(len(axis.tokens) for axes in trace.axes.values() for axis in axes)


def maps_bytes(maps: dict[Any, Any]) -> int:
    """The memory that small maps take."""
    return sum(int(blocks.nbytes) for blocks in maps.values())


def table_bytes(table: pd.DataFrame) -> int:
    """The memory a table takes."""
    return int(table.memory_usage(deep=True).sum())


def count_tokens(tokenizer: Any, text: str) -> int:
    """How many tokens the text is for this tokenizer, special tokens included."""
    return len(tokenizer(text, verbose=False)["input_ids"])


def check_length(tokens: int, cost: Estimate | None = None) -> None:
    """Raises UsageError for a text longer than this server takes, or whose trace would not fit into its memory."""
    if tokens > settings().max_tokens:
        raise UsageError(
            f"this text has {tokens:,} tokens, this server takes {settings().max_tokens:,}: shorten it, or start the"
            " dashboard with a larger --max-tokens"
        )
    if cost is not None and cost.attnviz > settings().budget:
        raise UsageError(
            f"the trace of this text would take {readable(cost.attnviz)}, this server keeps"
            f" {readable(settings().budget)} in all: shorten it, or start the dashboard with a larger --memory"
        )
