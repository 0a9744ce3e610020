"""Compressed archives of the results of runs, for a report without the models and the text they were trained on.

A directory has three kinds of archive. `tests.tar.xz` has the test sets, which all runs share. An archive of a run has
the files of `KEPT`, the translations without their sources and references, and of further test sets what `further.py`
keeps. An archive of bilingual models has their translations and their cost ledgers. Archives of the same results have
the same bytes.
"""

import hashlib
import io
import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.experiment.further import kept_files
from eval.records.scores import BASELINE, SYSTEM

TESTS = "tests"
ENDING = ".tar.xz"
RECORD, LEDGERS, DIGESTS = "run.json", "ledgers.json", "digests.json"
KEPT = (RECORD, "metrics.jsonl", "routing.json")
TEXTS = ("source", "reference")

Files = dict[str, bytes]  # by path within an archive


def keep_run(run: Path, directory: Path) -> Path:
    """Write the archive of a finished run, and that of its test sets if the directory has none. Returns the first.

    run: its directory, such as runs/mine.
    Raises ValueError if its test sets are not those of the other archives.
    """
    files = {name: (run / name).read_bytes() for name in KEPT if (run / name).is_file()}
    translations = {path.stem: path for path in (run / "translations" / SYSTEM).glob("*.jsonl")}
    files |= {**_translations(translations, SYSTEM, directory), **kept_files(run)}
    return _write(directory / f"{run.name}{ENDING}", files)


def keep_baselines(
    name: str, translations: Mapping[str, Path], ledgers: Sequence[Mapping[str, Any]], directory: Path
) -> Path:
    """Write an archive of bilingual models, and that of their test sets if the directory has none.

    translations: the files by pair. ledgers: what each cost, as run.json has it.
    Raises ValueError if the test sets are not those of the other archives.
    """
    files = {LEDGERS: _json(list(ledgers)), **_translations(translations, BASELINE, directory)}
    return _write(directory / f"{name}{ENDING}", files)


def restore(directory: Path, runs: Path) -> list[Path]:
    """Write the run directories of all archives, each with the bilingual models of all archives. Returns them.

    They have run.json and translations, which is what `eval.score.run.write_scores` reads.
    Raises ValueError for archives that do not belong together.
    """
    contents = {path.name.removesuffix(ENDING): _read(path) for path in sorted(directory.glob(f"*{ENDING}"))}
    tests = contents.pop(TESTS, {})
    baselines: Files = {}
    ledgers: list[Any] = []
    for name, files in contents.items():
        _check(name, files, tests)
        if LEDGERS in files:
            translated = {path: content for path, content in files.items() if path.endswith(".jsonl")}
            if twice := sorted(baselines.keys() & translated.keys()):
                raise ValueError(f"{name}{ENDING} has {', '.join(twice)}, as another archive has; remove one of them")
            baselines |= translated
            ledgers += json.loads(files[LEDGERS])
    restored = []
    for name, files in contents.items():
        if LEDGERS in files:
            continue
        record = json.loads(files[RECORD])
        record["systems"].pop(BASELINE, None)
        files_of_pairs = {f"translations/{BASELINE}/{pair}.jsonl" for pair in record["pairs"]}
        if files_of_pairs <= baselines.keys():
            files |= {path: baselines[path] for path in files_of_pairs}
            own = [ledger for ledger in ledgers if ledger["pair"] in record["pairs"]]
            record["systems"][BASELINE] = sorted(own, key=lambda ledger: -record["train_pairs"][ledger["pair"]])
        files[RECORD] = _json(record)
        for path, content in files.items():
            if path != DIGESTS:
                target = runs / name / path
                target.parent.mkdir(parents=True, exist_ok=True)
                is_translated = path.startswith("translations/")
                target.write_bytes(_joined(content, tests[target.name]) if is_translated else content)
        restored.append(runs / name)
    return restored


def _translations(paths: Mapping[str, Path], system: str, directory: Path) -> Files:
    """Return the translations without their texts, and the digests of these."""
    if not paths:
        raise ValueError(f"there are no translations of {system}; keep a finished run")
    files, texts = {}, {}
    for pair, path in sorted(paths.items()):
        lines = list(_lines(path.read_bytes()))
        texts[f"{pair}.jsonl"] = _jsonl({key: line[key] for key in TEXTS} for line in lines)
        without = ({key: value for key, value in line.items() if key not in TEXTS} for line in lines)
        files[f"translations/{system}/{pair}.jsonl"] = _jsonl(without)
    files[DIGESTS] = _json({name: _digest(content) for name, content in texts.items()})
    archive = directory / f"{TESTS}{ENDING}"
    earlier_texts = _read(archive) if archive.is_file() else {}
    _check(system, files, {**texts, **earlier_texts})
    if not texts.keys() <= earlier_texts.keys():
        _write(archive, {**texts, **earlier_texts})
    return files


def _check(name: str, files: Mapping[str, bytes], tests: Mapping[str, bytes]) -> None:
    for test, digest in json.loads(files[DIGESTS]).items():
        if test not in tests or _digest(tests[test]) != digest:
            raise ValueError(f"{name}: the test set of {test.removesuffix('.jsonl')} is not that of {TESTS}{ENDING}")


def _joined(translations: bytes, texts: bytes) -> bytes:
    pairs = zip(_lines(texts), _lines(translations), strict=True)
    return _jsonl({**text, **translated} for text, translated in pairs)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, indent=1).encode()


def _jsonl(lines: Iterator[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in content.decode().split("\n") if line)


def _read(path: Path) -> Files:
    with tarfile.open(path) as archive:
        opened = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read() for name, file in opened.items() if file is not None}


def _write(path: Path, files: Mapping[str, bytes]) -> Path:
    """Write an archive whose bytes follow from its files alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME))
    return path
