import json
from pathlib import Path

import pytest

from eval.records.run_record import load_losses, load_run, load_translations
from tests.unit.eval.conftest import MakeRun


@pytest.mark.parametrize("key", ["name", "pairs", "train_pairs"])
def test_a_missing_required_key_is_named(make_run: MakeRun, key: str) -> None:
    run_dir = make_run(["de-en"])
    data = json.loads((run_dir / "run.json").read_text())
    del data[key]
    (run_dir / "run.json").write_text(json.dumps(data))
    with pytest.raises(ValueError, match=f"run.json lacks the required key '{key}'"):
        load_run(run_dir)


def test_a_pair_without_count_and_a_missing_file_are_named(make_run: MakeRun) -> None:
    run_dir = make_run(["de-en", "fr-en"], train_pairs={"de-en": 5})
    with pytest.raises(ValueError, match="train_pairs lacks fr-en"):
        load_run(run_dir)
    (run_dir / "run.json").unlink()
    with pytest.raises(ValueError, match=r"run\.json does not exist"):
        load_run(run_dir)


def test_minimal_record_and_named_languages(tmp_path: Path) -> None:
    data = {"name": "x", "pairs": ["zh-yue-en"], "train_pairs": {"zh-yue-en": 3}}
    data["languages"] = {"zh-yue-en": {"source": "zh-yue", "target": "en"}}
    (tmp_path / "run.json").write_text(json.dumps(data))
    record = load_run(tmp_path)
    assert record.languages == {"zh-yue-en": ("zh-yue", "en")}
    assert record.sample_sentences is False


def test_a_resumed_run_keeps_the_later_record_of_a_step(tmp_path: Path) -> None:
    lines = [
        {"event": "train", "step": step, "target_tokens": 10 * step, "cross_entropy": loss}
        for step, loss in ((1, 9.0), (2, 8.0), (3, 7.0), (2, 6.0))
    ]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [(p.step, p.cross_entropy) for p in load_losses(tmp_path, "train")] == [(1, 9.0), (2, 6.0), (3, 7.0)]
    assert load_losses(tmp_path, "validation") == []


def test_broken_lines_are_named_by_number(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"event": "train", "step": 1}\n')
    with pytest.raises(ValueError, match=r"metrics\.jsonl:1 lacks the number 'target_tokens'"):
        load_losses(tmp_path, "train")
    path = tmp_path / "translations" / "moe" / "de-en.jsonl"
    path.parent.mkdir(parents=True)
    path.write_text('{"source": "a", "hypothesis": "b", "reference": "c"}\n{"source"\n')
    with pytest.raises(ValueError, match=r"de-en\.jsonl:2 is not JSON"):
        load_translations(tmp_path, "moe", "de-en")
    path.write_bytes(b"\xff\n")
    with pytest.raises(ValueError, match="is not UTF-8 at byte 0"):
        load_translations(tmp_path, "moe", "de-en")
