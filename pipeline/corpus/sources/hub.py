"""Local copies of the files of a hub's data set that an entry needs."""

import hashlib
import json
import logging
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from huggingface_hub import HfApi, constants, hf_hub_download
from huggingface_hub.errors import (
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.utils import httpx  # type: ignore[attr-defined]  # the HTTP client that it uses

from pipeline.corpus.formats import check_entry
from pipeline.corpus.manifest import FileEntry
from pipeline.corpus.sources.cards import CARD, Card, read_card
from pipeline.corpus.sources.copies import PARTS, copied_files, needed_files
from pipeline.corpus.sources.download import Patience
from pipeline.files import write_atomically

_Result = TypeVar("_Result")

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class DataFiles:
    """The files of an entry's configuration and part.

    files: local paths, or names in the data set if they are streamed.
    commit: commit of the hub's data set, empty for a copy from the user.
    """

    files: tuple[str, ...]
    card: Card
    commit: str = ""
    streamed: bool = False


def data_files(entry: FileEntry, files: Path, cache: Path, *, patience: Patience | None = None) -> DataFiles:
    """Fetch the files of an entry, which `needed_files` chooses from its data set.

    The data set is the directory of that name below `files`, or else the hub's. Files of a hub are kept below `cache`
    for later calls, which need no network. For an entry with `streaming`, only the card is fetched.
    Raises ValueError if the data set, its revision, configuration or part does not exist, needs a login, or if the hub
    does not answer.
    """
    check_entry(entry)
    copied = copied_files(entry, files)
    if copied is not None:
        return DataFiles(files=tuple(map(str, copied)), card=read_card(files / entry.dataset))
    keep_below(cache)
    return _HubCopy(entry, files, cache, patience or Patience(attempts=4)).get()


def local_paths(
    entry: FileEntry, data_set: DataFiles, files: Path, cache: Path, *, patience: Patience | None = None
) -> Iterator[Path]:
    """Yield the paths of the files that `data_files` returned. A streamed file exists until the next one is taken.

    Raises ValueError if the hub does not give a file.
    """
    if not data_set.streamed:
        yield from map(Path, data_set.files)
        return
    cache.mkdir(parents=True, exist_ok=True)
    copy = _HubCopy(entry, files, cache, patience or Patience(attempts=4))
    for name in data_set.files:
        with tempfile.TemporaryDirectory(dir=cache, prefix="streaming-") as directory:
            yield copy.borrow(name, data_set.commit, Path(directory))


def keep_below(cache: Path) -> None:
    """Make the hub's libraries write below `cache`, unless the user has set another place."""
    if "HF_HOME" not in os.environ:
        os.environ.setdefault("HF_XET_CACHE", str(cache / "hub" / "xet"))
        if "HF_HUB_CACHE" not in os.environ:
            constants.HF_HUB_CACHE = str(cache / "hub")  # the library reads it at every call


class _HubCopy:
    """The copy of an entry's files from the hub that HF_ENDPOINT names, or the usual one.

    place: directory for a copy from the user.
    hub: cache of the hub's library.
    record: file that is written once all files are in the cache.
    """

    def __init__(self, entry: FileEntry, files: Path, cache: Path, patience: Patience) -> None:
        self.entry, self.patience = entry, patience
        self.place = files / entry.dataset
        self.endpoint = os.environ.get("HF_ENDPOINT", constants.ENDPOINT)
        self.hub = Path(constants.HF_HUB_CACHE)
        request = [entry.dataset, entry.revision, entry.config, entry.part or PARTS[entry.split], entry.streaming]
        key = hashlib.sha256(json.dumps(request).encode()).hexdigest()[:16]
        self.record = cache / "hub" / f"{key}.json"

    def get(self) -> DataFiles:
        """Fetch the files, or return those of an earlier call if there is no network."""
        if constants.is_offline_mode():
            recorded = self._recorded()
            if recorded is None:
                raise ValueError(f"data set {self.entry.dataset}: HF_HUB_OFFLINE is set; {self._advice()}")
            return recorded
        try:
            return self._fetch()
        except _SilentError as error:
            recorded = self._recorded()
            if recorded is None:
                raise ValueError(
                    f"data set {self.entry.dataset}: the hub at {self.endpoint} does not answer ({error}, tried "
                    f"{self.patience.attempts} times); {self._advice()}"
                ) from error
            _log.warning("%s does not answer (%s); taking its commit %s", self.endpoint, error, recorded.commit)
            return recorded

    def borrow(self, name: str, commit: str, directory: Path) -> Path:
        """Fetch a file of the hub to a directory, and return its path."""
        try:
            return self._download(name, commit, directory)
        except _SilentError as error:
            raise ValueError(
                f"{name}: the hub at {self.endpoint} does not answer ({error}, tried {self.patience.attempts} times); "
                "try again, or take streaming out, to keep a copy"
            ) from error

    def _fetch(self) -> DataFiles:
        api = HfApi(endpoint=self.endpoint)
        info = self._ask(
            lambda: api.dataset_info(
                self.entry.dataset, revision=self.entry.revision or None, timeout=self.patience.timeout
            )
        )
        commit, names = info.sha, [sibling.rfilename for sibling in info.siblings or []]
        assert commit is not None
        script = f"{self.entry.dataset.rpartition('/')[2]}.py"
        if script in names:
            raise ValueError(
                f"data set {self.entry.dataset} is made by a program, {script}, which is not run here; the hub's own "
                "conversion may be there, as revision: refs/convert/parquet, or choose another data set"
            )
        directory = self.hub / f"datasets--{self.entry.dataset.replace('/', '--')}" / "snapshots" / commit
        card = Card()
        if CARD in names:
            self._download(CARD, commit, self.hub)
            card = read_card(directory)
        needed = needed_files(self.entry, card, names)
        if self.entry.streaming:
            return DataFiles(files=tuple(needed), card=card, commit=commit, streamed=True)
        _log.info("data set %s at commit %s: %d files", self.entry.dataset, commit, len(needed))
        for name in needed:
            self._download(name, commit, self.hub)
        content = {"directory": str(directory), "commit": commit, "files": needed}
        self.record.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(self.record, json.dumps(content))
        return DataFiles(files=tuple(str(directory / name) for name in needed), card=card, commit=commit)

    def _download(self, name: str, commit: str, place: Path) -> Path:
        path = self._ask(
            lambda: hf_hub_download(
                self.entry.dataset,
                name,
                repo_type="dataset",
                revision=commit,
                cache_dir=place,
                endpoint=self.endpoint,
                etag_timeout=self.patience.timeout,
            )
        )
        return Path(path)

    def _recorded(self) -> DataFiles | None:
        """Return the files that an earlier call has fetched completely, None without them."""
        if not self.record.is_file():
            return None
        content = json.loads(self.record.read_text(encoding="utf-8"))
        directory = Path(content["directory"])
        paths = tuple(str(directory / name) for name in content["files"])
        if not all(Path(path).exists() for path in paths):
            return None
        return DataFiles(files=paths, card=read_card(directory), commit=content["commit"])

    def _ask(self, action: Callable[[], _Result]) -> _Result:
        """Return the result of a request, repeated if it fails. Raises _SilentError, or ValueError for a refusal."""
        dataset, failures = self.entry.dataset, 0
        while True:
            try:
                return action()
            except GatedRepoError as error:
                raise ValueError(
                    f"data set {dataset} needs a login: ask for access on its page, then `hf auth login` (or HF_TOKEN)"
                ) from error
            except RevisionNotFoundError as error:
                raise ValueError(f"data set {dataset} has no revision {self.entry.revision!r}; correct it") from error
            except RepositoryNotFoundError as error:
                raise ValueError(
                    f"data set {dataset} is not on the hub at {self.endpoint}, or needs a login (`hf auth login`); "
                    f"correct the name, or put a copy at {self.place}"
                ) from error
            except (HfHubHTTPError, httpx.HTTPError, LocalEntryNotFoundError, OSError) as error:
                status = getattr(getattr(error, "response", None), "status_code", 0)
                if 400 <= status < 500 and status not in (408, 429):
                    raise ValueError(f"data set {dataset}: the hub answers {status} ({error})") from error
                failures += 1
                reason = str(error.__cause__ or error).splitlines()[0]
                if isinstance(error, OfflineModeIsEnabled) or failures >= self.patience.attempts:
                    raise _SilentError(reason) from error
                _log.warning("data set %s: %s; trying again", dataset, reason)
                self.patience.wait(failures)

    def _advice(self) -> str:
        revision = f" --revision {self.entry.revision}" if self.entry.revision else ""
        return (
            f"where there is a network, `hf download {self.entry.dataset} --repo-type dataset{revision} --local-dir "
            f"DIR`, and put DIR at {self.place}"
        )


class _SilentError(Exception):
    """An error for a hub that does not answer."""
