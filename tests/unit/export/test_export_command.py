"""`make export`: which checkpoint, where to, and what is refused."""

import copy
import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from pipeline.corpus.languages import LangPair
from pipeline.export.command import export_run
from pipeline.export.config import load_export
from pipeline.export.extraction import extract
from pipeline.export.weights import named_weights
from pipeline.model.config import MoEConfig
from pipeline.model.moe.gates.task_config import TaskConfig
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.tokenizer import Vocabulary, train_vocabulary
from tests.exports import Runs, config_of, random_model

PAIRS = [LangPair("ja", "en"), LangPair("tr", "en")]


@pytest.fixture(scope="module")
def runs(prepared, tmp_path_factory):
    runs = Runs(tmp_path_factory.mktemp("runs"))
    directory = runs.root / "vocabulary"
    directory.mkdir()
    bitexts = dict(zip(PAIRS, map(Path, prepared.bitexts), strict=True))
    train_vocabulary(VocabConfig(shared=True, source_size=2000, target_size=2000), bitexts, directory)
    vocabulary = Vocabulary.load(directory)
    runs.models = [random_model(config_of(), vocabulary, seed) for seed in (1, 2, 3)]
    runs.add("dense", runs.models, directory, PAIRS)
    moe = MoEConfig(num_experts=4, expert_dim=16)
    runs.add("moe", [random_model(config_of(moe=moe), vocabulary)], directory, PAIRS)
    by_task = replace(moe, gate=TaskConfig(by="source")).with_pairs(["ja:en", "tr:en"])
    runs.tasks = random_model(config_of(moe=by_task), vocabulary)
    runs.add("tasks", [runs.tasks], directory, PAIRS)
    return runs


@pytest.fixture
def export(runs, tmp_path):
    def export(run, *words, out="out"):
        return export_run(load_export([f"run={run}", f"out={tmp_path}/{out}", *words, *runs.overrides]))

    return export


def test_the_best_checkpoint_or_the_mean_of_several_is_exported(runs, export):
    first, *copies = map(named_weights, runs.models)
    best = load_file(export("dense") / "model.safetensors")
    mean = load_file(export("dense", "decode.average=3", out="mean") / "model.safetensors")
    assert best.keys() == mean.keys() == first.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(best[name], tensor, atol=0, rtol=0)
        expected = torch.stack([tensor, *(other[name] for other in copies)]).mean(dim=0)
        torch.testing.assert_close(mean[name], expected, atol=1e-6, rtol=1e-6)


def test_the_dense_model_of_a_pair_is_exported(runs, export):
    """Its card says so, and has the scores of that pair alone."""
    for pair in ("ja:en", "tr:en"):
        name = pair.replace(":", "-")
        directory = export("tasks", f"pairs=[{name}]", out=name)
        weights, model = load_file(directory / "model.safetensors"), copy.deepcopy(runs.tasks)
        extract(model, [pair])
        expected = named_weights(model)
        assert weights.keys() == expected.keys() == named_weights(runs.models[0]).keys()
        assert all(torch.equal(weights[key], expected[key]) for key in expected)
        assert json.loads((directory / "config.json").read_text())["model_type"] == "m2m_100"
        card = (directory / "README.md").read_text()
        size = sum(weight.numel() for weight in model.parameters())
        assert (
            f"that translates {name}; {size:,} parameters, all that these directions use of a mixture of 12,345."
            in card
        )
        assert ("| ja-en | 400 | 300 | 12.3 [11.1, 13.2] |" in card) == (name == "ja-en")
        assert ("These directions were not scored." in card) == (name == "tr-en")
        assert "trust_remote_code=True` matters" not in card


def test_the_card_has_a_line_for_each_direction_and_one_of_means(runs, export):
    runs.add("scored", runs.models, runs.root / "vocabulary", PAIRS)
    tokenizers = {"bleu": "tok:13a", "chrf++": "nc:6"}
    rows = [
        f"{pair},moe,1400,{metric},{score + ahead},{score - 1},{score + 2},300,{tokenizers[metric]}|for:{pair}"
        for pair, ahead in (("ja-en", 0), ("tr-en", 0.5))
        for metric, score in (("bleu", 12), ("chrf++", 30))
    ]
    rows = [row.replace("|for:tr-en", "|for:ja-en") if "chrf++" in row else row for row in rows]
    header = "pair,system,train_pairs,metric,score,ci_low,ci_high,n_test,signature"
    (runs.root / "runs" / "scored" / "scores.csv").write_text("\n".join([header, *rows]) + "\n")
    _, _, scores = (export("scored") / "README.md").read_text().partition("## Scores\n\n")
    table, _, rest = scores.partition("\n\n")
    assert table.splitlines() == [
        "| pair | training pairs | test sentences | BLEU | chrF++ |",
        "| --- | --- | --- | --- | --- |",
        "| ja-en | 1,400 | 300 | 12.0 [11.0, 14.0] | 30.0 [29.0, 32.0] |",
        "| tr-en | 1,400 | 300 | 12.5 [11.0, 14.0] | 30.5 [29.0, 32.0] |",
        "| mean |  |  | 12.2 | 30.2 |",
    ]
    assert [line for line in rest.splitlines() if line.startswith(("- BLEU", "- chrF++"))] == [
        "- BLEU of ja-en: `tok:13a|for:ja-en`",
        "- BLEU of tr-en: `tok:13a|for:tr-en`",
        "- chrF++: `nc:6|for:ja-en`",
    ]


def test_the_card_counts_active_parameters_where_not_all_are(runs, export):
    size = "; 12,345 parameters, 2,345 of them active for a token."
    assert size in (export("moe") / "README.md").read_text()
    runs.add("all_active", runs.models, runs.root / "vocabulary", PAIRS)
    path = runs.root / "runs" / "all_active" / "run.json"
    record = json.loads(path.read_text())
    record["systems"]["moe"][0]["active_parameters"] = 12345
    path.write_text(json.dumps(record))
    assert "; 12,345 parameters. Exported" in (export("all_active", out="dense") / "README.md").read_text()


def test_the_card_has_the_means_of_further_test_sets(runs, export):
    """They are of the multilingual model and the run's pairs alone; a test set of other pairs has no line."""
    runs.add("further", runs.models, runs.root / "vocabulary", PAIRS)
    header = "pair,system,train_pairs,metric,score,ci_low,ci_high,n_test,signature"
    rows = {
        "news": ["ja-en,moe", "tr-en,moe", "tr-en,bilingual", "sw-en,moe"],
        "speech": ["tr-en,moe"],
        "others": ["sw-en,moe"],
    }
    for name, systems in rows.items():
        path = runs.root / "runs" / "further" / "test_sets" / name / "scores.csv"
        path.parent.mkdir(parents=True)
        lines = [f"{system},1400,bleu,{1.5 + number},1,20,300,v" for number, system in enumerate(systems)]
        lines += ["ja-en,moe,1400,chrf++,20,1,30,300,v"] if name == "news" else []
        path.write_text("\n".join([header, *lines]) + "\n")
    _, _, rest = (export("further") / "README.md").read_text().partition("Means on other test sets")
    assert rest.split("\n\n")[1].splitlines() == [
        "| test set | pairs | BLEU | chrF++ |",
        "| --- | --- | --- | --- |",
        "| news | 2 | 2.0 | 20.0 |",
        "| speech | 1 | 1.5 |  |",
    ]
    assert "Means on other test sets" not in (export("dense", out="plain") / "README.md").read_text()


def test_an_export_is_in_float32_whatever_a_run_decodes_in(runs, export, caplog, tmp_path):
    """And says which settings of decoding it does not have, also beside the scores that the run has with them."""
    plain = load_file(export("dense") / "model.safetensors")
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    for precision in ("bf16", "fp64"):
        of_run = {"precision": precision, "coverage_penalty": 0.2, "choose": "mbr", "ensemble": ["a", "b"]}
        runs.add(precision, runs.models, runs.root / "vocabulary", PAIRS, **of_run)
        weights = load_file(export(precision, out=precision) / "model.safetensors")
        assert {tensor.dtype for tensor in weights.values()} == {torch.float32}
        assert all(torch.equal(weights[name], plain[name]) for name in plain)
    heading, plain_card = "**They are not the scores of this export**", (tmp_path / "out" / "README.md").read_text()
    card = (tmp_path / "fp64" / "README.md").read_text()
    settings = "`decode.coverage_penalty=0.2`, `decode.choose=mbr`, `decode.ensemble=['a', 'b']`. Several models gave"
    assert f"{heading}, which does not translate with {settings}" in card
    assert heading not in plain_card
    for missing, there in (("coverage_penalty=0.2", "0.0"), ("choose=mbr", "likeliest"), ("ensemble=['a', 'b']", "[]")):
        assert f"decode.{missing} is not in the export, which translates as with {there}" in caplog.text


def test_an_export_is_complete_or_not_there(export, tmp_path):
    names = {path.name for path in export("moe").iterdir()}
    dense = {path.name for path in export("dense", out="dense").iterdir()}
    assert names - dense == {"modeling_babelshard.py"}
    assert dense == {
        *("README.md", "config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "tokenization_babelshard.py"),
    }
    with pytest.raises(ValueError, match=r"decode\.average=9"):
        export("dense", "decode.average=9", out="failed")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dense", "out"]


@pytest.mark.parametrize(
    ("run", "words", "message"),
    [
        ("dens", [], "there is no finished run; did you mean dense?"),
        ("", [], "NAME is empty"),
        ("dense", ["target=de"], "target=de: run dense translates into en; choose one of them"),
        ("dense", ["format=onnx"], "format='onnx' is not one of huggingface, ctranslate2, peft"),
        ("dense", ["format=peft"], r"format=peft: run dense has no adapters \(train.lora\); use format=huggingface"),
        ("dense", ["format=peft", "decode.average=3"], "decode.average=3: the mean of several adapters"),
        ("dense", ["format=ctranslate2"], "needs the package ctranslate2"),
        ("dense", ["decode.bean=4"], "decode.bean"),
        ("tasks", [], r"kind=task\): it chooses experts by task \(PAIR exports the dense model of a pair\)"),
        ("tasks", ["pairs=[ja-en,tr-en]"], r"PAIR: ja:en and tr:en have different experts in encoder\.2"),
        ("tasks", ["pairs=[de-en]"], "run tasks, which translates ja-en, tr-en: "),
        ("moe", ["pairs=[ja-en]"], r"PAIR: model\.moe\.gate \(kind=top2\) chooses experts token by token"),
    ],
)
def test_what_cannot_be_done_is_said(export, run, words, message):
    with pytest.raises(ValueError, match=message):
        export(run, *words)


def test_a_link_to_an_empty_directory_stays_one(export, tmp_path):
    (tmp_path / "disk").mkdir()
    (tmp_path / "out").symlink_to(tmp_path / "disk")
    export("dense")
    assert (tmp_path / "out").is_symlink()
    assert (tmp_path / "disk" / "model.safetensors").exists()


def test_what_is_there_is_left_alone(export, tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(ValueError, match="is not an empty directory; remove it or choose another"):
        export("dense")
    assert (tmp_path / "out" / "mine.txt").read_text() == "mine"
