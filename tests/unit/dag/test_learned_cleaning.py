"""Learned cleaning as stages of a run: which models are made, what they score, and what the rest of a run gets."""

import csv
import gzip
import json
import re
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from bench.train.data import encoded_sample
from pipeline.config import load_config
from pipeline.corpus.bitext import SCHEMA, write_bitext
from pipeline.corpus.cleaning.halves import second_half
from pipeline.corpus.languages import LangPair
from pipeline.corpus.learned_config import DualCleaning
from pipeline.dag.artifact import Artifact
from pipeline.dag.learned_cleaning import cross_entropies, select, small_system, without_worst
from pipeline.dag.run import data_run
from pipeline.dag.store import Store
from pipeline.decode.job.jobs import NATS
from tests.corpora import bitext_rows, write_german

DE_EN, TR_EN = LangPair("de", "en"), LangPair("tr", "en")
ROWS = 240


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_german(tmp_path_factory.mktemp("corpus"), ROWS)


def config_of(root, corpus, learned):
    words = [f"corpus={corpus}", *(f"runtime.{name}={root / name}" for name in ("artifacts", "runs"))]
    return load_config(["recipes=smoke", *words, f"corpus.learned={learned}"])


def artifacts(root, stage):
    return sorted(path for path in (root / "artifacts" / stage).iterdir() if path.is_dir())


def test_scores_of_a_file_remove_the_rows_of_its_lines(tmp_path, corpus, caplog):
    """Dev and test are split off the file, but its lines stay those of the whole file."""
    lines = (corpus / "de-en.tsv").read_text(encoding="utf-8").splitlines()
    scores = [0.1 if "der" in line else 0.9 for line in lines]
    (tmp_path / "s.txt").write_text("".join(f"{score}\n" for score in scores))
    data_run(
        config_of(
            tmp_path,
            corpus,
            f"{{kind: scores, files: {{de-en: {tmp_path}/s.txt, fr-en: s}}, remove: 0, min_score: 0.5}}",
        )
    )
    (selected,), (cleaned,) = artifacts(tmp_path, "select"), artifacts(tmp_path, "clean")
    left = bitext_rows(selected, "train")
    assert left == [row for row in bitext_rows(cleaned, "train") if "der" not in "\t".join(row)]
    assert 0 < len(left) < len(bitext_rows(cleaned, "train"))
    assert "warning: corpus.learned.files names fr-en, but the pairs of this run are de-en" in caplog.messages


def test_few_rows_with_a_score_are_a_warning_in_each_run(tmp_path, corpus, caplog):
    """The scoring lowercased all texts but those of two rows."""
    lines = (corpus / "de-en.tsv").read_text(encoding="utf-8").splitlines()
    table = [f"0.5\t{line if number < 2 else line.lower()}" for number, line in enumerate(lines)]
    (tmp_path / "s.tsv").write_text("\n".join(table) + "\n", encoding="utf-8")
    columns = "column: 1, source_column: 2, target_column: 3, remove_of: {de-en: 0.5}"
    config = config_of(tmp_path, corpus, f"{{kind: scores, files: {{de-en: {tmp_path}/s.tsv}}, {columns}}}")
    for _ in range(2):
        caplog.clear()
        data_run(config)
        (warning,) = [message for message in caplog.messages if "have a score" in message]
        assert re.match(r"warning: pair de-en: only \d+ of 240 rows have a score in .*s.tsv, and the others", warning)


@pytest.mark.parametrize(
    ("learned", "message"),
    [
        ("{kind: scores, files: {de-en: /nowhere/s.txt}}", r"corpus.learned.files.de-en=/nowhere/s.txt is no file"),
        ("{kind: scores, files: {de-en: SHORT}}", r"s.txt has 3 scores, but the source has 240 rows of de-en"),
        ("{kind: scores, files: {de-en: SHORT}, source: web}", r"corpus.learned.source=web is no source of de-en; its"),
        (
            "{kind: dual, trusted: [web]}",
            r"corpus.learned.trusted=\['web'\] names no source of de-en, whose sources are",
        ),
    ],
)
def test_faults_show_before_the_rows_are_cleaned(tmp_path, corpus, learned, message):
    (tmp_path / "s.txt").write_text("1\n2\n3\n")
    with pytest.raises(ValueError, match=message):
        data_run(config_of(tmp_path, corpus, learned.replace("SHORT", str(tmp_path / "s.txt"))))
    assert not (tmp_path / "artifacts" / "clean").exists()


def test_too_small_a_vocabulary_names_the_setting_of_the_small_models(tmp_path, corpus):
    message = r"corpus.learned.vocab_size=20 alone; set that to what this asks of vocab: vocab.\w+_size=20 is too small"
    with pytest.raises(ValueError, match=message):
        data_run(config_of(tmp_path, corpus, "{kind: dual, vocab_size: 20}"))
    assert not (tmp_path / "artifacts" / "train").exists()


def test_samples_of_benchmarks_lack_the_worst_rows_too(tmp_path, corpus):
    (tmp_path / "s.txt").write_text("0.5\n" * ROWS)
    config = config_of(tmp_path, corpus, f"{{kind: scores, files: {{de-en: {tmp_path}/s.txt}}, remove: 0.5}}")
    _, cleaned = encoded_sample(config, config.batch, config.model)
    assert [artifact.stage for artifact in cleaned.values()] == ["select"]


class MadeUp(Store):
    """A store that makes nothing, and notes the stages of which artifacts were asked for."""

    def __init__(self, root):
        super().__init__(root)
        self.stages = []
        sizes = {"source_size": 512, "target_size": 256, "shared": False}
        (root / "vocab.json").write_text(json.dumps(sizes), encoding="utf-8")

    def get(self, stage):
        self.stages.append(stage)
        return Artifact(stage=stage.name, key=stage.key(), path=self.root, content=stage.key())


@pytest.fixture
def cleaned(tmp_path):
    """Two pairs with records of their cleaning alone."""
    artifacts = {}
    for pair in (DE_EN, TR_EN):
        path = tmp_path / pair.name
        path.mkdir()
        (path / "funnel.json").write_text(json.dumps({"pair": pair.name, "train": {"kept": 50}}))
        artifacts[pair] = Artifact(stage="clean", key=pair.name, path=path, content=pair.name)
    return artifacts


def test_a_pair_whose_share_is_zero_stays_as_it_is(tmp_path, cleaned, caplog):
    config = load_config(["corpus.learned={kind: dual, remove_of: {tr-en: 0}}"])
    store = MadeUp(tmp_path)
    selected = without_worst(config, store, cleaned, {})
    assert list(selected) == [DE_EN, TR_EN]
    assert (selected[DE_EN].stage, selected[TR_EN]) == ("select", cleaned[TR_EN])
    labels = [f"dual {pair} {half}" for pair in ("de-en", "en-de") for half in (1, 2)]
    for name in ("half", "vocab", "encode", "train", "cross_entropy"):
        assert sorted({stage.label for stage in store.stages if stage.name == name}) == labels, name
    first = next(number for number, stage in enumerate(store.stages) if stage.name == "train")
    encoded = {stage.label for stage in store.stages[:first] if stage.name == "encode"}
    assert sorted(encoded) == labels, "workers that encode end before a training, which needs their memory"
    assert "pair de-en: the small models of corpus.learned learn little of 50 rows" in caplog.messages


def test_each_row_has_the_cross_entropies_of_the_models_of_the_other_half(tmp_path, cleaned):
    """The made-up cross-entropy of a row is its number, backward ten more."""
    path, is_second = cleaned[DE_EN].path, second_half(50, 3)
    rows = [pa.array([f"{side}{row}" for row in range(50)]) for side in "st"]
    for split in ("train", "dev", "test"):
        write_bitext(path / f"{split}.arrow", [pa.RecordBatch.from_arrays(rows, schema=SCHEMA)])
    train = {"kept": 50, "removed": {}}
    content = {"pair": "de-en", "train": train, "examples": {}, "sources": [{"kept": 50, "examples": {}}]}
    (path / "funnel.json").write_text(json.dumps(content))
    nats = []
    for added in (0, 10):
        for scored in (is_second, ~is_second):  # by the model of the first half, then by that of the second
            directory = tmp_path / f"nats{len(nats)}"
            directory.mkdir()
            np.save(directory / NATS, np.flatnonzero(scored) + float(added))
            nats.append(Artifact(stage="cross_entropy", key=directory.name, path=directory, content=directory.name))
    out = tmp_path / "out"
    out.mkdir()
    select(DE_EN, cleaned[DE_EN], nats, DualCleaning(seed=3), False).run(out)
    with gzip.open(out / "scores.tsv.gz", "rt") as file:
        table = list(csv.DictReader(file, delimiter="\t"))
    assert [float(row["forward"]) for row in table] == list(range(50))
    assert [float(row["backward"]) for row in table] == [row + 10 for row in range(50)]
    removed = np.array([row["removed"] == "1" for row in table])
    assert removed.sum() == 5
    for half in (is_second, ~is_second):
        of_half = removed[half]
        assert of_half.sum() == pytest.approx(0.1 * half.sum(), abs=1)
        assert of_half[-of_half.sum() :].all(), "the least likely rows of each half go"


def test_without_learned_cleaning_nothing_is_made(tmp_path, cleaned):
    store = MadeUp(tmp_path)
    assert without_worst(load_config([]), store, cleaned, {}) == cleaned
    assert store.stages == []


def test_the_small_models_do_not_follow_the_main_model(tmp_path, cleaned):
    """Settings of the run's own model do not train them again; their own settings and the rows do."""
    keys = {}
    base = DualCleaning()
    for name, settings, words in (
        ("base", base, []),
        ("same", replace(base, remove=0.3), ["model.dim=64", "vocab.source_size=3000", "train.learning_rate=0.1"]),
        ("seed", replace(base, seed=2), []),
        ("size", replace(base, dim=64), []),
        ("trusted", replace(base, trusted=["web"]), []),
    ):
        runtime = load_config(["recipes=smoke", *words]).runtime
        nats = cross_entropies(settings, runtime, MadeUp(tmp_path), {DE_EN: cleaned[DE_EN]})[DE_EN]
        keys[name] = tuple(artifact.key for artifact in nats)
        assert len(set(keys[name])) == 4
    assert keys["base"] == keys["same"]
    assert len(set(keys.values())) == 4
    stages = [select(DE_EN, cleaned[DE_EN], nats, replace(base, remove=share), False) for share in (0.1, 0.2)]
    assert stages[0].key() != stages[1].key()


def test_a_small_model_takes_one_process():
    runtime = replace(load_config([]).runtime, processes=4, ep=4)
    system = small_system(DE_EN, 0, DualCleaning(), runtime)
    assert (system.runtime.processes, system.runtime.ep, system.layout) == (1, 1, {})
