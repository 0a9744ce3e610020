import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.metrics import score_corpus
from eval.scoring import write_scores

MakeRun = Callable[..., Path]


def test_score_prints_scores_and_signatures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["色を選ぶダイアログを開きます。", "", "枠を\u2028削除します。"]
    (tmp_path / "hyp").write_text("\r\n".join(lines) + "\n", encoding="utf-8", newline="")
    (tmp_path / "ref").write_text("\n".join(lines), encoding="utf-8")
    options = ["--hyp", str(tmp_path / "hyp"), "--ref", str(tmp_path / "ref"), "--tgt", "ja"]
    assert main(["score", *options, "--metric", "bleu"]) == 0
    signature = score_corpus(lines, lines, "ja", "bleu").signature
    assert capsys.readouterr().out == f"bleu\t100.00\t{signature}\n"


@pytest.mark.parametrize(
    ("hypothesis", "message"),
    [(b"one\n", "hypotheses=1 lines but references=2"), (b"\xffone\n", "not UTF-8 at byte 0"), (b"", "=0 lines")],
)
def test_bad_files_are_one_line_and_exit_two(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], hypothesis: bytes, message: str
) -> None:
    (tmp_path / "hyp").write_bytes(hypothesis)
    (tmp_path / "ref").write_bytes(b"one\ntwo\n")
    code = main(["score", "--hyp", str(tmp_path / "hyp"), "--ref", str(tmp_path / "ref"), "--tgt", "en"])
    error = capsys.readouterr().err
    assert code == 2
    assert message in error
    assert error.count("\n") == 1


def test_report_prints_the_page(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    run_dir = make_run(["de-en"])
    write_scores(run_dir, n_resamples=10)
    assert main(["report", str(run_dir)]) == 0
    assert capsys.readouterr().out == f"{run_dir / 'report.html'}\n"
    assert main(["report", str(run_dir / "nowhere")]) == 2


def test_help_imports_nothing_heavy() -> None:
    program = "import sys, eval.__main__; print({'numpy', 'matplotlib', 'sacrebleu', 'jinja2'} & set(sys.modules))"
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert result.stdout == "set()\n"
