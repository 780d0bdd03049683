"""`load_model`: one door for bundled models, local folders, GGUF files and hub ids."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..arguments import refuse
from ..errors import AttnvizError, BudgetError, ModelError
from ..estimate import readable
from . import cache, files, gguf, quiet
from .progress import progress_bar
from .source import Source, locate, unknown

if TYPE_CHECKING:
    import torch

_AUTO_CLASSES = (
    "AutoModelForCausalLM",
    "AutoModelForSeq2SeqLM",
    "AutoModelForMaskedLM",
    "AutoModelForImageTextToText",
    "AutoModelForSequenceClassification",
    "AutoModelForTokenClassification",
    "AutoModelForQuestionAnswering",
    "AutoModelForImageClassification",
    "AutoModelForSpeechSeq2Seq",
)
"""Tried for the one whose class config.json names, so that a model keeps its head; AutoModel serves the rest."""

_FAULTS = {
    "trust_remote_code": "needs code of its own, which is never run; load it yourself and pass (model, tokenizer)",
    "use_safetensors": files.PICKLE,
    "ignore_mismatched_sizes": "has weights of other shapes than config.json asks for; download both again",
}
"""What transformers' advice means here, by a word of it."""


def load_model(
    name_or_path: str | Path,
    *,
    trust_pickle: bool = False,
    allow_hub: bool = True,
    dtype: torch.dtype | None = None,
    max_bytes: int | None = None,
) -> tuple[Any, Any]:
    """(model, tokenizer) of a bundled model, a local folder, a GGUF file or a hub id, in that order of preference.

    A bundled model is fetched first if it is not in the cache; a GGUF file is converted once. The model is in
    evaluation mode, in `dtype` (float32 by default), with torch's fused attention where its class supports that, else
    with eager attention. A model without text (vision) has None for a tokenizer. Code that comes with a model is never
    run; weights are read from safetensors, and from pickle only with trust_pickle=True. allow_hub=False, like
    HF_HUB_OFFLINE=1, keeps to what is already on this machine.

    Raises ModelError with the remedy when there is no such model or it is incomplete, BudgetError when the parameters
    take more than max_bytes (by default the memory that is available).
    """
    import torch

    if dtype is not None and not isinstance(dtype, torch.dtype):
        raise refuse("dtype", "a type of torch, such as torch.float16", dtype)
    source = locate(name_or_path, allow_hub)
    with _one_line(source), quiet.transformers():
        dtype = torch.float32 if dtype is None else dtype
        if source.gguf:
            source = _converted(source, dtype, max_bytes)
        config = _config(source)
        auto = _auto_class(config)
        attention, parameters = _skeleton(auto, config)
        _check_size(source, parameters, dtype, max_bytes)
        if not source.hub:
            files.check_weights(Path(source.where), trust_pickle)
        with progress_bar() as progress:
            progress.add_task(f"Loading {source.name}", total=None)
            tokenizer = _tokenizer(source, config)
            model = _weights(source, auto, config, trust_pickle, dtype=dtype, attn_implementation=attention)
        return model, tokenizer


def load_reader(name: str) -> tuple[Any, Any]:
    """(model, tokenizer) of a model that reads text, as `load_model`; ModelError for one without a tokenizer."""
    model, tokenizer = load_model(name)
    if tokenizer is None:
        raise ModelError(
            f"{name} reads no text, it has no tokenizer: record it on inputs of your own with record(model)"
        )
    return model, tokenizer


def load_config(name_or_path: str | Path, *, allow_hub: bool = True) -> Any:
    """The configuration alone, of anything that `load_model` takes."""
    source = locate(name_or_path, allow_hub)
    with _one_line(source), quiet.transformers():
        return _config(source)


@contextmanager
def _one_line(source: Source) -> Iterator[None]:
    """Whatever transformers raises, as one line; this is the boundary."""
    try:
        yield
    except AttnvizError:
        raise
    except Exception as error:
        if source.offline and isinstance(error, OSError):
            raise unknown(source.name, source.offline) from error
        known = (text for sign, text in _FAULTS.items() if sign in str(error))
        text = next(known, f"cannot be loaded: {files.first_line(error)}")
        raise ModelError(f"{source.name} {text}") from error


def _config(source: Source) -> Any:
    from transformers import AutoConfig

    if source.gguf:
        gguf.check(source.gguf)
        return AutoConfig.from_pretrained(source.where, gguf_file=source.gguf.name, local_files_only=True)
    if not source.hub:
        files.check_config(Path(source.where))
    return AutoConfig.from_pretrained(source.where, local_files_only=source.local_only, trust_remote_code=False)


def _converted(source: Source, dtype: torch.dtype, max_bytes: int | None) -> Source:
    """The folder a GGUF file is converted to; its size is checked before that is done."""
    import torch

    file = source.gguf
    assert file is not None
    name = gguf.folder_name(file)
    if not cache.place(name).is_dir():
        config = _config(source)
        _, parameters = _skeleton(gguf.auto_class(config), config)
        _check_size(source, parameters, dtype, max_bytes)
        needs = parameters * torch.float32.itemsize
        cache.install(name, needs, lambda scratch: gguf.convert(file, scratch / "converted"))
    return replace(source, where=str(cache.place(name)), gguf=None)


def _auto_class(config: Any) -> Any:
    import transformers

    wanted = (config.architectures or [None])[0]
    for name in _AUTO_CLASSES if wanted else ():
        auto = getattr(transformers, name)
        if getattr(auto._model_mapping.get(type(config), None), "__name__", None) == wanted:
            return auto
    return transformers.AutoModel


def _skeleton(auto: Any, config: Any) -> tuple[str, int]:
    """The attention implementation that the class supports, and its number of parameters; nothing is allocated."""
    import torch

    with torch.device("meta"):
        try:
            attention, model = "sdpa", auto.from_config(config, attn_implementation="sdpa", trust_remote_code=False)
        except ValueError:
            attention, model = "eager", auto.from_config(config, attn_implementation="eager", trust_remote_code=False)
    return attention, sum(parameter.numel() for parameter in model.parameters())


def _check_size(source: Source, parameters: int, dtype: torch.dtype, max_bytes: int | None) -> None:
    import psutil

    size = parameters * dtype.itemsize
    limit = psutil.virtual_memory().available if max_bytes is None else max_bytes
    if size > limit:
        raise BudgetError(
            f"{source.name} takes {readable(size)} in {str(dtype).removeprefix('torch.')}, "
            f"{readable(limit)} may be used; "
            "load it in a smaller dtype, or raise max_bytes"
        )


def _tokenizer(source: Source, config: Any) -> Any:
    """The tokenizer; None for a kind of model that has none."""
    from transformers import AutoTokenizer
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING_NAMES

    folder = source.folder()
    reads = config.model_type in TOKENIZER_MAPPING_NAMES or hasattr(config.get_text_config(), "vocab_size")
    if not files.has_vocabulary(folder):
        if not reads:
            return None
        raise ModelError(
            f"{source.name} has no tokenizer files, such as tokenizer.json; "
            "write them there with tokenizer.save_pretrained, or load both yourself and pass (model, tokenizer)"
        )
    return AutoTokenizer.from_pretrained(source.where, local_files_only=source.local_only, trust_remote_code=False)


def _weights(source: Source, auto: Any, config: Any, trust_pickle: bool, **options: Any) -> Any:
    """The model in evaluation mode; without its head where the weights lack that (sentence encoders often do)."""
    from transformers import AutoModel

    missing: list[str] = []
    for kind in dict.fromkeys((auto, AutoModel)):
        model, info = kind.from_pretrained(
            source.where,
            config=config,
            use_safetensors=None if trust_pickle else True,
            local_files_only=source.local_only,
            trust_remote_code=False,
            output_loading_info=True,
            **options,
        )
        missing = sorted(name for name in info["missing_keys"] if "pooler." not in name)
        if not missing:
            return model.eval()
    raise ModelError(
        f"{source.name} lacks {len(missing)} of the parameters that config.json asks for, such as {missing[0]}; "
        "download the weights again, or correct config.json"
    )
