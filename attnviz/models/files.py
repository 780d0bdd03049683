"""Whether a model folder is complete, each fault in one line, before transformers sees it."""

from __future__ import annotations

import json
from pathlib import Path

from ..errors import ModelError

PICKLE = (
    "has its weights only as pickle, which can run code when read; "
    "save them as safetensors, or pass trust_pickle=True if you trust their origin"
)
_VOCABULARIES = ("tokenizer.json", "*.model", "vocab.*", "spiece.*", "*.tiktoken", "tekken.json")


def first_line(error: BaseException) -> str:
    """The first line of an error's text, with the next where it ends in a colon, or its kind when it has none."""
    first, *others = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return f"{first} {others[0]}" if first.endswith(":") and others else first


def check_config(folder: Path) -> None:
    """ModelError unless the folder has a readable config.json."""
    path = folder / "config.json"
    if not path.is_file():
        raise ModelError(f"{folder} has no config.json; name a folder written by model.save_pretrained")
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ModelError(f"{path} is not valid JSON ({error}); save or download it again") from error


def check_weights(folder: Path, trust_pickle: bool) -> None:
    """ModelError unless the folder has whole weights of a kind that may be read."""
    shards = sorted(folder.glob("model*.safetensors"))
    if not shards and not any(folder.glob("pytorch_model*.bin")):
        raise ModelError(f"{folder} has no weights (model.safetensors); copy or download them there")
    if not shards and not trust_pickle:
        raise ModelError(f"{folder} {PICKLE}")
    index = folder / "model.safetensors.index.json"
    wanted = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()) if index.is_file() else set()
    absent = sorted(wanted - {shard.name for shard in shards})
    if absent:
        raise ModelError(
            f"{folder} lacks {len(absent)} of {len(wanted)} weight files, such as {absent[0]}; download them"
        )
    for shard in shards:
        _check_shard(shard)


def _check_shard(shard: Path) -> None:
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(shard, framework="pt"):
            pass
    except SafetensorError as error:
        raise ModelError(f"{shard} is damaged ({first_line(error)}); copy or download it again") from error


def has_vocabulary(folder: Path) -> bool:
    """Whether there is a vocabulary; where there is none, transformers makes up a tokenizer of a few special tokens."""
    return any(any(folder.glob(pattern)) for pattern in _VOCABULARIES)
