"""The benchmark of decoding: ratios from rounds, and the list of systems."""

import pytest

from bench.decode.systems import BATCH_TOKENS, CTRANSLATE2, OURS, THREADS, TRANSFORMERS, systems
from bench.decode.table import COLUMNS, judge, table
from bench.decode.turns import batches
from bench.output import write_csv
from pipeline.config import load_config

TRANSLATIONS = [[5, 6], [7], [8, 9], [4]]


def row(system, precision="fp32", *, seconds, number=0, translations=TRANSLATIONS, **more):
    tokens = sum(len(translation) + 1 for translation in translations)
    measured = {"seconds": seconds, "cpu_seconds": 2 * seconds, "tokens": tokens, "rss": 10**8, "found": translations}
    return {
        "model": "dense",
        "system": system,
        "precision": precision,
        "round": number,
        "way": "2 x 1",
        "note": "",
        **measured,
        **more,
    }


def test_rates_and_ratios_are_medians_over_rounds_in_the_same_precision():
    cache = {"cache": 1200, "cache_arithmetic": 1000}
    rows = [
        *(row("ours flattened", seconds=s, number=n, **cache) for n, s in enumerate((2.0, 1.0, 1.0))),
        row("ours flattened", "bf16", seconds=0.5),
        row("ours reordered", seconds=1.25, number=1, cache=1000, cache_arithmetic=1000),
        *(
            row(TRANSFORMERS, seconds=s, number=n, translations=[[5, 6], [7], [8], [4]])
            for n, s in enumerate((9.0, 2.5, 2.4))
        ),
        row(TRANSFORMERS, "bf16", seconds=0.75),
        row(CTRANSLATE2, seconds=0.6, number=1),
    ]
    rows.append(
        {"model": "dense", "system": CTRANSLATE2, "precision": "int8", "round": 0, "way": "", "note": "no such"}
    )
    judged = {(r["system"], r["precision"]): r for r in judge(rows, "cpu")}
    base, peer = judged["ours flattened", "fp32"], judged[TRANSFORMERS, "fp32"]
    rates = ("tokens_per_second", "slowest", "fastest", "tokens_per_cpu_second")
    assert [base[name] for name in rates] == [10, 5, 10, 5]
    assert (base["cache_measured"], base["cache_verdict"]) == (1.2, "missed")
    assert base["measured"] is None
    assert judged["ours reordered", "fp32"]["measured"] == pytest.approx(1.25)
    assert judged["ours reordered", "fp32"]["verdict"] is None
    assert peer["measured"] == pytest.approx(10 / (9 / 2.5))  # the median of the rounds' 5 / 1, 10 / 3.6, 10 / 3.75
    assert (peer["verdict"], peer["identical"]) == ("ok", 0.75)
    assert judged[TRANSFORMERS, "bf16"]["verdict"] == "missed"
    assert (judged[CTRANSLATE2, "fp32"]["measured"], judged[CTRANSLATE2, "fp32"]["verdict"]) == (0.6, "missed")
    printed = table(list(judged.values()))
    assert printed.splitlines()[-1].endswith("no such")
    assert "1.500/2.000 missed" in printed


def test_rows_are_written_without_translations(tmp_path):
    judged = judge([row("ours flattened", seconds=1.0)], "cpu")
    write_csv(judged, COLUMNS, tmp_path / "decode.csv")
    assert (tmp_path / "decode.csv").read_text().splitlines()[1].startswith("dense,cpu,ours flattened,fp32,2 x 1,1,10,")


def test_everybody_has_the_same_threads_and_ours_its_defaults():
    for model in ("dense", "moe"):
        contenders = systems(model, "cpu")
        assert all(way.processes * way.threads == THREADS for system in contenders for way in system.ways)
        memories = {precision: [] for precision in ("fp32", "bf16", "int8")}
        for system in contenders:
            if system.name == OURS:
                memories[system.precision].append(system.memory)
        assert memories == {
            "fp32": ["flattened", "reordered"],
            "bf16": ["flattened", "reordered"],
            "int8": ["flattened"],
        }
    decode = load_config(["recipes=export_dense"]).decode
    assert (BATCH_TOKENS, contenders[0].memory) == (decode.batch_tokens, decode.beam_memory)


def test_on_a_gpu_everybody_has_one_process_and_the_same_batches():
    contenders = systems("dense", "cuda")
    assert {system.name for system in contenders} == {OURS, TRANSFORMERS}
    assert len({system.ways for system in contenders}) == 1
    assert all(way.processes == 1 for way in contenders[0].ways)


def test_batches_hold_each_sentence_once():
    sources = [[0] * length for length in (5, 30, 7, 9, 40, 3)]
    assert batches(sources, 400) == [[4, 1], [3, 2, 0, 5]]
