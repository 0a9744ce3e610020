"""`make translate` with the smoke run: real processes, real pipes, real text."""

import json
import re
import shlex
import signal
import subprocess
import time

import psutil
import pytest

from pipeline.commands.translate import load_translate, translate
from pipeline.config import ROOT
from tests.system.place import run
from tests.unit.tasks.test_tasks import gone

ONE = ["runtime.processes=1", "runtime.ep=1", "decode.beam=1"]
SENTENCE = "Die Datei konnte nicht geöffnet werden."


@pytest.fixture
def command(place, results):
    """The command's words with one process."""

    def build(*words):
        return place.python("translate", "run=smoke", *ONE, *words)

    return build


CUT = r"experts while decoding: cut over 2 processes; 2 x [\d.]+ GB of weights and at most [\d.]+ GB for a batch = .*\n"


@pytest.mark.parametrize(("settings", "notice"), [([], ""), (["runtime.ep=2"], CUT)], ids=["whole", "shared experts"])
def test_lines_of_the_test_set_are_translated_as_they_were(place, results, tmp_path, settings, notice):
    records = [
        json.loads(line)
        for line in (results / "translations/moe/de-en.jsonl").read_text(encoding="utf-8").split("\n")[:100]
    ]
    (tmp_path / "in").write_text("".join(record["source"] + "\n" for record in records), encoding="utf-8")
    words = f"make -s translate NAME=smoke PAIR=de-en ARGS={shlex.quote(' '.join([*place.directories, *settings]))}"
    process = run(["bash", "-c", f"{words} < {tmp_path}/in > {tmp_path}/out"], timeout=300)
    assert (process.returncode, process.stdout) == (0, "")
    assert re.fullmatch(notice, process.stderr)
    answers = (tmp_path / "out").read_text(encoding="utf-8").split("\n")
    assert answers.pop() == ""
    same = [text == record["hypothesis"] for text, record in zip(answers, records, strict=True)]
    assert sum(same) >= 0.998 * len(same) - 1  # other batches round otherwise
    assert len(set(answers)) > 20


def test_a_dialogue_line_by_line_until_ctrl_c(command):
    process = subprocess.Popen(
        command("pair=de-en"), cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None

    def ask(line):
        process.stdin.write(line)
        process.stdin.flush()
        began = time.monotonic()
        answer = process.stdout.readline()
        return answer, time.monotonic() - began

    first, _ = ask(SENTENCE.encode() + b"\n")
    assert first.strip()
    long = (SENTENCE + " ") * 1200  # 10,000 tokens and more
    for line, expected in [
        (SENTENCE.encode() + b"\r\n", first),
        (b"\n", b"\n"),
        (b" \t\r\n", b"\n"),
        (long.encode() + b"\n", None),
        ("Eins\u2028zwei\x85drei\x0b\x0c\x00\rvier\n".encode(), None),
        (SENTENCE.encode() + b"\n", first),
    ]:
        answer, seconds = ask(line)
        assert answer.endswith(b"\n")
        assert expected is None or answer == expected
        assert len(line) > 100 or seconds < 5  # at once, even on a machine that is busy
    (worker,) = psutil.Process(process.pid).children()
    process.send_signal(signal.SIGINT)
    rest, output = process.communicate(timeout=20)
    assert process.returncode == 130
    assert rest == b""
    assert output.decode() == "lines: 2 empty; 1 of more than 192 tokens, translated in parts\n"
    assert gone(worker.pid)


@pytest.mark.parametrize(
    ("victim", "number", "code", "error"),
    [
        (
            "worker",
            signal.SIGKILL,
            1,
            r"error: translate: process 1 of 2 was killed by SIGKILL \(out of memory\?\); what .*",
        ),
        ("command", signal.SIGINT, 130, ""),
    ],
)
def test_processes_that_share_experts_end_together(place, results, victim, number, code, error):
    """The line that they translate takes minutes."""
    process = subprocess.Popen(
        place.python("translate", "run=smoke", "pair=de-en", "runtime.ep=2"),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert re.fullmatch(CUT, process.stderr.readline())
    process.stdin.write(SENTENCE + "\n")
    process.stdin.flush()
    assert process.stdout.readline().strip()
    process.stdin.write(f"{SENTENCE} " * 20_000 + "\n")
    process.stdin.flush()
    workers = sorted(psutil.Process(process.pid).children(), key=lambda worker: worker.environ()["RANK"])
    assert len(workers) == 2
    time.sleep(3)
    {"worker": workers[1], "command": process}[victim].send_signal(number)
    _, output = process.communicate(timeout=20)
    assert process.returncode == code
    assert re.fullmatch(error, output.strip())
    assert all(gone(worker.pid) for worker in workers)


def test_lines_of_json_up_to_one_that_is_not_utf8(command, tmp_path):
    requests = [
        {"text": SENTENCE, "prefix": "The file"},
        {"text": "", "pair": "tr-en"},
        {"text": "Dosya açılamadı.", "pair": "tr-en"},
        {"text": (SENTENCE + " ") * 1200},
        {"text": "a\nb\u2028c"},
    ]
    content = b"".join(json.dumps(value, ensure_ascii=False).encode() + b"\n" for value in requests)
    (tmp_path / "in").write_bytes(content + b'{"text": "gr\xfc\xdfe"}\n{"text": "a"}\n')
    words = [
        "pair=de-en",
        "format=json",
        "long=truncate",
        "decode.beam=3",
        "decode.n_best=2",
        "decode.capacity_factor=1",
    ]
    process = run(command(*words, f"input={tmp_path}/in", f"output={tmp_path}/out"), timeout=120)
    assert process.returncode == 1
    assert process.stdout == ""
    notice, dropped, error = process.stderr.splitlines()
    assert notice == "lines: 1 empty; 1 of more than 192 tokens, of which the rest is not translated"
    assert re.fullmatch(r"capacity: [\d.]+ % of \d+ choices of experts dropped", dropped)
    assert error.startswith(f"error: {tmp_path}/in, line 6 is not UTF-8: byte 0xfc at byte 13; the lines before are")
    answers = [json.loads(line) for line in (tmp_path / "out").read_text(encoding="utf-8").split("\n")[:-1]]
    assert [value["cut"] for value in answers] == ["", "", "", "truncated", ""]
    assert [value["skipped"] for value in answers] == ["", "empty", "", "", ""]
    assert answers[0]["text"].startswith("The file")
    for value in answers:
        assert len(value["alternatives"]) == (0 if value["skipped"] else 2)
        assert all(one.keys() == {"text", "score"} for one in value["alternatives"])
        assert value["alternatives"][:1] in ([], [{"text": value["text"], "score": value["score"]}])
        assert "\n" not in value["text"]


def test_without_a_model_a_result_that_is_there_stays(place, results, tmp_path):
    (tmp_path / "in").write_text(SENTENCE)
    (tmp_path / "out").write_text("keep me\n")
    words = ["run=smoke", "pair=de-en", f"input={tmp_path}/in", f"output={tmp_path}/out", "decode.average=9", *ONE]
    with pytest.raises(ValueError, match=r"decode.average=9: of the last checkpoints "):
        translate(load_translate([*words, *place.directories]))
    assert (tmp_path / "out").read_text() == "keep me\n"


def test_whoever_has_read_enough_ends_it_quietly(command):
    words = shlex.join(command("pair=de-en"))
    process = run(["bash", "-c", f"yes '{SENTENCE}' | {words} | head -n 1; echo ${{PIPESTATUS[@]}}"], timeout=120)
    answer, codes = process.stdout.splitlines()
    assert answer
    assert codes == "141 141 0"
    assert process.stderr == ""


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pair=de-xx"], r"run smoke, which translates .*the corpus has no 'xx'"),
        (["pair=en-de"], r"run smoke does not translate en-de, but de-en, tr-en"),
        (["run=smoky"], r"NAME=smoky: .*did you mean smoke\?"),
        (["pair="], r"PAIR is empty; give the direction to translate"),
        (["long=cut"], r"long='cut' is not one of split, truncate, skip, whole"),
        (["errors=ignore"], r"errors='ignore' is not one of strict, replace"),
        (["decode.beam=0"], r"decode.beam=0 must be at least 1"),
        (["decode.beem=1"], r"decode.beem does not exist; did you mean .*decode.beam"),
        (["input=/nowhere"], r"input=/nowhere is no file"),
        (["output=/nowhere/out"], r"output=/nowhere/out would be in a directory that does not exist"),
        (["runtime.ep=4"], r"runtime.ep=4 does not divide runtime.processes=2; choose one of \[1, 2\]"),
        (["runtime.processes=3", "runtime.ep=3"], r"runtime.ep=3 does not divide the 4 experts of run smoke"),
        (["runtime=slurm"], r"runtime.launcher=slurm: lines are translated on this machine"),
        (["input={file}", "output={file}"], r"output=.* is the input, which it would overwrite"),
    ],
)
def test_what_cannot_be_is_refused_before_any_work(place, results, tmp_path, words, message):
    file = tmp_path / "file"
    file.write_text("keep me\n")
    before = psutil.Process().children()
    overrides = ["run=smoke", "pair=de-en", *(word.format(file=file) for word in words)]
    with pytest.raises(ValueError, match=message):
        translate(load_translate([*overrides, *place.directories]))
    assert file.read_text() == "keep me\n"
    assert psutil.Process().children() == before
