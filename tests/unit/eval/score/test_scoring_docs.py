"""docs/scoring.md: its commands run and its tables are complete."""

import re
import shlex
import subprocess
from itertools import permutations
from pathlib import Path

import pytest

from eval.__main__ import main
from eval.records.challenge import MIN_LINES
from eval.records.faults import FaultRow, FaultyLine
from eval.records.scores import METRICS, SACREBLEU_METRICS, field_names
from eval.score import faults
from eval.score.output import CORPUS_COLUMNS, SENTENCE_COLUMNS
from eval.score.pairwise import COLUMNS as COMPARISON_COLUMNS
from pipeline.commands.evaluate import load_evaluation
from pipeline.config import load_config
from pipeline.corpus.modifiers import LETTERS_PER_TYPO, MODIFIERS
from pipeline.dag.challenge import MOST_ALONE, MOST_LINES
from pipeline.dag.test_rows import load_corpus
from tests.make import overrides_of

ROOT = Path(__file__).resolve().parents[4]
TEXT = (ROOT / "docs" / "scoring.md").read_text(encoding="utf-8")
LINES = [line for block in re.findall(r"```bash\n(.*?)```", TEXT, re.DOTALL) for line in block.splitlines()]
COMMANDS = [line for line in LINES if not line.startswith(("make evaluate", "make train"))]
EVALUATIONS = [line.split("  #")[0] for line in LINES if line.startswith("make evaluate")]


def _run(command: str) -> str:
    return subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=ROOT).stdout


@pytest.mark.parametrize("command", EVALUATIONS)
def test_evaluations_are_read(command: str, tmp_path: Path) -> None:
    config = load_evaluation(overrides_of("evaluate", re.sub("path/to/dir|corpora/freesoft38", str(tmp_path), command)))
    pairs = re.findall(r'LANG_PAIRS="(.*)"', command) or ["all"]
    assert config.pairs == pairs[0].split()
    trained = {
        "demo": ["all", *load_config([]).pairs],
        "europe": [f"{src}-{tgt}" for src, tgt in permutations(["de", "en", "es", "fr"], 2)],
    }  # German, Spanish and French, from English and into it, lead to all directions
    assert set(config.pairs) <= set(trained[config.run])


def test_the_test_sets_of_a_run_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "path" / "to" / "NTREX-128").mkdir(parents=True)
    (command,) = [line for line in LINES if line.startswith("make train") and "score.test_sets" in line]
    own, *further = load_config(overrides_of("train", command)).score.test_sets
    assert (own, [load_corpus(text).path for text in further]) == (
        "own",
        ["corpora", str(tmp_path / "path" / "to" / "NTREX-128")],
    )


def test_the_commands_score_what_they_unpack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tables = []
    for command in (line.replace("corpora", str(tmp_path)) for line in COMMANDS):
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
    assert ", ".join((*SACREBLEU_METRICS, "comet")) in " ".join(help_text.split())
    options = set(re.findall(r"--[a-z-]+", help_text)) - {"--help", "--hyp", "--ref", "--tgt"}
    assert options <= set(re.findall(r"--[a-z-]+", TEXT))
    for names in (CORPUS_COLUMNS, SENTENCE_COLUMNS, COMPARISON_COLUMNS, METRICS):
        assert {f"`{name}`" for name in names} - set(re.findall(r"`[a-z0-9+_-]+`", TEXT)) <= {"`bleu`", "`chrf++`"}
    assert "default `bleu chrf++`" in TEXT
    falling = [metric.title for metric in METRICS.values() if metric.falling]
    assert f"Of all metrics only {' and '.join(falling)} are better when lower" in TEXT


def test_every_kind_of_a_challenge_set_and_its_limits_are_named() -> None:
    section = TEXT.partition("## How does a model translate short and noisy input?\n")[2].partition("\n## ")[0]
    names = [
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)
    ]
    assert names == list(MODIFIERS)
    assert f"about one in {LETTERS_PER_TYPO}" in section
    assert f"fewer than {MIN_LINES} lines of a kind" in section
    assert f"thinned to at most {MOST_LINES}" in section
    assert f"at most {MOST_ALONE} lines" in section
    (command,) = [line for line in EVALUATIONS if "challenge" in line]
    assert load_evaluation(overrides_of("evaluate", command)).challenge


def test_faults_and_their_limits_are_those_of_the_code() -> None:
    section = TEXT.partition("## Which translations are faulty?\n")[2].partition("\n## ")[0]
    words = " ".join(section.split())
    assert (
        f"a probability of at least {faults.MIN_PROBABILITY}. Texts of fewer than {faults.MIN_LETTERS} letters" in words
    )
    assert f"n-gram of {faults.NGRAM} words ({faults.NGRAM_UNSPACED} characters in scripts without spaces)" in words
    assert f"occurs at least {faults.MORE_OFTEN} more times than the most frequent one of the source" in words
    assert f"takes more than {faults.MOST_WRONG:.0%} of the references, and more than one".replace("%", " %") in words
    columns = {*field_names(FaultRow), *field_names(FaultyLine)} - {
        "pair",
        "system",
        "n_test",
        "line",
        "fault",
    }
    assert {name for name in columns if f"`{name}`" not in section} == set()
