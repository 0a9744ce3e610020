"""`make bench BENCH=decode`: our systems for real, with the smoke run's model."""

import json
from dataclasses import replace

from bench.decode.contest import run_contest
from bench.decode.prepare import Material
from bench.decode.systems import OURS, QUICK, TRANSFORMERS, System, Way, systems
from bench.decode.table import judge
from pipeline.dag.store import Store
from pipeline.finished_run import FinishedRun
from pipeline.vocab.tokenizer import Vocabulary


def test_two_memories_translate_the_same(place, results, tmp_path):
    """Two processes and one are tried; a peer without its export says so."""
    run = FinishedRun.open("smoke", runs=results.parent, store=Store(place.root / "artifacts"))
    text = (results / "translations" / "moe" / "de-en.jsonl").read_text(encoding="utf-8").split("\n")[:6]
    lines = [json.loads(line)["source"] for line in text]
    sources = Vocabulary.load(run.vocabulary.path).encode_source(lines, "en")
    material = Material(run=run, exports={TRANSFORMERS: "not exportable"}, sources=sources)
    ways = [Way(processes=processes, threads=1, batch_tokens=200) for processes in (2, 1)]
    own_systems = [system for system in systems("moe", "cpu") if system.precision == "fp32" and system.name == OURS]
    planned = [replace(system, ways=(way,)) for system, way in zip(own_systems, ways, strict=True)]
    planned.append(System(name=TRANSFORMERS, precision="fp32", ways=tuple(ways)))
    rows = list(run_contest("moe", planned, material, QUICK, tmp_path / "systems", "cpu"))
    assert [row["note"] for row in rows] == ["not exportable", "", ""]
    judged = {row["system"]: row for row in judge(rows, "cpu")}
    assert judged["ours reordered"]["identical"] == 1.0
    for name in ("ours flattened", "ours reordered"):
        assert judged[name]["tokens_per_second"] > 0
        assert judged[name]["cache_verdict"] == "ok", judged[name]
