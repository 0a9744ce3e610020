"""The files of a checkpoint of transformers, and its tensors, read one at a time."""

import json
import pickle
import re
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

CONFIG, GENERATION = "config.json", "generation_config.json"
WEIGHTS = ("model.safetensors", "pytorch_model.bin")  # the first that exists is read, whole or in shards
SETTINGS = ("*.json", "*.model", "*.txt")  # files of a hub's repository that are fetched besides weights
LARGEST = 1 << 20  # of a size, so that a file of a few bytes cannot ask for all memory
# what torch's reader also raises for a damaged pickle
DAMAGED = (AssertionError, AttributeError, IndexError, KeyError, TypeError, ValueError)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")

Tensors = Mapping[str, Any]  # by name: slices of safetensors, or tensors that are mapped to memory


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A directory with config.json, weights and tokenizer.

    source: what the user wrote, for messages.
    files: the files of the weights.
    """

    source: str
    directory: Path
    files: tuple[Path, ...]

    @classmethod
    def find(cls, source: str, root: Path) -> "Checkpoint":
        """Return the checkpoint in a directory, relative to `root`, or of that name on the hub, which is downloaded.

        Raises ValueError if there is none, or if a file is missing.
        """
        directory = root / Path(source).expanduser()
        if not directory.is_dir():
            directory = _downloaded(source, directory)
        checkpoint = cls(source=source, directory=directory, files=_weight_files(source, directory))
        checkpoint.json(CONFIG)
        return checkpoint

    def json(self, name: str, *, optional: bool = False) -> dict[str, Any]:
        """Return the content of a JSON file. Raises ValueError if it is missing (and not optional) or damaged."""
        path = self.directory / name
        if not path.is_file():
            if optional:
                return {}
            raise self.error(f"{name} is missing; copy it from where the checkpoint came from")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise self.error(f"{name} cannot be read: {error}") from error
        if not isinstance(content, dict):
            raise self.error(f"{name} is no JSON object")
        return content

    def error(self, problem: str) -> ValueError:
        return ValueError(f"FROM={self.source}: {problem}")

    @contextmanager
    def opened(self) -> Iterator[Tensors]:
        """Open the tensors of all files. Only what is read of a tensor takes memory, until the block ends.

        Raises ValueError for a file that holds anything but tensors by name.
        """
        tensors: dict[str, Any] = {}
        for file in self.files:
            opened = self._safetensors(file) if file.suffix == ".safetensors" else self._pickled(file)
            if twice := tensors.keys() & opened.keys():
                raise self.error(f"{file.name} has {min(twice)}, which another file of it has, too")
            tensors |= opened
        yield tensors
        tensors.clear()

    def _safetensors(self, file: Path) -> dict[str, Any]:
        try:
            opened: Any = safe_open(str(file), framework="pt")  # its annotations are incomplete
        except (SafetensorError, OSError) as error:
            raise self.error(f"{file.name} is no file of safetensors: {error}") from error
        return {name: opened.get_slice(name) for name in opened.keys()}  # noqa: SIM118 - it is not a mapping

    def _pickled(self, file: Path) -> dict[str, Tensor]:
        """Load only tensors: other contents of a pickle, which could run any program, are an error."""
        try:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(file))
        except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, *DAMAGED) as error:
            raise self.error(
                f"{file.name} is refused, because it is no file of weights alone: {_first_line(error)}"
            ) from error
        if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
            raise self.error(f"{file.name} is refused, because it holds other things than tensors by name")
        return content


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def read(tensors: Tensors, name: str) -> Tensor:
    """Return a tensor in float32. It may lie in the file, so it must not be changed."""
    part = tensors[name]
    return (part if isinstance(part, Tensor) else part[:]).to(torch.float32)


def shape_of(tensors: Tensors, name: str) -> tuple[int, ...]:
    """Return the shape of a tensor, which is not read."""
    part = tensors[name]
    return tuple(part.shape if isinstance(part, Tensor) else part.get_shape())


def _weight_files(source: str, directory: Path) -> tuple[Path, ...]:
    for name in WEIGHTS:
        if (directory / name).is_file():
            return (directory / name,)
        index = directory / f"{name}.index.json"
        if index.is_file():
            return _shards(source, index)
    names = ", ".join([*WEIGHTS, *(f"{name}.index.json" for name in WEIGHTS)])
    raise ValueError(f"FROM={source}: {directory} has no weights; it must have one of {names}")


def _shards(source: str, index: Path) -> tuple[Path, ...]:
    try:
        names = sorted({*json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()})
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"FROM={source}: {index.name} cannot be read: {error!r}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name:
            raise ValueError(f"FROM={source}: {index.name} names the shard {name!r}, which is no plain file name")
        if not (index.parent / name).is_file():
            raise ValueError(
                f"FROM={source}: {name}, which {index.name} names, is missing; copy all {len(names)} shards"
            )
    return tuple(index.parent / name for name in names)


def _downloaded(source: str, directory: Path) -> Path:
    """Fetch a repository of the hub into the cache of huggingface_hub, or find it there."""
    if not _HUB_NAME.fullmatch(source):
        raise ValueError(f"FROM={source}: {directory} is no directory, and no name on the Hugging Face hub")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
    from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the HTTP client that it uses

    try:
        for weights in (["*.safetensors"], ["*.bin"]):
            path = Path(snapshot_download(source, allow_patterns=[*SETTINGS, *weights]))
            if any(path.glob(weights[0])):
                break
    except (HfHubHTTPError, HFValidationError, LocalEntryNotFoundError, httpx.HTTPError) as error:
        raise ValueError(
            f"FROM={source} is no directory, and the Hugging Face hub does not give it: {_first_line(error)}; "
            "fetch it where there is a network (docs/import.md) and give its directory"
        ) from error
    return path
