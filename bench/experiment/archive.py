"""Compressed archives of the results of runs, for a report without the models and the text they were trained on.

A directory has three kinds of archive. `tests.tar.xz` has the test sets, which all runs share. The archive of a run
has its records, and its translations without their sources and references. That of bilingual models has theirs.
The same results give the same bytes.
"""

import io
import json
import lzma
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval.records.run_record import TEST_SETS, load_run
from eval.records.scores import BASELINE, SACREBLEU_METRICS
from eval.score.run import write_scores

TESTS = "tests"
ENDING = ".tar.xz"
RECORD = "run.json"
# files of a run that are kept as they are, if it has them
RECORDS = (RECORD, "metrics.jsonl", "routing.json", "specialisation.json")
TRANSLATIONS = "translations"
TEXTS = ("source", "reference")

Files = dict[str, bytes]  # by path within an archive


def keep_run(run: Path, archives: Path) -> Path:
    """Write the archive of a finished run without bilingual models, and its test sets. Returns its path.

    run: its directory, such as runs/mine. Challenge sets are left out.
    Raises ValueError if it has bilingual models, or as `_keep`.
    """
    files = {name: (run / name).read_bytes() for name in RECORDS if (run / name).is_file()}
    if RECORD not in files:
        raise ValueError(f"{run} has no {RECORD}; keep a finished run")
    if BASELINE in json.loads(files[RECORD])["systems"]:
        raise ValueError(f"{run} has bilingual models, which are kept by themselves; train it with baselines=none")
    for directory in (run, *sorted(path.parent for path in run.glob(f"{TEST_SETS}/*/scores.csv"))):
        place = directory.relative_to(run)
        files[str(place / RECORD)] = (directory / RECORD).read_bytes()
        for path in sorted(directory.glob(f"{TRANSLATIONS}/*/*.jsonl")):
            files[str(place / path.relative_to(directory))] = path.read_bytes()
    return _keep(run.resolve().name, files, archives)


def keep_baselines(
    name: str, translations: Mapping[str, Mapping[str, Path]], record: Mapping[str, Any], archives: Path
) -> Path:
    """Write the archive of bilingual models, and their test sets. Returns its path.

    translations: the files by test set and pair; "" are the test sets of the corpus.
    record: the fields of run.json that they have: config, train_pairs, and a ledger of each in systems.
    Raises ValueError as `_keep`.
    """
    files = {
        _of_baseline(f"{TEST_SETS}/{test_set}/" if test_set else "", pair): path.read_bytes()
        for test_set, by_pair in translations.items()
        for pair, path in by_pair.items()
    }
    return _keep(name, {RECORD: json.dumps(record, ensure_ascii=False, indent=1).encode(), **files}, archives)


def restore(archives: Path, out: Path, *, incomplete: bool = False) -> list[Path]:
    """Write a directory for each run below `out`, with the bilingual models of all archives. Returns the directories.

    They have what `eval.score.run.write_scores` reads.

    incomplete: allow pairs without a bilingual model.
    Raises ValueError if there are no runs, if a pair has no bilingual model or two, though others have one, if archives
        do not belong to one experiment, or if a directory is there already.
    """
    contents = {path.name.removesuffix(ENDING): read_archive(path) for path in sorted(archives.glob(f"*{ENDING}"))}
    tests = contents.pop(TESTS, {})
    records = {name: json.loads(files[RECORD]) for name, files in contents.items()}
    bilingual = {name for name, record in records.items() if BASELINE in record["systems"]}
    runs = [name for name in contents if name not in bilingual]
    if not runs:
        raise ValueError(f"{archives} has no archive of a run; keep one there first")
    baselines: Files = {}
    for name in sorted(bilingual):
        if twice := sorted(baselines.keys() & contents[name].keys() - {RECORD}):
            raise ValueError(f"{name}{ENDING} has {twice[0]}, as another archive has; remove one of them")
        baselines |= {path: content for path, content in contents[name].items() if path != RECORD}
    for name in runs:
        if (out / name).exists():
            raise ValueError(f"{out / name} exists; choose another directory, or remove it")
        if bilingual:
            of_models = [records[other] for other in sorted(bilingual)]
            contents[name] |= _with_baselines(name, contents[name], baselines, of_models, incomplete=incomplete)
    for name in runs:
        for place, content in contents[name].items():
            path = out / name / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(_joined(content, tests[_test(place)]) if _is_translated(place) else content)
    return [out / name for name in runs]


def score(run: Path) -> None:
    """Write the scores of a restored run, and of its further test sets, by sacreBLEU's metrics."""
    for directory in (run, *sorted(path.parent for path in run.glob(f"{TEST_SETS}/*/run.json"))):
        settings = load_run(directory).config["score"]
        metrics = [name for name in settings["metrics"] if name in SACREBLEU_METRICS]
        write_scores(directory, metrics=metrics, n_resamples=settings["resamples"])


def read_archive(path: Path) -> Files:
    """Return the files of an archive by their paths within the run. Raises OSError, tarfile.TarError."""
    with tarfile.open(path) as archive:
        opened = {member.name: archive.extractfile(member) for member in archive.getmembers()}
        return {name: file.read() for name, file in opened.items() if file is not None}


def _with_baselines(
    name: str, files: Files, baselines: Files, bilingual: Sequence[Mapping[str, Any]], *, incomplete: bool
) -> Files:
    """Return the files of a run that change with the bilingual models, and their translations.

    files: of the run without them.
    baselines: all translations of bilingual models.
    bilingual: the records of their archives.
    incomplete: as of `restore`.
    Raises ValueError as `restore`.
    """
    of_models: Files = {}
    for place in [path for path in files if path.rpartition("/")[2] == RECORD]:
        record, directory = json.loads(files[place]), place.removesuffix(RECORD)
        translated = {pair: _of_baseline(directory, pair) for pair in record["pairs"]}
        missing = [pair for pair, path in translated.items() if path not in baselines]
        if directory and len(missing) == len(translated):
            raise ValueError(
                f"{name}: no bilingual model has translated {Path(directory).name}; keep them with its score.test_sets"
            )
        if missing and not incomplete:
            raise ValueError(
                f"{name}: no archive has the bilingual models of {', '.join(missing)}; keep them too, or restore with "
                "--incomplete"
            )
        there = [pair for pair in translated if pair not in missing]
        _add_baselines(name, record, bilingual, there)
        of_models |= {translated[pair]: baselines[translated[pair]] for pair in there}
        of_models[place] = json.dumps(record, ensure_ascii=False, indent=1).encode()
    return of_models


def _add_baselines(
    name: str, record: dict[str, Any], bilingual: Sequence[Mapping[str, Any]], translated: Sequence[str]
) -> None:
    """Put the costs and settings of bilingual models into a record of a run, of its own or of a further test set.

    translated: the pairs of the test set whose bilingual models are there.
    Raises ValueError as `restore`.
    """
    record["config"]["baselines"] = bilingual[0]["config"]["baselines"]
    ledgers = {ledger["pair"]: ledger for models in bilingual for ledger in models["systems"][BASELINE]}
    for models in bilingual:
        shared_pairs = record["train_pairs"].keys() & models["train_pairs"].keys()
        for what, own, other in (
            ("train_pairs", *({pair: one["train_pairs"][pair] for pair in shared_pairs} for one in (record, models))),
            *((part, record["config"].get(part), models["config"].get(part)) for part in ("decode", "baselines")),
        ):
            if own != other:
                raise ValueError(f"{name}: its bilingual models have other {what}; train them with the same settings")
    pairs = sorted(record["train_pairs"], key=lambda pair: (-record["train_pairs"][pair], pair))
    record["systems"][BASELINE] = [ledgers[pair] for pair in pairs if pair in ledgers]
    if "test_set" in record or len(translated) < len(record["pairs"]):
        record.setdefault("translated", {})[BASELINE] = translated
    if "test_set" not in record:
        record["baseline_boundaries"] = bilingual[0]["baseline_boundaries"]


def _keep(name: str, files: Mapping[str, bytes], archives: Path) -> Path:
    """Write an archive, and add what is new of its test sets to the archive of these.

    Raises ValueError for a name that is taken, and for test sets that differ from those of other archives.
    """
    path, of_tests = archives / f"{name}{ENDING}", archives / f"{TESTS}{ENDING}"
    if name == TESTS or not name:
        raise ValueError(f"an archive cannot be called {name!r}; choose another name")
    tests = read_archive(of_tests) if of_tests.is_file() else {}
    kept, texts = {}, dict(tests)
    for place, content in files.items():
        kept[place] = content
        if _is_translated(place):
            lines = list(_lines(content))
            kept[place] = _jsonl({key: line[key] for key in line if key not in TEXTS} for line in lines)
            text = _jsonl({key: line[key] for key in TEXTS} for line in lines)
            if texts.setdefault(_test(place), text) != text:
                raise ValueError(f"{name}: {place} translates another test set than {of_tests.name} has; use its text")
    packed = _packed(kept)
    if path.is_file() and path.read_bytes() != packed:
        raise ValueError(f"{path} has other results; remove it, or keep these under another name")
    archives.mkdir(parents=True, exist_ok=True)
    if texts != tests:
        of_tests.write_bytes(_packed(texts))
    path.write_bytes(packed)
    return path


def _is_translated(path: str) -> bool:
    return path.endswith(".jsonl") and TRANSLATIONS in path.split("/")


def _test(path: str) -> str:
    """Return the path of the test set of translations: without the system."""
    before, _, after = path.rpartition(f"{TRANSLATIONS}/")
    return f"{before}{after.partition('/')[2]}"


def _of_baseline(directory: str, pair: str) -> str:
    """Return the path of the translations of a bilingual model. directory: of a test set, "" or with a slash."""
    return f"{directory}{TRANSLATIONS}/{BASELINE}/{pair}.jsonl"


def _joined(translations: bytes, texts: bytes) -> bytes:
    pairs = zip(_lines(texts), _lines(translations), strict=True)
    return _jsonl({**text, **translated} for text, translated in pairs)


def _jsonl(lines: Iterator[dict[str, Any]]) -> bytes:
    return "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines).encode()


def _lines(content: bytes) -> Iterator[dict[str, Any]]:
    return (json.loads(line) for line in content.decode().split("\n") if line)


def _packed(files: Mapping[str, bytes]) -> bytes:
    """Return an archive whose bytes follow from its files alone."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for name, content in sorted(files.items()):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return lzma.compress(buffer.getvalue(), preset=9 | lzma.PRESET_EXTREME)
