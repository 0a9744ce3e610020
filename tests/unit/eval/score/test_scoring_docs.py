"""docs/scoring.md: its commands run and its tables are complete."""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.records.scores import METRICS
from eval.score.output import CORPUS_COLUMNS, SENTENCE_COLUMNS
from eval.score.pairwise import COLUMNS as COMPARISON_COLUMNS
from pipeline.commands.evaluate import load_evaluation
from tests.make import overrides_of

ROOT = Path(__file__).resolve().parents[4]
TEXT = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in LINES if not line.startswith("make evaluate")]
EVALUATIONS = [line.split("  #")[0] for line in LINES if line.startswith("make evaluate")]


def _run(command: str) -> str:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("command", EVALUATIONS)
def test_evaluations_are_read(command: str, tmp_path: Path) -> None:
    config = load_evaluation(overrides_of("evaluate", command.replace("path/to/dir", str(tmp_path))))
    assert config.run == "demo"
    assert config.pairs == (["de-en", "fr-en"] if "LANG_PAIRS" in command else ["all"])


def test_the_commands_score_what_they_unpack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for command in (line.replace("data/artifacts", str(tmp_path)) for line in COMMANDS):
        if not command.startswith("make "):
            _run(command)
            continue
        last_line = _run(command.replace("make ", "make --dry-run --no-print-directory ", 1)).splitlines()[-1]
        _, _, module, *words = shlex.split(last_line)
        assert (module, main(words)) == ("eval", 0)
        tables.append(capsys.readouterr().out.splitlines())
    assert [line.split()[1] for line in tables[0][1:2]] == ["26.20"]
    assert [line.split()[1] for line in tables[1][1:3]] == ["26.20", "25.76"]


def test_options_columns_and_metrics_are_those_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["score", "--help"])
    help_text = capsys.readouterr().out
    assert ", ".join((*METRICS, "comet")) in " ".join(help_text.split())
    options = set(re.findall(r"--[a-z-]+", help_text)) - {"--help", "--hyp", "--ref", "--tgt"}
    assert options <= set(re.findall(r"--[a-z-]+", TEXT))
    for names in (CORPUS_COLUMNS, SENTENCE_COLUMNS, COMPARISON_COLUMNS, (*METRICS, "comet")):
        assert {f"`{name}`" for name in names} - set(re.findall(r"`[a-z0-9+_-]+`", TEXT)) <= {"`bleu`", "`chrf++`"}
    assert "default `bleu chrf++`" in TEXT
    falling = [metric.title for metric in METRICS.values() if metric.falling]
    assert f"Of all metrics only {' and '.join(falling)} is better when lower" in TEXT
