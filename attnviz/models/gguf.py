"""GGUF files: dequantised once into a folder that loads in about a second."""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..errors import ModelError
from . import quiet
from .progress import progress_bar

_SINGLE_DIGITS = {"smollm", "starcoder", "refact", "command-r"}
"""Kinds of byte-level tokenizers (tokenizer.ggml.pre) that cut numbers into digits before anything else; transformers
does not know, and merges the space before a number differently."""


def folder_name(file: Path) -> str:
    """What the converted folder of a GGUF file is called in the cache: the hash of its content is in it."""
    with file.open("rb") as stream, progress_bar() as progress:
        progress.add_task(f"Reading {file.name}", total=None)
        key = hashlib.file_digest(stream, "sha256").hexdigest()[:12]
    return f"{file.stem}-{key}"


def check(file: Path) -> str:
    """The kind of the file's tokenizer, "" if it names none; ModelError when the file is damaged."""
    if importlib.util.find_spec("gguf") is None or importlib.util.find_spec("accelerate") is None:
        raise ModelError('a GGUF model needs two more packages: pip install "attnviz[gguf]"')
    from gguf import GGUFReader

    try:
        field = GGUFReader(file).get_field("tokenizer.ggml.pre")
    except (ValueError, IndexError, KeyError, OverflowError, MemoryError) as error:
        raise ModelError(f"{file} is not a complete GGUF file ({error}); download it again") from error
    return "" if field is None else str(field.contents())


def convert(file: Path, folder: Path) -> Path:
    """A new folder with the float32 weights, configuration and tokenizer of a GGUF file."""
    kind = check(file)
    folder.mkdir()
    with quiet.transformers(), progress_bar() as progress:
        progress.add_task(f"Converting {file.name}, once", total=None)
        config = _convert_weights(file, folder)
        _convert_tokenizer(file, folder, kind, config.max_position_embeddings)
    return folder


def auto_class(config: Any) -> Any:
    """With the language-model head where the architecture has one: GGUF files do not say."""
    from transformers import AutoModel, AutoModelForCausalLM

    return AutoModelForCausalLM if type(config) in AutoModelForCausalLM._model_mapping else AutoModel


def _convert_weights(file: Path, folder: Path) -> Any:
    import torch
    from safetensors.torch import save_model
    from transformers import AutoConfig

    where = {"gguf_file": file.name, "local_files_only": True}
    config = AutoConfig.from_pretrained(file.parent, **where)
    with _no_bar():
        model = auto_class(config).from_pretrained(
            file.parent, **where, dtype=torch.float32, attn_implementation="eager"
        )
    save_model(model, str(folder / "model.safetensors"), metadata={"format": "pt"})
    config.architectures, config.name_or_path = [type(model).__name__], ""
    config.save_pretrained(folder)
    return config


@contextmanager
def _no_bar() -> Iterator[None]:
    """transformers draws one with tqdm here whatever its own settings say."""
    from transformers import modeling_gguf_pytorch_utils

    reader: Any = modeling_gguf_pytorch_utils
    shown = reader.tqdm
    reader.tqdm = lambda tensors, **_: tensors
    try:
        yield
    finally:
        reader.tqdm = shown


def _convert_tokenizer(file: Path, folder: Path, kind: str, length: int) -> None:
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
    if kind in _SINGLE_DIGITS:
        parts = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=True)]
        tokenizer.backend_tokenizer.pre_tokenizer = Sequence(parts)
    tokenizer.model_max_length = length
    tokenizer.save_pretrained(folder)
