"""docs/benchmarks.md and its recipes: what they say of other people's experiments, and that their commands are read."""

import csv
import re
from dataclasses import replace

import pytest

from bench.quality.systems import MINUTES, RECIPE, SYSTEMS, entries
from pipeline.commands.evaluate import load_evaluation
from pipeline.config import ROOT, load_config
from pipeline.corpus.config import Rules
from pipeline.corpus.manifest import read_manifest
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
EVALUATIONS = re.findall(r"^make evaluate .*$", TEXT, re.MULTILINE)
TRAININGS = [line.split("  #")[0] for line in re.findall(r"^make train .*$", TEXT, re.MULTILINE)]


@pytest.mark.parametrize("command", TRAININGS)
def test_the_commands_of_the_page_are_read(command):
    config = load_config(overrides_of("train", command))
    assert config.corpus.path.startswith("path/to/")
    assert config.corpus.add == (["path/to/freesoft38"] if "transfer" in command else [])


@pytest.mark.parametrize("command", EVALUATIONS)
def test_further_test_sets_are_found(command):
    config = load_evaluation(overrides_of("evaluate", command))
    assert config.run in command
    manifest = read_manifest(ROOT, ROOT / config.corpus.manifest)
    assert {entry.split for entry in manifest.files} == {"test"}
    further = {"test_2017_flickr", "test_2017_mscoco", "test_2018_flickr"}
    assert manifest.sources == ({"ntrex"} if "CORPUS=ntrex" in command else further)


def test_experts_cost_what_the_dense_layer_costs():
    dense, moe = (load_config([f"recipes=multi30k/{name}"]) for name in ("multilingual", "multilingual_moe"))
    assert 2 * moe.model.moe.expert_dim == dense.model.ffn_dim
    assert (moe.train, moe.batch, moe.vocab, moe.baselines) == (dense.train, dense.batch, dense.vocab, dense.baselines)
    tier, tiny = dense.baselines.tier(29_000), load_config(["recipes=multi30k/tiny_en_de"])
    assert replace(tier.model, moe=tiny.model.moe) == tiny.model


def test_transfer_trains_the_same_pairs_and_more():
    own, transfer = (load_config([f"recipes=mafand/{name}"]) for name in ("multilingual", "transfer"))
    assert transfer.pairs[: len(own.pairs)] == own.pairs
    groups = transfer.batch.mixture.groups
    assert [name for name, group in groups.items() if group.share] == ["african", "transfer"]
    covered = [pair for pair in own.pairs if pair in groups["african"].pairs or pair.startswith("en-")]
    assert covered == own.pairs


@pytest.mark.parametrize("recipe", ["tiny_en_de", "tiny_en_fr"])
def test_transformer_tiny_is_that_of_the_papers_repository(recipe):
    """README-baseline.md of LividWo/Revisit-MMT, and the defaults of its fairseq."""
    config = load_config([f"recipes=multi30k/{recipe}"])
    model, train = config.model, config.train
    assert config.pairs == [recipe.removeprefix("tiny_").replace("_", "-")]
    assert (model.dim, model.ffn_dim, model.heads) == (128, 256, 4)
    assert (model.encoder_layers, model.decoder_layers, model.dropout) == (4, 4, 0.3)
    assert (config.vocab.shared, config.vocab.source_size) == (True, 10_000)
    assert (train.learning_rate, train.warmup_steps, train.max_steps, train.patience) == (0.005, 2000, 8000, 10)
    assert (train.beta1, train.beta2, train.epsilon, train.weight_decay) == (0.9, 0.98, 1e-8, 0)
    assert (train.label_smoothing, train.clip_norm, train.schedule.kind) == (0.1, 25, "inverse_square_root")
    assert (config.decode.beam, config.decode.length_norm, config.decode.length_penalty) == (5, "power", 1)
    assert (config.decode.average, config.decode.average_of) == (10, "last")
    assert not config.baselines.tiers


def test_every_row_is_trained_on_and_tokens_are_scored():
    config = load_config(["recipes=multi30k/tiny_en_de"])
    assert config.corpus.rules == Rules(**dict.fromkeys(Rules.__dataclass_fields__))
    assert "bleu_tok" in config.score.metrics


def test_a_step_has_the_tokens_of_two_gpus():
    batch = load_config(["recipes=multi30k/tiny_en_de"]).batch
    tokens = {shape.rows * shape.source * batch.groups_per_step for shape in batch.shapes}
    assert tokens == {7680}
    assert "7,680 tokens" in TEXT


@pytest.mark.parametrize(("preset", "ending"), [("multi30k", "en.gz"), ("multi30k-tok", "lc.norm.tok.en")])
def test_the_manifests_name_all_splits_of_three_pairs(preset, ending):
    manifest = read_manifest(ROOT, ROOT / "data" / preset / "manifest.yaml")
    entries = {(entry.split, entry.pair.name): entry for entry in manifest.files}
    assert set(entries) == {(split, f"en-{code}") for split in ("train", "dev", "test") for code in ("de", "fr", "cs")}
    assert all(entry.paths[0].endswith(ending) and len(entry.sha256) == 2 for entry in manifest.files)


def test_the_contest_is_described_as_its_file_has_it():
    with (ROOT / "bench" / "results" / "quality-amd-epyc.csv").open(encoding="utf-8") as stream:
        rows = {(row["system"], row["configuration"], row["minutes"]): row for row in csv.DictReader(stream)}
    bleu = {key: float(row["bleu"]) for key, row in rows.items()}
    best = {
        at: max((key for key in rows if key[0] != "ours" and key[2] == at), key=bleu.__getitem__) for at in ("15", "45")
    }
    assert best == {"15": ("eole", "initial", "15"), "45": ("eole", "initial", "45")}
    scores = [f"{bleu[key]:.1f}" for key in (("ours", "ours", "15"), best["15"], best["45"], ("ours", "ours", "45"))]
    late = rows["transformers", "ours", "45"]
    speeds = [float(row["target_tokens"]) / float(row["seconds"]) for row in (rows[best["15"]], late)]
    speed = float(rows["ours", "ours", "15"]["target_tokens"]) / float(rows["ours", "ours", "15"]["seconds"])
    text = " ".join(TEXT.split())
    assert f"After 15 minutes ours has BLEU {scores[0]}, after 45 minutes {scores[3]}." in text
    assert f"eole with our recipe and initial weights: {scores[1]} and {scores[2]}." in text
    assert f"it ends {bleu[best['45']] - bleu['ours', 'ours', '15']:.1f} above, far within their intervals." in text
    assert float(rows[best["45"]]["ci_low"]) < bleu["ours", "ours", "15"] < float(rows[best["45"]]["ci_high"])
    tokens = [int(rows[key]["target_tokens"]) / 1e6 for key in (("ours", "ours", "15"), best["45"])]
    assert f"it reaches the {scores[0]} with {tokens[0]:.1f} million target tokens, and eole" in text
    assert f"and eole needs {tokens[1]:.1f} million for the {scores[2]}." in text
    assert f"on {speed / speeds[0]:.1f} times as many target tokens a second as eole, and on" in text
    assert f"and on {speed / speeds[1]:.1f} times as many as transformers, but" in text
    changes = {system: bleu[system, "initial", "15"] - bleu[system, "ours", "15"] for system in ("eole", "joeynmt")}
    assert f"eole gains {changes['eole']:.1f} BLEU at minute 15 and joeynmt {changes['joeynmt']:.1f}." in text
    loss = bleu["transformers", "ours", "15"] - bleu["transformers", "initial", "15"]
    assert f"Transformers loses {loss:.1f}." in text
    config = load_config([f"recipes={RECIPE}"])
    glorot = (2 / (config.vocab.source_size + config.model.dim)) ** 0.5
    assert f"a standard deviation of {config.model.dim**-0.5:.3f}." in text
    assert f"eole and joeynmt begin with {glorot:.3f} and transformers" in text
    ours_row = rows["ours", "ours", "15"]
    assert round(int(ours_row["target_tokens"]) / 1e6) == round(int(late["target_tokens"]) / 1e6) == 11
    assert float(late["ci_high"]) > float(ours_row["ci_low"])
    assert f"# {len(entries(SYSTEMS)) * MINUTES[-1] / 60:g} hours, then translating" in TEXT
    sizes = {system: int(rows[system, "own", "15"]["parameters"]) for system in ("eole", "joeynmt")}
    assert sorted(round(size / int(rows["ours", "ours", "15"]["parameters"])) for size in sizes.values()) == [7, 8]
    assert "about seven and eight times as many parameters" in text
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"babelshard has BLEU {scores[0]} after 15 minutes and the best of them, eole with" in readme
    assert f"initial weights like ours, {scores[1]}. After 45 minutes babelshard has {scores[3]} and" in readme
    assert f"and eole {scores[2]}." in readme


def test_the_table_of_six_directions_has_the_scores_of_the_file():
    """Each cell is a score with its interval. One direction has a model of its own where it was trained."""
    (table,) = re.findall(r"^\| pair \| one direction .*\n\|[-:|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    with (ROOT / "recipes" / "multi30k" / "results.csv").open(encoding="utf-8") as stream:
        of_first_test = [row for row in csv.DictReader(stream) if row["test_set"] == "test_2016_flickr"]
    rows = {(row["run"], row["pair"]): row for row in of_first_test if row["metric"] == "bleu_tok"}
    cells = {
        key: f"{float(row['score']):.1f} [{float(row['ci_low']):.1f}, {float(row['ci_high']):.1f}]"
        for key, row in rows.items()
    }
    for line in table.splitlines():
        pair, *scores = [cell.strip() for cell in line.split("|")[1:-1]]
        tiny = f"multi30k_tiny_{pair.replace('-', '_')}"
        runs = (tiny, "multi30k_multilingual", "multi30k_multilingual_moe")
        assert scores == [cells.pop((run, pair), "–") for run in runs]
    assert not cells, "a score is not in the table"
    gains = [
        float(rows["multi30k_multilingual_moe", pair]["score"]) - float(row["score"])
        for (run, pair), row in rows.items()
        if run == "multi30k_multilingual"
    ]
    assert f"is {sum(gains) / 6:.1f} BLEU better\non average" in TEXT
    assert (len(gains), sum(gain > 0 for gain in gains)) == (6, 5)
    with (ROOT / "recipes" / "multi30k" / "comparison.csv").open(encoding="utf-8") as stream:
        differences = list(csv.DictReader(stream))
    assert f"mean difference as +{sum(float(row['delta']) for row in differences) / 6:.1f} [" in TEXT
    assert all(float(row["p_holm"]) > 0.05 for row in differences), "none is significant"


def test_the_table_has_the_scores_of_the_file():
    (table,) = re.findall(r"^\| pair \| test set \| lines .*\n\|[-:|]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in table.splitlines()]
    with (ROOT / "recipes" / "multi30k" / "results.csv").open(encoding="utf-8") as stream:
        rows = [row for row in csv.DictReader(stream) if row["metric"] == "bleu_tok" and "tiny" in row["run"]]
    assert [[*cell[:3], *cell[4:]] for cell in cells] == [
        [
            row["pair"],
            row["test_set"],
            f"{int(row['n_test']):,}",
            f"{float(row['score']):.1f}",
            f"[{float(row['ci_low']):.1f}, {float(row['ci_high']):.1f}]",
        ]
        for row in rows
    ]
    for (_, _, _, published, *_), row in zip(cells, rows, strict=True):
        assert published == "–" or float(row["ci_low"]) <= float(published) <= float(row["ci_high"])
    german, french = (cell[4] for cell in cells if cell[1] == "test_2016_flickr")
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    assert f"BLEU {german} from English to German, where its authors have 41.0, and {french} to French" in readme
    assert f"BLEU {german} on test_2016_flickr from English to German" in TEXT
