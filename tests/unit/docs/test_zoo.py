"""docs/zoo.md: its commands, and what it says of all models."""

import hashlib
import re
import shlex
from dataclasses import replace

from bench.experiment.__main__ import parse
from pipeline.config import ROOT, load_config
from pipeline.export.config import load_export
from tests.experiment_tables import contrast_rows, interval, rows_of, words_of
from tests.make import overrides_of

TEXT = (ROOT / "docs" / "zoo.md").read_text(encoding="utf-8")


def rows_by_system(name):
    return {row["system"]: row for row in rows_of(name)}


SYSTEMS, DECODING = rows_by_system("systems"), rows_by_system("decoding")
DEEP = ("dense_12l", "moe_32e_12l")
CARD = ROOT / "recipes" / "freesoft38" / "release_card.md"
EXPORTED = {
    "huggingface": {
        *("README.md", "config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json", "tokenization_babelshard.py"),
    },
    "ctranslate2": {"README.md", "config.json", "model.bin", "shared_vocabulary.json", "source.model", "target.model"},
}


def test_the_command_trains_every_model_with_its_name_in_both_places():
    (command,) = re.findall(r"^make train .*moe_8e.*$", TEXT, re.MULTILINE)
    assert command.count("moe_8e") == 2
    for name, row in SYSTEMS.items():
        config = load_config(overrides_of("train", command.replace("moe_8e", name)))
        assert (config.recipe, config.name) == (row["recipe"], f"{name}_s1")
        assert not config.baselines.tiers


def test_the_commands_of_its_rows_and_of_an_export_are_read(monkeypatch):
    commands = re.findall(r"^\.venv/bin/python -m bench\.experiment (.*)$", TEXT, re.MULTILINE)
    chosen = []
    for command in commands:
        monkeypatch.setattr("sys.argv", ["bench.experiment", *shlex.split(command)])
        chosen.append(parse().command)
    assert chosen == ["systems", "decoding", "systems", "contrasts"]
    (command,) = re.findall(r"`(make export [^`]*)`", TEXT)
    export = load_export(overrides_of("export", command))
    assert (export.run, export.format) == ("dense_s1", "ctranslate2")


def test_what_it_says_of_all_models_is_in_their_rows():
    shallow = [row for name, row in SYSTEMS.items() if name not in DEEP]
    assert [*DECODING] == [row["system"] for row in shallow]
    for name, row in SYSTEMS.items():
        assert row["size"].startswith("d=192, 6+6 layers" if name in DEEP else "d=192, 3+3 layers")
        assert (round(float(row["tokens"]), -6), row["num_pairs"]) == (12e6, "38")
    assert [row["num_seeds"] for row in shallow] == ["2", "2", "1"]
    timed = DECODING["dense"]
    assert (timed["threads"], timed["beam"], timed["precision"], timed["rounds"]) == ("1", "4", "fp32", "5")
    assert int(timed["sentences"]) == 5 * int(timed["pairs"]) == 5 * 38
    fastest_first = sorted(DECODING, key=lambda name: -float(DECODING[name]["sentences_per_second"]))
    least_memory_first = sorted(DECODING, key=lambda name: float(SYSTEMS[name]["memory_gib"]))
    assert fastest_first == least_memory_first == ["dense", "moe_8e", "moe_32e"]
    differences = [
        contrast_rows("contrasts_unplanned", "moe_32e - dense")["bleu"],
        contrast_rows("contrasts_own", "moe_32e - moe_8e")["bleu"],
    ]
    behind = [f"{-float(row['delta']):.2f}" for row in differences]
    assert f"`moe_32e` is {behind[0]} BLEU below `dense` and {behind[1]} below `moe_8e`" in TEXT
    flops = [float(row["flops_per_token"]) for row in shallow]
    assert max(flops) < 1.005 * min(flops)


def test_the_release_differs_from_dense_in_its_vocabulary_alone():
    (command,) = re.findall(r"^make train .*NAME=release.*$", TEXT, re.MULTILINE)
    dense = load_config(["recipes=freesoft38/dense", *overrides_of("train", command)[1:]])
    release = load_config(overrides_of("train", command))
    assert (release.vocab.shared, release.vocab.source_size, release.vocab.target_size) == (True, 16000, 16000)
    assert replace(release, recipe=dense.recipe, vocab=dense.vocab) == dense
    rows = [rows_by_system("release")["release"], SYSTEMS["dense"]]
    parameters, flops = ([float(row[name]) for row in rows] for name in ("parameters", "flops_per_token"))
    assert f"the model has {100 * (1 - parameters[0] / parameters[1]):.0f} % fewer parameters and its larger" in TEXT
    assert f"a token's training cost {100 * (flops[0] / flops[1] - 1):.0f} % more FLOPs" in TEXT


def test_the_checksums_are_of_the_two_exports_and_of_the_card():
    commands = re.findall(r"^(make export .*)$", TEXT, re.MULTILINE)
    exports = [load_export(overrides_of("export", command)) for command in commands]
    expected = {f"{export.out}/{name}" for export in exports for name in EXPORTED[export.format]}
    lines = (ROOT / "recipes" / "freesoft38" / "release.sha256").read_text(encoding="utf-8").splitlines()
    digests = {f"exports/{name}": digest for digest, name in (line.split("  ") for line in lines)}
    assert digests.keys() == expected
    assert all(re.fullmatch("[0-9a-f]{64}", digest) for digest in digests.values())
    assert hashlib.sha256(CARD.read_bytes()).hexdigest() == digests["exports/freesoft38/README.md"]


def test_the_card_has_the_scores_of_the_released_model():
    (row,), card = rows_by_system("release").values(), CARD.read_text(encoding="utf-8")
    assert f"; {int(row['parameters']):,} parameters" in card
    assert f"| mean |  |  | {float(row['bleu']):.1f} | {float(row['chrf++']):.1f} |" in card
    assert len(re.findall(r"^\| [a-zA-Z-]+-en \|", card, re.MULTILINE)) == int(row["num_pairs"]) == 38
    assert "no licence stated, to be trained on, not to be passed on or shown" in card


def test_the_difference_to_dense_is_that_of_the_contrast():
    row = contrast_rows("release_contrast", "release - dense")["bleu"]
    delta, span = interval(row)
    words = words_of("zoo")
    assert f"`release` − `dense` is {delta} BLEU {span} at seed 1, the only one" in words
    assert row["num_seeds"] == "1"
    more = float(rows_by_system("release")["release"]["flops_per_token"]) / float(SYSTEMS["dense"]["flops_per_token"])
    assert f"training cost {100 * (more - 1):.0f} % more FLOPs" in words
