"""`python -m eval score` equals sacreBLEU's command to the last digit, on systems of WMT17 (wmt17_en_de.md)."""

import json
import lzma
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sentencepiece

from eval.__main__ import main as eval_main

DATA = Path(__file__).parent / "wmt17_en_de.tsv.xz"
NAMES = {"bleu": "BLEU", "chrf++": "chrF2++", "ter": "TER"}
SYSTEMS = ("LIUM-NMT", "FBK", "online-B", "uedin-nmt")
METRICS = {"bleu": "bleu", "chrf++": "chrf", "ter": "ter"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the systems and the reference, a file each, and their first 80 lines (TER takes 2 ms a line)."""
    folder = tmp_path_factory.mktemp("wmt17")
    with lzma.open(DATA, "rt", encoding="utf-8", newline="\n") as file:
        header, *rows = (line.rstrip("\n").split("\t") for line in file)
    for name, column in zip(header, zip(*rows, strict=True), strict=True):
        for file, lines in ((name, column), (f"{name}.80", column[:80])):
            (folder / file).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8", newline="\n")
    return folder


def sacrebleu(folder: Path, *options: str, environment: dict[str, str] | None = None) -> str:
    """Return what sacreBLEU's command prints in the folder."""
    command = [sys.executable, "-m", "sacrebleu", "--quiet", *options]
    variables = {key: value for key, value in os.environ.items() if not key.startswith("SACREBLEU")}
    variables |= environment or {}
    return subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder, env=variables).stdout


@pytest.fixture
def score(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Return a function of options that returns the JSON of `python -m eval score --tgt de` in the folder."""
    monkeypatch.chdir(folder)
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)

    def run(*options: str) -> Any:
        assert eval_main(["score", "--tgt", "de", "--format", "json", *options]) == 0
        return json.loads(capsys.readouterr().out)

    return run


@pytest.mark.parametrize(
    ("test", "draws", "metrics", "systems", "references"),
    [
        ("bs", 500, ["bleu", "chrf++"], SYSTEMS, ["ref"]),
        ("ar", 500, ["bleu", "chrf++"], SYSTEMS[:2], ["ref"]),
        ("bs", 100, ["bleu", "ter"], ["LIUM-NMT.80", "FBK.80"], ["ref.80", "online-B.80"]),
    ],
)
def test_paired_tests_are_those_of_sacrebleu(
    folder: Path, score: Any, test: str, draws: int, metrics: list[str], systems: Sequence[str], references: list[str]
) -> None:
    """The output is LaTeX, because sacreBLEU 2.6.0 cannot write the float32 of a bootstrap with numpy 2 as JSON."""
    options = [
        f"--paired-{test}",
        f"--paired-{test}-n",
        str(draws),
        "--chrf-word-order",
        "2",
        "-f",
        "latex",
        "-w",
        "12",
    ]
    printed = sacrebleu(folder, *references, "-i", *systems, "-m", *(METRICS[name] for name in metrics), *options)
    files = ["--hyp", *systems, "--ref", *references]
    report = score(*files, "--metric", *metrics, f"--paired-{test}", "--resamples", str(draws))
    assert (report["references"], report["baseline"]) == (len(references), systems[0])
    rows = [[cell.strip(" \\") for cell in line.split("&")] for line in printed.splitlines() if "&" in line][1:]
    for (name, *cells), system in zip(rows, report["systems"], strict=True):
        assert name.removeprefix("Baseline: ") == system["system"]
        scores, first = system["scores"], report["systems"][0]["scores"]
        assert cells == [_as_sacrebleu(scores[metric]) for metric in metrics]
        assert [scores[m]["delta"] for m in metrics] == [
            None if system is report["systems"][0] else scores[m]["score"] - first[m]["score"] for m in metrics
        ]
    for metric in metrics:
        assert f" - {NAMES[metric]:<10} {report['signatures'][metric]}\n" in printed
    assert 0.01 < report["systems"][1]["scores"]["bleu"]["p_value"] < 0.99


def _as_sacrebleu(cell: dict[str, float | None]) -> str:
    text = f"{cell['score']:.12f}"
    if cell["mean"] is not None:
        text += f" ({cell['mean']:.12f} ± {cell['ci']:.12f})"
    if cell["p_value"] is not None:
        text += f" (p = {cell['p_value']:.4f})" + "*" * (cell["p_value"] <= 0.05)
    return text


def test_intervals_and_signatures_are_those_of_sacrebleu(folder: Path, score: Any) -> None:
    options = ["-m", "bleu", "chrf", "--chrf-word-order", "2", "--confidence", "-f", "json", "-w", "15"]
    expected_by_name = {
        result["name"]: result for result in json.loads(sacrebleu(folder, "ref", "-i", "FBK", *options))
    }
    report = score("--hyp", "FBK", "--ref", "ref", "--confidence")
    for metric in ("bleu", "chrf++"):
        expected, cell = expected_by_name[NAMES[metric]], report["systems"][0]["scores"][metric]
        assert [round(cell[key], 15) for key in ("score", "mean", "ci")] == [
            expected["score"],
            expected["confidence_mean"],
            expected["confidence_var"],
        ]
        assert report["signatures"][metric] == expected["signature"]


def test_sentences_are_those_of_sacrebleu(folder: Path, score: Any) -> None:
    printed = sacrebleu(folder, "ref", "-i", "FBK", "-sl", "-f", "text", "-w", "12").splitlines()
    report = score("--hyp", "FBK", "uedin-nmt", "--ref", "ref", "--sentence", "--metric", "bleu")
    values = report["systems"][0]["sentences"]["bleu"]
    assert [line.split(" = ")[1].split()[0] for line in printed] == [f"{value:.12f}" for value in values]
    assert printed[0].split(" = ")[0] == f"BLEU|{report['signatures']['bleu']}"
    assert len(report["systems"][1]["sentences"]["bleu"]) == 301


@pytest.mark.parametrize("tgt", ["zh-Hans", "ja"])
def test_ter_of_chinese_and_japanese_is_by_character(folder: Path, score: Any, tgt: str, tmp_path: Path) -> None:
    lines = {"zh-Hans": ("要删除框架，请按键。", "要删除框，请按键。"), "ja": ("色を選びます。", "色を選ぶ。")}[tgt]
    for name, line in zip(("reference", "system"), lines, strict=True):
        (tmp_path / name).write_text(line + "\n", encoding="utf-8")
    files = [str(tmp_path / name) for name in ("reference", "system")]
    options = ["--ter-normalized", "--ter-asian-support", "-f", "json", "-w", "15"]
    expected = json.loads(sacrebleu(folder, files[0], "-i", files[1], "-m", "ter", *options))
    report = score("--ref", files[0], "--hyp", files[1], "--metric", "ter", "--tgt", tgt)
    assert report["systems"][0]["scores"]["ter"]["score"] == pytest.approx(expected["score"], abs=1e-12)
    assert report["signatures"]["ter"] == expected["signature"]
    assert 0 < expected["score"] < 100


def test_spbleu_is_that_of_sacrebleu_with_the_model_that_is_there(folder: Path, tmp_path: Path) -> None:
    """A small model replaces that of FLORES-200, which we may not ship. Place and call are the same."""
    (tmp_path / "models").mkdir()
    with (tmp_path / "models" / "flores200sacrebleuspm").open("wb") as file:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter((folder / "ref").read_text(encoding="utf-8").splitlines()),
            model_writer=file,
            vocab_size=300,
            minloglevel=2,
        )
    place = {"SACREBLEU": str(tmp_path)}
    expected = json.loads(
        sacrebleu(folder, "ref", "-i", "FBK", "-tok", "flores200", "-f", "json", "-w", "15", environment=place)
    )
    command = [sys.executable, "-m", "eval", "score", "--hyp", "FBK", "--ref", "ref", "--tgt", "de", "--format", "json"]
    root = {"PYTHONPATH": str(Path(__file__).parents[2])}
    printed = subprocess.run(
        [*command, "--metric", "spbleu", "bleu"],
        capture_output=True,
        text=True,
        check=True,
        cwd=folder,
        env=os.environ | place | root,
    ).stdout
    report = json.loads(printed)
    assert round(report["systems"][0]["scores"]["spbleu"]["score"], 15) == expected["score"]
    assert report["signatures"]["spbleu"] == expected["signature"]
    assert "tok:flores200" in expected["signature"]
    assert "tok:13a" in report["signatures"]["bleu"]
