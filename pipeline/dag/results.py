"""The stages that show what a run did: its data, its scores and its report, as files that `eval` reads and draws."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval.records.run_record import TEST_SETS
from eval.records.specialisation import SPECIALISATION, choose_quotes
from pipeline.config import RunConfig
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import MANIFEST, Artifact
from pipeline.dag.baseline_search import SearchResult
from pipeline.dag.corpus import Corpus, train_rows
from pipeline.dag.run_record import data_record, run_record
from pipeline.dag.system import Trained
from pipeline.dag.work import ROUTING

PairArtifacts = Mapping[LangPair, Artifact]


def write_data(
    config: RunConfig,
    corpus: Corpus,
    cleaned: PairArtifacts,
    encoded: PairArtifacts,
    settings: Mapping[str, Any],
    out: Path,
) -> None:
    """Write data.json and the page that shows it. settings: the part of the configuration that the page shows."""
    from eval.report.data_page import write_data

    _write_json(out / "data.json", {**data_record(config, corpus, cleaned, encoded), "config": dict(settings)})
    write_data(out)


def write_scores(
    config: RunConfig,
    corpus: Corpus,
    cleaned: PairArtifacts,
    encoded: PairArtifacts,
    systems: Mapping[str, Sequence[Trained]],
    before: PairArtifacts,
    search: SearchResult | None,
    out: Path,
) -> None:
    """Write run.json, the translations, and the tables of scores and faults of `eval.score.run.write_scores`.

    search: its trials are written to search.csv.
    before: translations by the model that the main one started from; with them, forgetting.csv is written too.
    """
    from eval.records.scores import INITIAL
    from eval.score.run import write_scores

    record = run_record(config, corpus, cleaned, encoded, systems)
    if search is not None:
        rows = train_rows(cleaned)
        record["baseline_search"] = search.to_json()
        record["baseline_boundaries"] = sorted({*record["baseline_boundaries"], *search.boundaries(rows)})
        search.save(out / "search.csv", rows)
    _write_json(out / "run.json", record)
    for name, models in systems.items():
        directory = out / "translations" / name
        directory.mkdir(parents=True)
        for trained in models:
            for pair in trained.system.pairs:
                file = f"{pair.name}.jsonl"
                (directory / file).write_bytes((trained.translations.path / file).read_bytes())
    for pair, translations in before.items():
        target = out / "translations" / INITIAL / f"{pair.name}.jsonl"
        target.parent.mkdir(exist_ok=True)
        target.write_bytes((translations.path / target.name).read_bytes())
    score = config.score
    write_scores(out, metrics=score.metrics, commands=asdict(score.commands), n_resamples=score.resamples)


def write_report(
    name: str,
    scores: Artifact,
    model: Artifact,
    routing: Artifact | None,
    quoted: Sequence[str],
    tests: Mapping[str, Artifact],
    out: Path,
) -> None:
    """Write report.html of the run `name`, beside copies of all files that it shows.

    quoted: pairs whose development sentences may be quoted.
    tests: scores of further test sets, by name.
    """
    from eval.records.results import load_results
    from eval.report.page import write_report

    copies = {out: scores, **{out / TEST_SETS / test_set: artifact for test_set, artifact in tests.items()}}
    for directory, artifact in copies.items():
        for source in sorted(path for path in artifact.path.rglob("*") if path.is_file() and path.name != MANIFEST):
            target = directory / source.relative_to(artifact.path)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(source.read_bytes())
    (out / "metrics.jsonl").write_bytes((model.path / "log" / "metrics.jsonl").read_bytes())
    if routing is not None:
        (out / ROUTING).write_bytes((routing.path / ROUTING).read_bytes())
        _write_json(out / SPECIALISATION, _quoting(routing.path / SPECIALISATION, quoted))
    write_report(out, load_results([(name, out)]))


def _quoting(path: Path, pairs: Sequence[str]) -> dict[str, Any]:
    """Return the content of specialisation.json with quotes of these pairs alone, as many as a report shows."""
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for layer in content["layers"].values():
        for expert in layer["experts"]:
            expert["quotes"] = choose_quotes([quote for quote in expert["quotes"] if quote["pair"] in pairs])
    return content


def _write_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, ensure_ascii=False, indent=1), encoding="utf-8")
