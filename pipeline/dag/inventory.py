"""Which artifacts of a store each run uses, directly or as an input of another one, and what only some runs need."""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pipeline.dag.artifact import read_manifest
from pipeline.dag.run_directory import ORIGIN
from pipeline.dag.status import STATUS
from pipeline.dag.uses import ARTIFACT, read_records
from pipeline.earlier_runs import RECORD

_PLACE = re.compile(r"(?P<key>[0-9a-f]{16})(?:\.partial)?")


class Inventory:
    """The artifacts below one directory and the runs that use them.

    inputs: names (`stage/key`) of the inputs of every artifact; empty for one that is partial or damaged.
    uses: all artifacts that a run needs, by the directory of the run.
    """

    def __init__(self, artifacts: Path, runs: Path) -> None:
        self.root = artifacts
        self._places = _places(artifacts)
        self.inputs = {name: self._inputs(name, places) for name, places in self._places.items()}
        records = dict(read_records(artifacts))
        self.uses = {
            directory: self._with_inputs({*records.get(directory, ()), *self._named_by(directory)})
            for directory in sorted({*records, *run_directories(runs)})
        }

    def places(self, artifacts: Iterable[str]) -> Iterator[Path]:
        """Yield the directories of artifacts, published ones and partial ones."""
        for name in artifacts:
            yield from self._places[name]

    def freed_with(self, runs: Collection[Path]) -> list[str]:
        """Return the artifacts that only these runs need, each one before its inputs.

        Artifacts that were made from these and that no run needs, such as translations of `make prune`, are among them.
        """
        kept = {name for run, names in self.uses.items() if run not in runs for name in names}
        freed = {name for run in runs for name in self.uses.get(run, ())} - kept
        grown = True
        while grown:
            derived = {name for name, inputs in self.inputs.items() if inputs & freed} - freed - kept
            freed |= derived
            grown = bool(derived)
        return self._outputs_first(freed)

    def unused(self) -> list[str]:
        """Return the artifacts that no run needs, each one before its inputs."""
        return self._outputs_first(self.inputs.keys() - {name for names in self.uses.values() for name in names})

    def without_inputs_of(self, artifacts: Sequence[str], kept: Iterable[str]) -> list[str]:
        """Return `artifacts` without those that are kept, and without the inputs of those."""
        needed = self._with_inputs(kept)
        return [name for name in artifacts if name not in needed]

    def _outputs_first(self, names: Collection[str]) -> list[str]:
        """Order artifacts so that each one comes before its inputs."""
        ordered: dict[str, None] = {}
        left = set(names)
        while left:
            needed = {name for other in left for name in self.inputs[other]}
            ready = sorted(left - needed) or sorted(left)  # no artifact is an input of itself, but a file may be forged
            ordered.update(dict.fromkeys(ready))
            left -= set(ready)
        return list(ordered)

    def _with_inputs(self, names: Iterable[str]) -> set[str]:
        """Return the artifacts of these names that exist, and all of their inputs."""
        needed: set[str] = set()
        todo = [name for name in names if name in self._places]
        while todo:
            name = todo.pop()
            if name not in needed:
                needed.add(name)
                todo += self.inputs[name]
        return needed

    def _inputs(self, name: str, places: Iterable[Path]) -> set[str]:
        inputs: set[str] = set()
        for place in places:
            inputs |= {origin for origin in _initial_weights(place, self.root) if origin in self._places}
            if place.suffix == ".partial":
                continue
            try:
                entries = read_manifest(place)["inputs"].values()
            except ValueError:  # it is damaged, and must be made again before anybody can use it
                continue
            inputs |= {f"{entry['stage']}/{entry['key']}" for entry in entries} & self._places.keys()
        return inputs - {name}

    def _named_by(self, directory: Path) -> Iterator[str]:
        """Yield the artifacts that the files of a run name. Runs of versions before 0.3 have no other record."""
        if (origin := directory / ORIGIN).exists():
            yield f"report/{origin.read_text(encoding='utf-8').partition(chr(10))[0]}"
        if (status := directory / STATUS).exists():
            for stage in json.loads(status.read_text(encoding="utf-8"))["stages"]:
                yield _name_of(Path(stage["directory"]))


def run_directories(runs: Path) -> list[Path]:
    """Return the directories of runs below `runs`: its own, and those of its sweeps."""
    files = [file for name in (STATUS, RECORD) for depth in ("*", "*/*") for file in runs.glob(f"{depth}/{name}")]
    return sorted({file.parent for file in files if not file.parent.name.startswith(".")})


def changed_at(directory: Path) -> float:
    """Return when a command last wrote about a run, in seconds since 1970; 0 for a deleted one."""
    files = [directory / name for name in (STATUS, RECORD)]
    return max((file.stat().st_mtime for file in files if file.exists()), default=0.0)


def newest(directories: Iterable[Path]) -> Path | None:
    """Return the run that changed last; None without any run."""
    return max(directories, key=changed_at, default=None)


def size_of(paths: Iterable[Path]) -> int:
    """Return the bytes of files, and of all files in directories."""
    total = 0
    for path in paths:
        if path.is_dir() and not path.is_symlink():
            total += size_of(path.iterdir())
        else:
            total += path.lstat().st_size
    return total


def _places(root: Path) -> dict[str, list[Path]]:
    places: dict[str, list[Path]] = {}
    for path in sorted(root.glob("*/*")):
        if (match := _PLACE.fullmatch(path.name)) and path.is_dir() and not path.parent.name.startswith("."):
            places.setdefault(f"{path.parent.name}/{match['key']}", []).append(path)
    return places


def _name_of(directory: Path) -> str:
    return f"{directory.parent.name}/{directory.name}"


def _initial_weights(place: Path, root: Path) -> Iterator[str]:
    """Yield the artifact from whose weights a training began, which its manifest does not have as an input."""
    job = place / "log" / "job.json"
    if not job.is_file():
        return
    values: Any = json.loads(job.read_text(encoding="utf-8"))
    if origin := (values.get("train") or {}).get("initialize_from"):
        path, store = Path(origin).resolve(), root.resolve()
        if path.is_relative_to(store):
            name = "/".join(path.relative_to(store).parts[:2])
            if ARTIFACT.fullmatch(name):
                yield name
