"""`make prune` with the smoke run: experts that de-en uses, what it loses without the others, and translating so."""

import csv
import json
import re
from dataclasses import replace

import pytest
import torch

from pipeline.commands.prune import load_pruning, prune
from pipeline.commands.translate import load_translate, translate
from pipeline.dag.stages import routing
from pipeline.dag.store import Store
from pipeline.dag.work import read_routing
from pipeline.decode.experts.pruned import cut
from pipeline.decode.experts.pruning import Pruning
from pipeline.decode.experts.ranking import choose, score
from pipeline.decode.model import load_model
from pipeline.engine.checkpoint.weights import load_weights
from pipeline.finished_run import FinishedRun
from pipeline.vocab.tokenizer import Vocabulary
from tests.system.place import run

KEEP = 0.5


@pytest.fixture(scope="session")
def pruned(place, results):
    """Half of the experts, for de-en; and what the command said."""
    command = ["make", "--no-print-directory", "prune", "NAME=smoke", "PAIR=de-en", f"KEEP={KEEP}"]
    process = run([*command, "ARGS=" + " ".join(["resamples=100", *place.directories])], timeout=300)
    assert process.returncode == 0, process.stderr
    return results / "pruned" / "de-en-0.5.json", process


@pytest.fixture
def finished(place, results):
    return FinishedRun.open("smoke", runs=results.parent, store=Store(place.root / "artifacts"))


def test_the_run_says_which_experts_its_dev_set_uses(place, pruned, finished):
    pruning = Pruning.read(pruned[0])
    assert (pruning.run, pruning.pairs, pruning.num_experts) == ("smoke", ["de-en"], 4)
    assert {name: len(experts) for name, experts in pruning.experts.items()} == {"encoder.2": 2, "decoder.2": 2}
    encoded = Store(place.root / "artifacts").inputs(finished.model)["de-en"].path
    counts = json.loads((encoded / "encode.json").read_text(encoding="utf-8"))["splits"]["dev"]
    for name, side in (("encoder.2", "source_tokens"), ("decoder.2", "target_tokens")):
        recorded = pruning.statistics[name]["de-en"]
        assert recorded["tokens"] == counts[side]
        assert sum(recorded["first"]) == counts[side]
        assert sum(recorded["chosen"]) == 2 * counts[side]
        assert sum(recorded["weight"]) == pytest.approx(counts[side], rel=1e-6)  # two weights that sum to one
    routed = json.loads((finished.directory / "routing.json").read_text(encoding="utf-8"))
    assert pruning.statistics == {name: {"de-en": measures["de-en"]} for name, measures in routed["layers"].items()}
    scores = {name: score([measures["de-en"]], "importance") for name, measures in pruning.statistics.items()}
    assert pruning.experts == choose(scores, keep=KEEP, per_layer=True, at_least=dict.fromkeys(scores, 2))


def test_scores_before_are_those_of_the_run(pruned, results):
    path, process = pruned
    with path.with_suffix(".csv").open(encoding="utf-8") as file:
        rows = {row["metric"]: row for row in csv.DictReader(file)}
    with (results / "scores.csv").open(encoding="utf-8") as file:
        scores_of_metric = {
            row["metric"]: row for row in csv.DictReader(file) if (row["pair"], row["system"]) == ("de-en", "moe")
        }
    for metric, row in rows.items():
        assert row["before"] == scores_of_metric[metric]["score"]
        assert float(row["after"]) - float(row["before"]) == pytest.approx(float(row["delta"]), abs=2e-4)
        assert (row["experts_before"], row["experts_after"]) == ("8", "4")
        assert f"{float(row['before']):.2f}" in process.stdout
        assert f"{float(row['after']):.2f}" in process.stdout
    assert "translate smoke: running" not in process.stderr  # those of the run itself
    assert "routing smoke: running" not in process.stderr  # the same stage, which training ran
    assert "experts 4 of 8, parameters " in process.stdout


def test_the_model_is_smaller_by_what_the_table_says(pruned, finished, finished_model):
    path, _ = pruned
    with path.with_suffix(".csv").open(encoding="utf-8") as file:
        row = next(csv.DictReader(file))
    for experts, count in (("", row["parameters_before"]), (str(path), row["parameters_after"])):
        model = finished_model(experts)
        assert sum(parameter.numel() for parameter in model.parameters()) == int(count)
    layer = model.moe_layers()["decoder.2"]
    kept = Pruning.read(path).experts["decoder.2"]
    whole = finished_model("").moe_layers()["decoder.2"]
    assert torch.equal(layer.experts.wi_EMH, whole.experts.wi_EMH[kept])
    assert torch.equal(layer.router.wg_EM, whole.router.wg_EM[kept])


def test_a_mean_of_checkpoints_is_cut_too(pruned, finished, finished_model):
    directories = [next((finished.model.path / "checkpoints").glob("step-*"))] * 2
    whole, model = finished_model(""), finished_model("")
    experts = Pruning.read(pruned[0]).experts
    kept = cut(model, experts)
    load_weights(directories, whole)
    load_weights(directories, model, kept=kept)
    cut(whole, experts)
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, whole.get_parameter(name)), name


@pytest.fixture
def finished_model(finished):
    def load(experts):
        return load_model(
            finished.model.path / "checkpoints",
            Vocabulary.load(finished.vocabulary.path),
            config=finished.decode,
            device=torch.device("cpu"),
            experts=experts,
        )

    return load


def test_routing_is_the_same_where_processes_share_the_experts(place, finished, tmp_path, capfd):
    """Up to tokens whose experts were nearly equally good, which a matmul of other sizes may turn."""
    runtime = load_pruning(["run=smoke", "pairs=[de-en]", *place.directories]).runtime
    runtime = replace(runtime, processes=2, threads=1, ep=2, decode_experts="sharded")
    for name in ("train", "encode", "vocab", "clean"):
        (tmp_path / name).symlink_to(place.root / "artifacts" / name)
    store, model = Store(tmp_path), finished.model
    sharded = store.get(routing(model, store.inputs(model), decode=finished.decode, runtime=runtime, label="sharded"))
    assert "experts while decoding: cut over 2 processes" in capfd.readouterr().err
    recorded = json.loads((finished.directory / "routing.json").read_text(encoding="utf-8"))["layers"]
    for layer, pairs in read_routing(sharded).items():
        for pair, measures in pairs.items():
            assert measures["tokens"] == recorded[layer][pair]["tokens"]
            for measure in ("chosen", "weight", "first", "first_weight"):
                assert measures[measure] == pytest.approx(recorded[layer][pair][measure], abs=2)


def test_make_translate_gives_the_translations_that_were_scored(place, pruned, finished, tmp_path):
    path, _ = pruned
    (artifact,) = [
        file.parent
        for file in (place.root / "artifacts/translate").glob("*/experts.json")
        if json.loads(file.read_text(encoding="utf-8"))["experts"] == Pruning.read(path).experts
    ]
    records = [json.loads(line) for line in (artifact / "de-en.jsonl").read_text(encoding="utf-8").split("\n")[:20]]
    (tmp_path / "in.de").write_text("".join(record["source"] + "\n" for record in records), encoding="utf-8")
    words = ["run=smoke", "pair=de-en", "experts=de-en-0.5", f"input={tmp_path}/in.de", f"output={tmp_path}/out.en"]
    translate(load_translate([*words, "long=whole", "runtime.processes=1", "runtime.ep=1", *place.directories]))
    translations = (tmp_path / "out.en").read_text(encoding="utf-8").split("\n")[:-1]
    assert translations == [record["hypothesis"] for record in records]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["pairs=[]"], "PAIR is empty; give the direction to prune for"),
        (["pairs=[en-de]"], "run smoke does not translate en-de, but de-en, tr-en; train one that does"),
        (["keep=0.25"], "KEEP=0.25 of 4 experts a layer is too few: each layer keeps at least 2, because"),
        (["at_least=3"], "too few: each layer keeps at least 3, because its gate needs them or at_least=3 says so"),
        (["at_least=5"], "at_least=5: a layer of the run has 4 experts; choose 4 or fewer"),
        (["runtime.decode_experts=sharded"], "a pruned model is not cut further; set it to replicated"),
        (["keep=0"], "KEEP=0.0 is no share of the experts; choose one above 0"),
        (["keep=1.5"], "KEEP=1.5 is no share"),
        (["metric=luck"], "metric='luck' is not one of top1, importance, weight"),
        (["at_least=1"], "at_least=1: a gate needs 2 experts to choose from"),
        (["name=a/b"], "name='a/b': a pruning is named by letters"),
        (["run=smok"], "did you mean smoke?"),
    ],
)
def test_mistakes_are_named_before_anything_runs(place, results, settings, message):
    words = ["run=smoke", "pairs=[de-en]", f"keep={KEEP}", *settings]
    before = sorted((place.root / "artifacts").rglob("manifest.json"))
    with pytest.raises(ValueError, match=re.escape(message)):
        prune(load_pruning([*words, *place.directories]))
    assert sorted((place.root / "artifacts").rglob("manifest.json")) == before


def test_a_pruning_is_of_its_run_and_its_pairs(pruned, finished):
    path, _ = pruned
    narrowed = finished.pruned("de-en-0.5")
    assert narrowed.spec().experts == str(path)
    assert finished.pruned("") is finished
    with pytest.raises(ValueError, match="run smoke, which translates de-en: pair 'tr-en'"):
        narrowed.pair("tr-en")
    with pytest.raises(ValueError, match=r"experts=de-en-05: run smoke has no such pruning; did you mean de-en-0\.5\?"):
        finished.pruned("de-en-05")
    values = json.loads(path.read_text(encoding="utf-8"))
    other = path.with_name("other.json")
    other.write_text(json.dumps({**values, "model": "train/0123"}), encoding="utf-8")
    with pytest.raises(ValueError, match="is of model train/0123, and run smoke has another"):
        finished.pruned("other")
    other.unlink()
