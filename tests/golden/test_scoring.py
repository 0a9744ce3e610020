"""Scores equal hand computations, and those of sacreBLEU's command line and its paired test."""

import math
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.significance import PairedTest

from eval.score.significance import Resampled, compare, resample

ENGLISH = [
    "Opens the dialog in which you can choose a colour for the selected cell.",
    "To delete a frame, click its border and press Delete.",
    "The value of the function is returned as a number, not as text.",
    'You can also type "=A1+B1" into the cell; the sum appears at once.',
    "Right-click the page and choose Insert - Table from the menu.",
]
CHINESE = [
    "打开用于选择单元格颜色的对话框。",
    "要删除框架，请单击其边框并按 Delete 键。",
    "该函数返回一个数字，而不是文本。",
]
JAPANESE = [
    "選択したセルの色を選ぶダイアログを開きます。",
    "枠を削除するには、枠線をクリックします。",
    "関数は数値を返します。",
]


def score(hypotheses: list[str], references: list[str], tgt: str, metric: str) -> Resampled:
    (result,) = resample([hypotheses], references, tgt, metric, n_resamples=1)
    return result


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        # Clipped precisions 5/6 (the second "the" is not in the reference), 3/5, 2/4, 1/3; no brevity penalty.
        ("the cat sat on the mat", "the cat sat on a mat", 100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25),
        # All precisions 1; 4 tokens against 6: brevity penalty exp(1 - 6/4).
        ("the cat sat on", "the cat sat on the mat", 100 * math.exp(-0.5)),
        # 4/5, 2/4, 1/3 and no 4-gram of 2: exponential smoothing makes that 1 / (2 * 2).
        ("a b c d e", "a b c x e", 100 * (4 / 5 * 2 / 4 * 1 / 3 * 1 / 4) ** 0.25),
    ],
)
def test_bleu_is_the_hand_computation(hypothesis: str, reference: str, expected: float) -> None:
    assert score([hypothesis], [reference], "en", "bleu").score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("hypothesis", "reference", "expected"),
    [
        # Orders that exist: characters 1 (1/2 both ways), characters 2 (0), words 1 (0): P = R = 1/6.
        ("ab", "ac", 100 / 6),
        # Characters 1: P 2/3, R 1; characters 2: P 1/2, R 1; words 1: 0. P = 7/18, R = 2/3, F2 = 5PR/(4P+R).
        ("abc", "ab", 100 * 5 * (7 / 18) * (2 / 3) / (4 * 7 / 18 + 2 / 3)),
    ],
)
def test_chrf_is_the_hand_computation(hypothesis: str, reference: str, expected: float) -> None:
    assert score([hypothesis], [reference], "en", "chrf++").score == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(
    ("tgt", "tokenizer", "references", "separator"),
    [("en", "13a", ENGLISH, " "), ("zh-Hans", "zh", CHINESE, ""), ("ja", "ja-mecab", JAPANESE, "")],
)
def test_scores_are_those_of_the_command_line(
    tmp_path: Path, tgt: str, tokenizer: str, references: list[str], separator: str
) -> None:
    hypotheses = [_damaged(line, separator, 0.25, seed) for seed, line in enumerate(references)]
    (tmp_path / "hyp").write_text("\n".join(hypotheses) + "\n", encoding="utf-8")
    (tmp_path / "ref").write_text("\n".join(references) + "\n", encoding="utf-8")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "ref"), "-i", str(tmp_path / "hyp")]
    command += ["-m", "bleu", "chrf", "--chrf-word-order", "2", "-tok", tokenizer, "-w", "6", "-f", "text"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    for line, metric in zip(printed, ("bleu", "chrf++"), strict=True):
        result = score(hypotheses, references, tgt, metric)
        name, _, value = line.partition(" = ")
        assert value.split()[0] == f"{result.score:.6f}"
        assert name.partition("|")[2] == result.signature.replace("|bs:1|seed:12345", "")
        assert 5 < result.score < 95


def test_intervals_and_p_values_are_those_of_sacrebleu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SACREBLEU_SEED", raising=False)
    references = [f"{line} Note {number} of {number % 7}." for number in range(12) for line in ENGLISH]
    system = [_damaged(line, " ", 0.2, seed) for seed, line in enumerate(references)]
    baseline = [_damaged(line, " ", 0.24, seed + 1000) for seed, line in enumerate(references)]
    for name, scorer in (("bleu", BLEU()), ("chrf++", CHRF(word_order=2))):
        result, baseline_result = resample([system, baseline], references, "en", name)
        signatures, results = PairedTest(
            [("baseline", baseline), ("system", system)], {name: scorer}, [references], "bs", 1000
        )()
        key = next(iter(signatures))
        expected = results[key][1]
        assert result.score == pytest.approx(expected.score, abs=1e-9)
        # sacreBLEU sums in float32, which has seven digits
        assert np.mean(result.resampled) == pytest.approx(expected.mean, abs=1e-3)
        assert (result.ci_high - result.ci_low) / 2 == pytest.approx(expected.ci, abs=1e-3)
        # by that rounding, one resample of 1000 may fall on the other side of the threshold
        assert compare(result, baseline_result).p_value == pytest.approx(expected.p_value, abs=1.5e-3)
        single = scorer.corpus_score(system, [references], n_bootstrap=1000)
        assert (result.ci_high - result.ci_low) / 2 == pytest.approx(single._ci, abs=1e-3)
        assert result.signature == str(scorer.get_signature())


def _damaged(line: str, separator: str, rate: float, seed: int) -> str:
    rng = random.Random(seed)
    units = line.split(separator) if separator else list(line)
    return separator.join(unit for unit in units if rng.random() > rate) or units[0]
