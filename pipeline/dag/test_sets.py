"""Scores of further test sets, of corpora that a run was not trained on: overlap, translate or pivot -> test_scores.

`make evaluate` and `score.test_sets` of a run share the first two. `test_rows.py` makes the rows. A challenge set has
scores of its own, from `eval.score.challenge`.
"""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from eval.records.scores import BASELINE, PIVOT, SYSTEM
from pipeline.config import RunConfig, set_values
from pipeline.corpus.languages import LangPair
from pipeline.dag.artifact import Artifact
from pipeline.dag.challenge import is_challenge, with_kinds
from pipeline.dag.overlap import find_overlap, read_overlap
from pipeline.dag.pivot import translate_by_pivot
from pipeline.dag.stage import RECORD_CLOCKS, Stage
from pipeline.dag.stages import translate
from pipeline.dag.store import Store
from pipeline.dag.system import alone, members_record
from pipeline.dag.test_rows import PairRows, further_showable
from pipeline.decode.config import DecodeConfig
from pipeline.earlier_runs import RECORD
from pipeline.files import write_atomically
from pipeline.jobs.runtime import RuntimeConfig

# Of run.json, the part that does not depend on the test set.
KEPT = ("name", "recipe", "commit", "created", "config", "environment", "languages", "train_pairs")

Translations = Mapping[str, Mapping[LangPair, Artifact]]  # the artifact with the translations of a pair, by system


def translate_tests(
    store: Store,
    record: Mapping[str, Any],
    rows: PairRows,
    *,
    decode: DecodeConfig,
    runtime: RuntimeConfig,
    pivots: Mapping[LangPair, str] | None = None,
    not_direct: Collection[LangPair] = (),
    ensemble: Sequence[Artifact] = (),
) -> Translations:
    """Translate a test set by all models of a run. A bilingual one runs on one process.

    record: the content of the run's run.json.
    pivots: the language of the middle step, for pairs that the multilingual model also translates in two steps.
    not_direct: pairs that it translates in two steps alone.
    ensemble: models that translate together with the multilingual one.
    """
    translations: dict[str, dict[LangPair, Artifact]] = {}
    for system, models in record["systems"].items():
        for ledger in models:
            model, vocabulary = (store.find(*ledger["artifacts"][name].split("/")) for name in ("model", "vocabulary"))
            own = {pair: rows[pair] for pair in rows if system == SYSTEM or ledger["pair"] in (None, pair.name)}
            settings, label, members = runtime, record["name"], ensemble
            if system == BASELINE:
                members = ()  # a bilingual model has a vocabulary of its own
                settings = alone(runtime)
                label = f"bilingual {ledger['pair']}"
            if one_step := {pair: of_pair for pair, of_pair in own.items() if pair not in not_direct}:
                stage = translate(
                    one_step, vocabulary, model, decode=decode, runtime=settings, label=label, ensemble=members
                )
                translations.setdefault(system, {}).update(dict.fromkeys(one_step, store.get(stage)))
            if system == SYSTEM and (two_steps := {pair: code for pair, code in (pivots or {}).items() if pair in own}):
                stage = translate_by_pivot(
                    {pair: own[pair] for pair in two_steps},
                    two_steps,
                    vocabulary,
                    model,
                    decode=decode,
                    runtime=settings,
                    label=label,
                    ensemble=members,
                )
                translations[PIVOT] = dict.fromkeys(two_steps, store.get(stage))
    return translations


def write_test_scores(
    out: Path,
    name: str,
    record: Mapping[str, Any],
    translations: Translations,
    *,
    metrics: Sequence[str],
    resamples: int,
    decode: DecodeConfig,
    ensemble: Sequence[Artifact] = (),
    commands: Mapping[str, str] | None = None,
    challenge: PairRows | None = None,
    overlap: Artifact | None = None,
    show: bool = False,
) -> None:
    """Write the translations of a test set, their scores, and a run.json that names the test set.

    What an earlier command has written stays until all is scored, because a metric's command can fail.

    record: as in `translate_tests`. The new record has `decode` in place of the settings of decoding of the run's own
        test sets, and the models that translated together with the multilingual one.
    challenge: the rows of a challenge set, which gets challenge.csv in place of the other scores.
    overlap: of the test set with the training text (`find_overlap`).
    show: whether the licence of the test set allows a report to show its sentences.
    """
    from eval.score.challenge import write_challenge
    from eval.score.run import write_scores

    pairs = list(dict.fromkeys(pair for by_pair in translations.values() for pair in by_pair))
    languages = {pair.name: {"source": pair.src, "target": pair.tgt} for pair in pairs}
    content = {
        **{key: record[key] for key in KEPT},
        "config": {**record["config"], "decode": asdict(decode, dict_factory=set_values)},
        **members_record(decode, ensemble),
        "languages": record["languages"] | languages,
        "train_pairs": dict.fromkeys(languages, 0) | record["train_pairs"],
        "systems": {system: record["systems"][SYSTEM if system == PIVOT else system] for system in translations},
        "translated": {system: [pair.name for pair in by_pair] for system, by_pair in translations.items()},
        "untrained": [pair for pair in languages if pair not in record["train_pairs"]],
        "pairs": list(languages),
        "test_set": name,
        "overlap": read_overlap(overlap),
        "sample_sentences": show and bool(record["config"].get("report", {}).get("show", True)),
    }
    out.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=out, prefix=".") as name_of_new:
        new = Path(name_of_new)
        for system, by_pair in translations.items():
            for pair, artifact in by_pair.items():
                path = new / "translations" / system / f"{pair.name}.jsonl"
                path.parent.mkdir(parents=True, exist_ok=True)
                text = (artifact.path / path.name).read_text(encoding="utf-8")
                write_atomically(path, text if challenge is None else with_kinds(text, challenge[pair]))
        write_atomically(new / RECORD, json.dumps(content, ensure_ascii=False, indent=1))
        if challenge is None:
            write_scores(new, metrics=metrics, commands=commands, n_resamples=resamples)
        else:
            write_challenge(new, n_resamples=resamples)
        _replace(out, new)


def _replace(out: Path, new: Path) -> None:
    """Move the new files into place. If that is cut short, no scores stand beside the record of others."""
    for scores in out.glob("*.csv"):
        scores.unlink()
    files = [path for path in new.rglob("*") if path.is_file()]
    for path in sorted(files, key=lambda path: path.suffix == ".csv"):
        place = out / path.relative_to(new)
        place.parent.mkdir(parents=True, exist_ok=True)
        path.replace(place)


def score_tests(
    config: RunConfig,
    store: Store,
    scores: Artifact,
    test_sets: Mapping[str, PairRows],
    ensemble: Sequence[Artifact] = (),
) -> dict[str, Artifact]:
    """Translate and score further test sets of a run. Return artifacts by test set.

    scores: of its own test sets.
    ensemble: as in `translate_tests`.
    """
    artifacts: dict[str, Artifact] = {}
    record: dict[str, Any] = json.loads((scores.path / RECORD).read_text(encoding="utf-8")) if test_sets else {}
    permitted = further_showable(config)
    for name, rows in test_sets.items():
        translations = translate_tests(
            store, record, rows, decode=config.decode, runtime=config.runtime, ensemble=ensemble
        )
        challenge = rows if is_challenge(rows) else None
        overlap = None
        if challenge is None:
            overlap = find_overlap(store, name, record, rows, config.runtime.data, ensemble)
        stage = _test_scores(
            config, name, record, scores, translations, ensemble, challenge, overlap, show=name in permitted
        )
        artifacts[name] = store.get(stage)
    return artifacts


def _test_scores(
    config: RunConfig,
    name: str,
    record: Mapping[str, Any],
    scores: Artifact,
    translations: Translations,
    ensemble: Sequence[Artifact],
    challenge: PairRows | None,
    overlap: Artifact | None,
    *,
    show: bool,
) -> Stage:
    """Declare the scores of a further test set, with its translations.

    challenge, overlap, show: as in `write_test_scores`.
    """
    metrics, resamples = config.score.metrics, config.score.resamples
    commands = config.score.commands.by_metric()
    write = partial(
        write_test_scores,
        metrics=metrics,
        resamples=resamples,
        decode=config.decode,
        ensemble=ensemble,
        commands=commands,
        overlap=overlap,
    )
    inputs = {f"{system} {pair}": a for system, by_pair in translations.items() for pair, a in by_pair.items()}
    inputs |= {f"rows {pair}": artifact for pair, artifact in (challenge or {}).items()}
    if overlap is not None:
        inputs["overlap"] = overlap
    return Stage(
        name="test_scores" if challenge is None else "challenge_scores",
        version=2 if challenge is None else 1,
        config={
            "test_set": name,
            "resamples": resamples,
            **({"metrics": metrics, "show": show} if challenge is None else {}),
            **({"commands": commands, **config.score.programs_key()} if commands and challenge is None else {}),
        },
        inputs={"scores": scores, **inputs},
        run=lambda out: write(out, name, record, translations, challenge=challenge, show=show),
        label=name,
        clocks=RECORD_CLOCKS,
    )
