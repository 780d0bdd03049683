"""Traces as files (`.attn`): one safetensors file, mapped into memory when loaded.

The header says what the trace is made of: a tree of the few classes named in `_CLASSES`, whose tensors are the file's
own. Nothing else can be built from it, so that loading never executes anything; a checksum over the tree and the
tensors' names, types and shapes tells an edited or damaged header, and safetensors itself a file of the wrong size.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from attnviz_kernels import Mask, Statistics, View

from . import __version__
from .arguments import check_numbers, path_of
from .composed import Difference, Stacked, Unkept
from .errors import TraceFileError, UsageError
from .files import check_place, written
from .head import Record
from .statespace import StateSpace
from .tokens import Token, TokenAxis
from .trace import AXES, Trace
from .typed import fits, well_typed
from .views import Dense, QueryKey, Shape

FORMAT = 1
"""The version of the format; a file of another one is refused."""

_CLASSES = {
    found.__name__: found
    for found in (
        *(Dense, Difference, Mask, QueryKey, Record, Stacked),
        *(StateSpace, Statistics, Token, TokenAxis, Unkept, View),
    )
}
_VECTORS = ("query", "key")
_BROADCAST = ("bias", "dense")


def save(
    trace: Trace,
    path: str | Path,
    *,
    dtype: torch.dtype | None = None,
    layers: Sequence[int] | None = None,
    statistics_only: bool = False,
) -> None:
    """Write a trace to one file, beside its place and then renamed.

    dtype stores queries and keys as torch.float16 or bfloat16, which halves the file and keeps three digits of each
    weight; layers keeps only some; statistics_only leaves queries and keys out, so that only statistics are left.

    Raises UsageError for wrong arguments, AttnvizError where the file cannot be written.
    """
    from safetensors.torch import save_file

    path = path_of(path)
    check_numbers("layers", layers)
    if path.suffix != ".attn":
        raise UsageError(f"a trace file ends in .attn, got {path.name}")
    check_place(path)
    tensors: dict[str, Tensor] = {}
    kept = [record for record in trace.records if layers is None or record.layer in layers]
    if not kept:
        raise UsageError(f"no recorded layer is among {list(layers or ())}: this trace has {list(trace.layers)}")
    slim = [_slim(record, dtype, statistics_only) for record in kept]
    tree = {
        "model": trace.model,
        "revision": trace.revision,
        "notes": trace.notes,
        "unrecorded": trace.unrecorded,
        "axes": {name: [_encode(axis, tensors) for axis in axes] for name, axes in trace.axes.items()},
        "records": [_encode(record, tensors) for record in slim],
    }
    text = json.dumps(tree, ensure_ascii=False, separators=(",", ":"))
    header = {"format": str(FORMAT), "attnviz": __version__, "trace": text, "checksum": _checksum(text, tensors)}
    with written(path) as beside:
        save_file(tensors, beside, metadata=header)


def load(path: str | Path) -> Trace:
    """The trace in a file; tensors stay in the file until they are looked at.

    Raises TraceFileError in one line for a file that is missing, damaged, edited, foreign or of another version.
    """
    from safetensors import SafetensorError, safe_open

    path = path_of(path)
    if path.is_dir():
        raise TraceFileError(f"{path} is a folder: give a file in it, written by trace.save or attnviz record")
    if not path.is_file():
        raise TraceFileError(f"{path} does not exist: give a file written by trace.save or attnviz record")
    try:
        with safe_open(path, framework="pt") as file:
            header = file.metadata() or {}
            text = _checked(path, header)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise TraceFileError(f"{path} is damaged or no trace file ({reason}): record it again") from None
    if header.get("checksum") != _checksum(text, tensors):
        raise TraceFileError(f"{path} was edited or is damaged: its checksum does not fit, record it again")
    try:
        return _trace(json.loads(text), tensors, path.stat().st_size)
    # a forged header may fail in any way while views are tried out
    except Exception:
        raise TraceFileError(f"{path} does not hold together as a trace: record it again") from None


def _checked(path: Path, header: dict[str, str]) -> str:
    if "trace" not in header or "format" not in header:
        raise TraceFileError(f"{path} is a safetensors file but no trace: give a file written by trace.save")
    if header["format"] != str(FORMAT):
        raise TraceFileError(
            f"{path} has trace format {header['format'][:20]}, this attnviz ({__version__}) reads format {FORMAT}:"
            " record it again or use the version that wrote it"
        )
    return header["trace"]


def _checksum(text: str, tensors: dict[str, Tensor]) -> str:
    table = [[name, str(tensors[name].dtype), list(tensors[name].shape)] for name in sorted(tensors)]
    return hashlib.sha256(f"{text}\n{json.dumps(table)}".encode()).hexdigest()


def _slim(record: Record, dtype: torch.dtype | None, statistics_only: bool) -> Record:
    """The record with its vectors in another dtype, or without them."""
    if record.view is None:
        return record
    if statistics_only:
        statistics = record.statistics or record.view.statistics()
        return replace(record, view=Unkept(record.view.shape, record.view.visible()), statistics=statistics, value=None)
    if dtype is None:
        return record
    if dtype not in (torch.float16, torch.bfloat16, torch.float32):
        raise UsageError(f"dtype must be torch.float16, torch.bfloat16 or torch.float32, got {dtype}")
    value = None if record.value is None else record.value.to(dtype)
    return replace(record, view=_cast(record.view, dtype), value=value)


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """The same tree with queries and keys in another dtype."""
    if isinstance(value, tuple):
        return tuple(_cast(item, dtype) for item in value)
    if not is_dataclass(value) or isinstance(value, (Mask, Statistics)):
        return value
    changed = {f.name: _cast(getattr(value, f.name), dtype) for f in fields(value)}
    vectors = {name: getattr(value, name).to(dtype) for name in _VECTORS if isinstance(changed.get(name), Tensor)}
    return replace(value, **{**changed, **vectors})  # type: ignore[type-var]


def _encode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """A value as JSON; tensors move to `tensors` and leave their name."""
    if isinstance(value, Tensor):
        return {"tensor": _name(value.detach(), tensors)}
    if isinstance(value, slice):
        return {"slice": [value.start, value.stop]}
    if is_dataclass(value):
        parts = {f.name: getattr(value, f.name) for f in fields(value)}
        parts |= {name: _narrow(parts[name]) for name in _BROADCAST if isinstance(parts.get(name), Tensor)}
        return {"class": type(value).__name__, **{name: _encode(part, tensors) for name, part in parts.items()}}
    if isinstance(value, tuple | list):
        return [_encode(item, tensors) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    raise TypeError(f"{type(value).__name__} has no place in a trace file")


def _name(tensor: Tensor, tensors: dict[str, Tensor]) -> str:
    """The tensor's name in the file; a mask that all layers share is stored once."""
    for name, known in tensors.items():
        if _same(known, tensor):
            return name
    name = f"t{len(tensors)}"
    shares = tensor.untyped_storage().nbytes() > tensor.numel() * tensor.element_size()
    # safetensors refuses tensors that are part of a larger one
    tensors[name] = tensor.clone(memory_format=torch.contiguous_format) if shares else tensor.contiguous()
    return name


def _same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors are the same piece of memory, read in the same way."""
    layouts = [(t.data_ptr(), t.dtype, t.shape, t.stride()) for t in (one, other)]
    return layouts[0] == layouts[1]


def _narrow(tensor: Tensor) -> Tensor:
    """The tensor with its expanded axes back at size 1, so that a broadcast mask is not written out."""
    return tensor[tuple(slice(0, 1) if step == 0 else slice(None) for step in tensor.stride())]


def _decode(value: Any, tensors: dict[str, Tensor]) -> Any:
    """The inverse of `_encode`; lists become tuples."""
    if isinstance(value, list):
        return tuple(_decode(item, tensors) for item in value)
    if not isinstance(value, dict):
        return value
    if set(value) == {"tensor"}:
        return tensors[value["tensor"]]
    if set(value) == {"slice"}:
        start, stop = value["slice"]
        _need(fits((start, stop), tuple[int, int]))
        return slice(start, stop)
    kind = _CLASSES[value["class"]]
    found = kind(**{f.name: _decode(value[f.name], tensors) for f in fields(kind)})
    _need(well_typed(found))
    if isinstance(found, View):
        _need(found.sinks is None or found.sinks.shape == found.query.shape[1:2])
        _need(found.mask.chunk is None or found.mask.chunk > 0)
    return found


def _trace(tree: dict[str, Any], tensors: dict[str, Tensor], size: int) -> Trace:
    records = [_decode(record, tensors) for record in tree["records"]]
    axes = {name: tuple(_decode(axis, tensors) for axis in axes) for name, axes in tree["axes"].items()}
    for record in records:
        _check(record, size)
    for axis in chain.from_iterable(axes.values()):
        _need(isinstance(axis, TokenAxis) and 0 <= axis.valid.start <= axis.valid.stop <= len(axis.tokens))
    notes, unrecorded = list(tree["notes"]), list(tree["unrecorded"])
    # 0.1.0 did not write it
    revision = tree.get("revision", "")
    _need(fits((tree["model"], revision, *notes, *unrecorded), tuple[str, ...]))
    return Trace(tree["model"], records, axes, notes=notes, unrecorded=unrecorded, revision=revision)


def _check(record: Any, size: int) -> None:
    """Fails unless the parts of a record fit each other; size is that of the file, which no map is longer than."""
    _need(isinstance(record, Record) and record.kind in (*AXES, "linear") and min(record.layer, record.row_start) >= 0)
    view = record.view
    if view is None:
        return
    shape = view.shape
    _need(fits(shape, Shape) and min(shape) > 0 and max(shape) <= size)
    _need(len(set(record.head_numbers)) == record.heads)
    if isinstance(view, Unkept):
        _need(tuple(view.seen.shape) == shape[:3] and record.statistics is not None)
    else:
        # where sizes do not fit, the last cell is what is missing
        _need(tuple(view.tile(slice(shape[2] - 1, None), slice(shape[3] - 1, None)).shape) == (*shape[:2], 1, 1))
    if record.statistics is not None:
        found = [getattr(record.statistics, f.name) for f in fields(Statistics)]
        _need(all(tuple(column.shape) == shape[:3] for column in found))
        _need(not record.statistics.largest_key.is_floating_point())
    if record.value is not None:
        _need(record.value.dim() == 4 and (len(record.value), record.value.shape[2]) == (shape[0], shape[3]))


def _need(right: bool) -> None:
    if not right:
        raise ValueError("does not hold together")
