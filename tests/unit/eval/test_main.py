import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.score.metrics import scorer_for
from eval.score.run import write_scores
from tests.unit.eval.conftest import MakeRun

Score = Callable[..., tuple[int, str, str]]


@pytest.fixture
def score(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Score:
    """score("--tgt", "en", …) -> exit code, stdout and stderr, in a folder with the files a, b, ref and short."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    texts = {
        "a": "one dog\ntwo old cats\n",
        "b": "one\ntwo cats\n",
        "ref": "one dog\ntwo young cats\n",
        "short": "one\n",
    }
    for name, text in texts.items():
        Path(name).write_text(text, encoding="utf-8")

    def run(*options: str) -> tuple[int, str, str]:
        code = main(["score", *options])
        return (code, *capsys.readouterr())

    return run


def test_score_prints_scores_and_signatures(tmp_path: Path, score: Score) -> None:
    lines = ["色を選ぶダイアログを開きます。", "", "枠を\u2028削除します。"]
    (tmp_path / "hyp").write_text("\r\n".join(lines) + "\n", encoding="utf-8", newline="")
    (tmp_path / "gold").write_text("\n".join(lines), encoding="utf-8")
    code, out, _ = score("--hyp", "hyp", "--ref", "gold", "--tgt", "ja", "--metric", "bleu")
    signature = scorer_for("bleu", "ja", references=[lines]).get_signature()
    assert (code, out) == (0, f"system  bleu\nhyp     100.00\n\nbleu: {signature}\n")


def test_the_baseline_comes_first_and_others_are_tested_against_it(score: Score) -> None:
    files = ["--hyp", "b", "a", "--ref", "ref", "a", "--tgt", "en"]
    _, out, _ = score(*files, "--metric", "chrf", "--paired-bs", "--baseline", "a", "--resamples", "20")
    table = [line.split() for line in out.splitlines()]
    assert table[0] == ["system", "chrf", "95", "%", "delta", "p"]
    assert table[1] == ["a", "100.00", "±0.00"]
    assert table[2][:2] == ["b", f"{100 + float(table[2][3]):.2f}"]
    assert "delta: against a; p: paired bootstrap" in out
    assert "nrefs:2|bs:20|seed:12345" in out


def test_tsv_has_a_row_a_score_and_the_columns_that_docs_name(score: Score) -> None:
    files = ["--hyp", "a", "b", "--ref", "ref", "--tgt", "en", "--format", "tsv"]
    _, out, _ = score(*files, "--confidence", "--resamples", "20")
    header, *rows = (line.split("\t") for line in out.splitlines())
    assert header == ["system", "metric", "score", "mean", "ci", "delta", "p_value", "signature"]
    assert [row[:2] for row in rows] == [["a", "bleu"], ["a", "chrf++"], ["b", "bleu"], ["b", "chrf++"]]
    assert all(0 <= float(row[2]) < 100 and row[3] and row[4] and row[5:7] == ["", ""] for row in rows)
    _, out, _ = score(*files, "--sentence", "--metric", "ter")
    assert [line.split("\t")[:4] for line in out.splitlines()] == [
        ["system", "line", "metric", "score"],
        ["a", "1", "ter", "0.0"],
        ["a", "2", "ter", repr(100 * (1 / 3))],
        ["b", "1", "ter", "50.0"],
        ["b", "2", "ter", repr(100 * (1 / 3))],
    ]


def test_sentences_in_text_have_a_row_a_line_and_system(score: Score) -> None:
    _, out, _ = score("--hyp", "a", "b", "--ref", "ref", "--tgt", "en", "--sentence", "--metric", "ter", "chrf")
    assert [line.split()[:3] for line in out.splitlines()[:5]] == [
        ["line", "system", "ter"],
        ["1", "a", "0.00"],
        ["1", "b", "50.00"],
        ["2", "a", "33.33"],
        ["2", "b", "33.33"],
    ]


@pytest.mark.parametrize("content", [b"\xffone\n", b""])
def test_bad_files_are_one_line_and_exit_two(tmp_path: Path, score: Score, content: bytes) -> None:
    (tmp_path / "bad").write_bytes(content)
    code, out, error = score("--hyp", "a", "bad", "--ref", "ref", "--tgt", "en")
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert ("bad is not UTF-8 at byte 0" if content else "bad is empty") in error


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--hyp a short --ref ref --tgt en", "short has 1 lines but ref has 2; every file needs one line a sentence"),
        ("--hyp a --ref ref short --tgt en", "short has 1 lines but ref has 2"),
        ("--hyp a --ref ref --src short --tgt en", "short has 1 lines but ref has 2"),
        ("--hyp a nowhere --ref ref --tgt en", "nowhere does not exist or is not a file"),
        ("--hyp a b a --ref ref --tgt en", "--hyp names a twice"),
        ("--hyp a --ref ref --tgt xx", "tgt='xx' is no BCP-47 code of a language"),
        ("--hyp a --ref ref --tgt klingon", "tgt='klingon' is no BCP-47 code of a language"),
        ("--hyp a --ref ref --tgt en --metric wer", "metric='wer' is unknown; choose from bleu, chrf++"),
        ("--hyp a --ref ref --tgt en --metric bleu bleu", "--metric names bleu twice"),
        ("--hyp a --ref ref --tgt en --paired-bs", "a paired test compares systems; give two or more"),
        ("--hyp a b --ref ref --tgt en --paired-bs --confidence", "exclude each other"),
        ("--hyp a b --ref ref --tgt en --paired-ar --sentence", "--sentence has no intervals or tests"),
        ("--hyp a b --ref ref --tgt en --baseline a", "--baseline needs --paired-bs or --paired-ar"),
        ("--hyp a b --ref ref --tgt en --resamples 9", "--resamples needs --confidence"),
        ("--hyp a b --ref ref --tgt en --paired-bs --resamples -9", "--resamples=-9 must be at least 2"),
        ("--hyp a --ref ref --tgt en --metric comet", "metric='comet' needs --comet-model and --src"),
        ("--hyp a b --ref ref --src a --tgt en --metric comet --comet-model c --paired-bs", "comet' has no test here"),
        (
            "--hyp a --ref ref --src a --tgt en --metric comet --comet-model c",
            "c does not exist; the model of COMET is a checkpoints/model.ckpt",
        ),
        (
            "--hyp a --ref ref --src a --tgt en --metric comet --comet-model m/c/a",
            "'comet' needs unbabel-comet, but No",
        ),
    ],
)
def test_mistakes_are_named_before_work(tmp_path: Path, score: Score, options: str, message: str) -> None:
    (tmp_path / "m" / "c").mkdir(parents=True)
    for name in ("m/c/a", "m/hparams.yaml"):
        (tmp_path / name).touch()
    code, out, error = score(*options.split())
    assert (code, out) == (2, "")
    assert message in error


def test_a_seed_that_cannot_be_repeated_is_refused(score: Score, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SACREBLEU_SEED", "none")
    code, _, error = score("--hyp", "a", "--ref", "ref", "--tgt", "en")
    assert code == 2
    assert "SACREBLEU_SEED='none' gives another result every time" in error


def test_thai_is_scored_with_a_warning(score: Score, caplog: pytest.LogCaptureFixture) -> None:
    assert score("--hyp", "a", "--ref", "ref", "--tgt", "th")[0] == 0
    assert "bleu of th: written without spaces" in caplog.text


def test_report_prints_the_page(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run(["de-en"])
    write_scores(run_dir, n_resamples=10)
    assert main(["report", str(run_dir)]) == 0
    assert capsys.readouterr().out == f"{run_dir / 'report.html'}\n"
    assert main(["report", str(run_dir / "nowhere")]) == 2
    assert "nowhere is no finished run" in capsys.readouterr().err


def test_report_compares_runs_by_name_and_label(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    runs = [make_run(pairs, folder=name) for name, pairs in (("first", ["de-en"]), ("second", ["de-en", "fr-en"]))]
    for run_dir in runs:
        write_scores(run_dir, n_resamples=10)
    below, out = runs[0].parent, runs[0].parent / "out"
    assert main(["report", "first", f"other={runs[1]}", "--runs", str(below)]) == 2
    assert "--out is needed for 2 runs" in capsys.readouterr().err
    arguments = ["--runs", str(below), "--out", str(out), "--losses", "3.5,3.2"]
    assert main(["report", "first", f"other={runs[1]}", *arguments]) == 0
    assert capsys.readouterr().out == f"{out / 'report.html'}\n"
    header, *rows = (out / "sweep.csv").read_text(encoding="utf-8").splitlines()
    assert "tokens_to_3.5,tokens_to_3.2" in header
    names = ["first", "other", "bilingual of first", "bilingual of other"]
    assert [row.split(",")[0] for row in rows] == names
    assert "2 runs of different language pairs, whose mean scores do not compare." in (out / "report.html").read_text()


@pytest.mark.parametrize(
    ("kept", "content"),
    [
        ("run.json", "the results of a run"),
        ("status.json", "the results of a run"),
        ("sweep.json", "the page of a sweep"),
        ("report.html", r"a page of other runs \(an older version drew it\)"),
    ],
)
def test_a_report_replaces_no_other_results(
    make_run: MakeRun, capsys: pytest.CaptureFixture[str], kept: str, content: str
) -> None:
    run_dir = make_run(["de-en"])
    write_scores(run_dir, n_resamples=10)
    out = run_dir.parent / "mine"
    out.mkdir()
    (out / kept).write_text("{}")
    assert main(["report", str(run_dir), "--out", str(out)]) == 2
    message = (
        rf"error: .*/mine has {content}; choose another name, as NAME=mine-2, or replace the page there by REPLACE=1"
    )
    assert re.match(message, capsys.readouterr().err)
    assert [(file.name, file.read_text()) for file in out.iterdir()] == [(kept, "{}")]
    assert main(["report", str(run_dir), "--out", str(out), "--replace", "1"]) == 0
    assert "<html" in (out / "report.html").read_text(encoding="utf-8")


def test_the_page_of_the_same_runs_is_drawn_again(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (make_run(["de-en"], folder=name) for name in ("first", "second"))
    for run_dir in (first, second):
        write_scores(run_dir, n_resamples=10)
    out = first.parent / "both"
    assert main(["report", str(first), str(second), "--out", str(out)]) == 0
    page = (out / "report.html").read_bytes()
    assert main(["report", f"other={second}", str(first), "--out", str(out), "--losses", "3.5"]) == 0
    assert (out / "report.html").read_bytes() != page
    page = (out / "report.html").read_bytes()
    capsys.readouterr()
    assert main(["report", str(first), "--out", str(out)]) == 2
    assert "both has a page of other runs (first, second); choose another" in capsys.readouterr().err
    assert (out / "report.html").read_bytes() == page
    for arguments in ([], ["--out", str(first / ".." / "first")]):  # the run's own page
        assert main(["report", str(first), *arguments]) == 0
    assert not (first / "page.json").exists()


@pytest.mark.parametrize("losses", ["3.0,-1", "3.0,x", "3.0,3.0", "inf", ""])
def test_losses_must_be_positive_numbers(losses: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["report", "run", "--losses", losses])
    message = f"argument --losses: {losses} must be different losses above 0, such as 3.0,2.5,2.2\n"
    assert capsys.readouterr().err.endswith(message)


@pytest.mark.parametrize("command", ["score", "report", "summary", "data"])
def test_every_argument_has_its_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="0"):
        main([command, "--help"])
    lines = capsys.readouterr().out.partition("\n\n")[2].splitlines()
    arguments = [number for number, line in enumerate(lines) if re.match(r"  \S", line)]
    assert len(arguments) > 1
    for number in arguments:  # the text is behind the argument, or on the next line
        assert re.search(r"\S  +\S", lines[number]) or lines[number + 1].startswith("   "), lines[number]


def test_help_imports_nothing_heavy() -> None:
    program = "import sys, eval.__main__; print({'numpy', 'matplotlib', 'sacrebleu', 'jinja2'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
