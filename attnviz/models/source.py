"""What a model's name means: a bundled model, a folder, a GGUF file or a hub id, in that order."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from pathlib import Path

from ..arguments import refuse
from ..errors import ModelError
from .bundled import BUNDLED, fetch


@dataclass(frozen=True)
class Source:
    """Where a model comes from.

    name   as the user wrote it
    where  a folder, or a hub id
    gguf   the file, when it is one
    hub    whether `where` is a hub id; `offline` then says why the hub cannot be asked, None when it can
    """

    name: str
    where: str
    gguf: Path | None = None
    hub: bool = False
    offline: str | None = None

    @property
    def local_only(self) -> bool:
        """Whether only files on this machine may be used."""
        return not self.hub or self.offline is not None

    def folder(self) -> Path:
        """The folder on disk; of a hub id, the snapshot that its config.json was read from."""
        if not self.hub:
            return Path(self.where)
        from huggingface_hub import try_to_load_from_cache

        return Path(str(try_to_load_from_cache(self.where, "config.json"))).parent


def locate(name_or_path: str | Path, allow_hub: bool) -> Source:
    """The source of a model; fetches a bundled one. ModelError when the name means nothing."""
    if not isinstance(name_or_path, str | Path):
        raise refuse("a model to load", "named: a bundled name, a folder, a .gguf file or a hub id", name_or_path)
    name = str(name_or_path)
    if name in BUNDLED:
        return Source(name, str(fetch(name)))
    path = Path(name).expanduser()
    if name and path.is_dir():
        return Source(name, str(path))
    if path.suffix == ".gguf" and path.is_file():
        return Source(name, str(path.parent), gguf=path)
    if path.suffix == ".attn":
        raise ModelError(f"{name} is a saved trace, and the model itself is needed here: name the model it is from")
    if name and path.exists():
        raise ModelError(f"{name} is neither a folder nor a .gguf file; name the folder that holds config.json")
    return _on_hub(name, allow_hub)


def unknown(name: str, reason: str) -> ModelError:
    """The error for a name that leads nowhere, with the nearest names there are."""
    near = difflib.get_close_matches(name.lower(), [*BUNDLED, *_in_hub_cache()], n=3, cutoff=0.6)
    bundled = f"did you mean {' or '.join(near)}? Bundled" if near else "bundled"
    return ModelError(
        f'no model "{name}": {reason}; {bundled} are {", ".join(BUNDLED)}; '
        "a folder, a .gguf file or a hub id will do as well"
    )


def _on_hub(name: str, allow_hub: bool) -> Source:
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import GatedRepoError, HFValidationError, RepositoryNotFoundError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(name)
    except HFValidationError:
        raise unknown(name, "there is no such file or folder") from None
    if not allow_hub or constants.HF_HUB_OFFLINE:
        reason = "HF_HUB_OFFLINE is set" if allow_hub else "allow_hub=False"
        return Source(name, name, hub=True, offline=f"not on this machine, and {reason} keeps from asking the hub")
    try:
        HfApi().model_info(name, timeout=10)
    except GatedRepoError as error:
        raise ModelError(
            f'"{name}" is gated: ask for access on its hub page, then log in with: hf auth login'
        ) from error
    except RepositoryNotFoundError as error:
        raise unknown(name, "not on this machine, and the hub has none, or only a private one, of that name") from error
    except Exception as error:  # whatever the hub's HTTP library of the day raises
        reason = f"not on this machine, and the hub cannot be reached ({error})"
        return Source(name, name, hub=True, offline=reason)
    return Source(name, name, hub=True)


def _in_hub_cache() -> list[str]:
    from huggingface_hub import constants

    folders = Path(constants.HF_HUB_CACHE).glob("models--*")
    return [folder.name.removeprefix("models--").replace("--", "/") for folder in folders]
