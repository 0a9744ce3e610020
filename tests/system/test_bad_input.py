"""`make train` with settings or a corpus that are wrong: one clear line, before any training."""

import pytest

from pipeline.dag.status import read_status
from tests.system.place import Place, run


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["pairs=[de-en,dee-en]"], "dee"),
        (["pairs=[de-xx]"], "xx"),
        (["pairs=[de-en,de-en]"], "named twice"),
        (["corpus.path=data/nowhere"], "nowhere"),
        (["runtime.artifacts=/proc/nothing"], "cannot write to"),
        (["train.warmup_stepss=3"], "did you mean train.warmup_steps"),
        (["vocab.source_size=20"], "source_size"),
        (["runtime.device=cuda"], "finds 0 CUDA devices"),
    ],
)
def test_bad_input_is_one_clear_line_before_training(place, tmp_path, overrides, message):
    other = Place(tmp_path)
    process = run([*other.direct(), *overrides], timeout=120)
    assert process.returncode == 1, process.stderr
    last = process.stderr.strip().splitlines()[-1]
    assert last.startswith("error: ")
    assert message in last
    status = read_status(tmp_path / "runs" / "smoke")
    assert status is None or (status.state == "failed" and last == f"error: {status.error}")
    assert "Traceback" not in process.stderr
    trained = tmp_path / "artifacts" / "train"
    assert not trained.exists() or not list(trained.glob("*/log/metrics.jsonl"))


def write_corpus(directory, lines):
    """A corpus of aligned files, with dev and test sets."""
    directory.mkdir()
    for split in ("train", "dev", "test"):
        for side, code in enumerate(("de", "en")):
            content = lines.get((split, code)) or "\n".join(f"Satz {split} {i} {side}" for i in range(20)) + "\n"
            data = content if isinstance(content, bytes) else content.encode()
            (directory / f"{split}.de-en.{code}").write_bytes(data)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ({("train", "en"): "one line\n"}, "line"),
        ({("train", "de"): b"gut\nschlecht \xff\xfe\n"}, "UTF-8"),
        ({("train", "de"): b"\n", ("train", "en"): b"\n"}, "empty"),
    ],
)
def test_a_faulty_corpus_is_named_before_training(tmp_path, lines, message):
    write_corpus(tmp_path / "corpus", lines)
    process = run(Place(tmp_path).direct(f"corpus.path={tmp_path}/corpus", "pairs=[de-en]"), timeout=120)
    assert process.returncode == 1, process.stderr
    assert message in process.stderr.strip().splitlines()[-1]
    assert "train.de-en" in process.stderr
