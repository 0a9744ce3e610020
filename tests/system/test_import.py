"""An imported checkpoint is fine-tuned on a corpus, and the result translates and is exported as it came."""

import json

import pyarrow.parquet
import pytest
import sentencepiece
from safetensors import safe_open

from pipeline.config import ROOT
from tests.system.place import run
from tests.tiny_checkpoints import CONFIGS, train_tokenizer, write_checkpoint

ROWS = {"train": 300, "dev": 10, "test": 4}
TINY = [
    *("vocab.from_run=base", "train.initialize_from=base", "model.biases=true", "model.moe.num_experts=0"),
    *("model.dim=32", "model.ffn_dim=48", "model.heads=4", "model.encoder_layers=3", "model.decoder_layers=3"),
    *("train.max_steps=2", "baselines.tiers=[]", "decode.beam=1", "decode.max_length_ratio=0.1", "score.resamples=100"),
    "batch.shapes=[{rows: 4, source: 512, target: 512}]",
]


@pytest.fixture
def pipeline(tmp_path):
    def pipeline(*words):
        place = [f"runtime.artifacts={tmp_path}/artifacts", f"runtime.runs={tmp_path}/runs"]
        process = run([str(ROOT / ".venv/bin/python"), "-m", "pipeline", *words, *place], timeout=900)
        assert process.returncode == 0, process.stderr
        return process

    return pipeline


def write_corpus(directory, pair="de-en"):
    directory.mkdir()
    for split, number in ROWS.items():
        lines = (ROOT / "data" / "sample" / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        rows = [line.split("\t")[:2] for line in lines[1:]]
        text = "".join(f"{german}\t{english}\n" for english, german in rows[:number])
        (directory / f"{split}.{pair}.tsv").write_text(text, encoding="utf-8")
    return directory


def test_an_import_is_fine_tuned_translates_and_is_exported(pipeline, tmp_path):
    write_checkpoint(tmp_path / "checkpoint", CONFIGS["dense"], train_tokenizer(tmp_path / "spm"))
    pipeline("import", f"FROM={tmp_path}/checkpoint", "NAME=base", "LANG_PAIRS=de-en")
    corpus = write_corpus(tmp_path / "corpus")
    pipeline("train", "RECIPE=finetune/nllb_600m", "NAME=special", "LANG_PAIRS=de-en", f"CORPUS={corpus}", *TINY)
    records = {
        name: json.loads((tmp_path / "runs" / name / "run.json").read_text(encoding="utf-8"))
        for name in ("base", "special")
    }
    base, special = (record["systems"]["moe"][0]["artifacts"] for record in records.values())
    assert special["vocabulary"] == base["vocabulary"]
    assert special["initialized_from"] == base["model"]
    (tmp_path / "in.de").write_text("Das Fenster.\n", encoding="utf-8")
    pipeline("translate", "NAME=special", "PAIR=de-en", f"input={tmp_path}/in.de", f"output={tmp_path}/out.en")
    assert len((tmp_path / "out.en").read_text(encoding="utf-8").splitlines()) == 1
    pipeline(
        "evaluate", "NAME=base", f"CORPUS={corpus}", "decode.beam=1", "decode.max_length_ratio=0.1", "resamples=100"
    )
    assert list((tmp_path / "runs" / "base" / "tests").glob("*/scores.csv"))
    pipeline("export", "NAME=special", f"OUT={tmp_path}/export")
    assert (tmp_path / "export" / "sentencepiece.bpe.model").is_file()
    with (
        safe_open(str(tmp_path / "export" / "model.safetensors"), framework="pt") as trained,
        safe_open(str(tmp_path / "checkpoint" / "model.safetensors"), framework="pt") as imported,
    ):
        assert {*trained.keys()} == {*imported.keys()}
        bias = "model.encoder.layers.0.fc1.bias"
        change = (trained.get_tensor(bias) - imported.get_tensor(bias)).abs().max()
        assert 0 < change < 0.1, "two steps move the weights of the import a little"


def test_a_language_is_added_to_an_import(pipeline, tmp_path):
    """German text stands for Frisian, a language that the checkpoint lacks."""
    write_checkpoint(tmp_path / "checkpoint", CONFIGS["dense"], train_tokenizer(tmp_path / "spm"))
    pipeline("import", f"FROM={tmp_path}/checkpoint", "NAME=base", "LANG_PAIRS=de-en")
    corpus = write_corpus(tmp_path / "corpus", "fy-en")
    words = [f"CORPUS={corpus}", *TINY, "vocab.extend={fy: de}", "vocab.extend_size=40"]
    pipeline("train", "RECIPE=smoke", "NAME=special", "LANG_PAIRS=fy-en", *words)
    record = json.loads((tmp_path / "runs" / "special" / "run.json").read_text(encoding="utf-8"))
    sizes = record["systems"]["moe"][0]["vocabulary_changes"]["shared"]
    assert (sizes["before"], sizes["after"]) == (66, 66 + sizes["added"])
    assert 10 < sizes["added"] <= 41, "the tag and pieces"
    (tmp_path / "in.fy").write_text("Das Fenster.\n", encoding="utf-8")
    pipeline("translate", "NAME=special", "PAIR=fy-en", f"input={tmp_path}/in.fy", f"output={tmp_path}/out.en")
    assert len((tmp_path / "out.en").read_text(encoding="utf-8").splitlines()) == 1
    pipeline("export", "NAME=special", f"OUT={tmp_path}/export")
    settings = json.loads((tmp_path / "export" / "tokenizer_config.json").read_text(encoding="utf-8"))
    assert settings["added_tokens_decoder"]["66"]["content"] == "fry_Latn"
    with safe_open(str(tmp_path / "export" / "model.safetensors"), framework="pt") as weights:
        rows = weights.get_slice("model.shared.weight").get_shape()[0]
    model = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "export" / "sentencepiece.bpe.model"))
    assert rows == 68 + sizes["added"] - 1 == len(model) + 1, "of the two free rows the tag took one"


def test_an_import_becomes_a_mixture_which_is_pruned_and_distilled(pipeline, tmp_path):
    write_checkpoint(tmp_path / "checkpoint", CONFIGS["dense"], train_tokenizer(tmp_path / "spm"))
    pipeline("import", f"FROM={tmp_path}/checkpoint", "NAME=base", "LANG_PAIRS=de-en")
    corpus = write_corpus(tmp_path / "corpus")
    experts = ["model.moe.num_experts=4", "model.moe.expert_dim=48", "model.moe.every=2"]
    words = [f"CORPUS={corpus}", *(word for word in TINY if "num_experts" not in word), *experts]
    pipeline("train", "RECIPE=smoke", "NAME=mixture", "LANG_PAIRS=de-en", *words)
    pipeline("prune", "NAME=mixture", "PAIR=de-en", "KEEP=0.5")
    pruned = json.loads((tmp_path / "runs" / "mixture" / "pruned" / "de-en-0.5.json").read_text(encoding="utf-8"))
    assert {layer: len(experts) for layer, experts in pruned["experts"].items()} == {"encoder.2": 2, "decoder.2": 2}
    (tmp_path / "in.de").write_text("Das Fenster.\n", encoding="utf-8")
    files = [f"input={tmp_path}/in.de", f"output={tmp_path}/out.en"]
    pipeline("translate", "NAME=mixture", "PAIR=de-en", "experts=de-en-0.5", *files)
    assert len((tmp_path / "out.en").read_text(encoding="utf-8").splitlines()) == 1
    pipeline("distill", "NAME=mixture", "LANG_PAIRS=de-en", f"OUT={tmp_path}/distilled", "decode.beam=1")
    table = pyarrow.parquet.read_table(tmp_path / "distilled" / "train.de-en.parquet")
    assert 200 < len(table) <= ROWS["train"]
