"""`make distill` with the smoke run, and the commands of docs/distillation.md."""

import re
import shlex

import pyarrow.parquet as pq

from pipeline.commands.distill import load_distillation
from pipeline.config import ROOT, load_config
from pipeline.corpus.bitext import iter_bitext
from pipeline.corpus.config import CorpusConfig
from pipeline.dag.cleaning import clean, prepare_corpus
from pipeline.dag.store import Store
from pipeline.finished_run import FinishedRun
from pipeline.tasks import DataConfig
from tests.make import words_of
from tests.system.place import run
from tests.system.test_backtranslation import in_order, sentences
from tests.system.test_backtranslation_docs import TINY

TEXT = (ROOT / "docs" / "distillation.md").read_text(encoding="utf-8")
BLOCKS = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
COMMANDS = [*BLOCKS, *re.findall(r"`(make [a-z]+ [^`]*=[^`]*)`", TEXT)]


def test_real_sources_get_the_teachers_targets_and_its_test_set_stays(place, results, tmp_path):
    lines = [*sentences(12)[:5], "", *sentences(12)[5:]]
    (tmp_path / "mono.de").write_text("\n".join(lines) + "\n", encoding="utf-8")
    command = place.command("decode.beam=1", "runtime.processes=1", "runtime.ep=1", target="distill")
    text = [f"TEXT={tmp_path}/mono.de", "LICENCE=CC0-1.0", f"OUT={tmp_path}/corpus"]
    process = run([*command, "NAME=smoke", "LANG_PAIRS=de-en", *text], timeout=300)
    assert process.returncode == 0, process.stderr
    rows = pq.read_table(tmp_path / "corpus/train.de-en.parquet").to_pylist()
    lacking = in_order([row["de"] for row in rows], sentences(12))
    assert f"{12 - lacking} of 13 lines translated; left out: 1 empty" in process.stderr
    assert len({row["en"] for row in rows}) > 3
    store = Store(place.root / "artifacts")
    config = CorpusConfig(path=str(tmp_path / "corpus"))
    corpus = prepare_corpus(config, ["de-en"], Store(tmp_path), DataConfig())
    cleaned = clean(config, Store(tmp_path), corpus, corpus.pairs[0], DataConfig())
    finished = FinishedRun.open("smoke", runs=results.parent, store=store)
    taught = store.inputs(store.inputs(finished.model)["de-en"])["bitext"]
    for split in ("dev", "test"):
        sides = [[b.to_pydict() for b in iter_bitext(bitext.path, split)] for bitext in (cleaned, taught)]
        assert sides[0] == sides[1]


def test_the_commands_of_the_page_compose():
    settings = {}
    for command in (command for command in COMMANDS if command.startswith("make ")):
        target, words = words_of(command)
        if target == "train":
            config = load_config(words)
            settings[config.name] = config.corpus.path
        else:
            distillation = load_distillation(words)
    assert {name: (ROOT / path).resolve() for name, path in settings.items()} == {
        "export_moe": ROOT / "data/sample",
        "distillation": ROOT / distillation.out,
        "undistilled": ROOT / "data/sample",
    }
    assert distillation.run == "export_moe"
    student = load_config(["recipes=distillation"])
    assert (student.vocab.shared, student.model.moe.num_experts, student.baselines.tiers) == (True, 0, [])
    assert distillation.pairs == student.pairs


def test_settings_of_the_table_exist():
    words = words_of(next(command for command in COMMANDS if "distill " in command))[1]
    named = re.findall(r"`([a-z._]+=[^`]+)`", TEXT.split("\n| | |\n")[1].split("\n\n")[0])
    assert len(named) == 3
    for setting in named:
        load_distillation([*words, *setting.split()])


def test_the_commands_of_the_page_run(tmp_path):
    for command in BLOCKS:
        line = command.replace("corpora/", f"{tmp_path}/corpora/")
        settings = [f"runtime.artifacts={tmp_path}/artifacts", f"runtime.runs={tmp_path}/runs"]
        settings += TINY[:5] if line.startswith("make train") else [*TINY[2:4], "decode.max_length_extra=1"]
        if line.endswith("=distillation"):
            settings += [f"corpus.path={tmp_path}/corpora/distilled"]
        line += f" ARGS={shlex.quote(' '.join(map(shlex.quote, settings)))}"
        process = run(["bash", "-c", line], timeout=900)
        assert process.returncode == 0, process.stderr
    assert "distilled-export_moe" in (tmp_path / "runs/distillation/run.json").read_text()
