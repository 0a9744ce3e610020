"""A translation that goes on after an interruption: it is the one that there would have been."""

import json
from dataclasses import replace

import pytest
import torch

from pipeline.config import load_config
from pipeline.decode.__main__ import translate_rest
from pipeline.decode.job import TranslateJob
from pipeline.decode.merge import translated_rows
from pipeline.decode.translator import Translator
from pipeline.jobs.device import Place
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.test_translator import TURKISH

SOURCES = [["", *TURKISH[:14]], TURKISH[14:24]]
PAIRS = ["tr-en", "az-en"]


def translations(out):
    """Text and score by pair and row."""
    return {
        (pair, record["row"]): (record["hypothesis"], record["score"])
        for pair in PAIRS
        for record in map(json.loads, (out / f"{pair}.rank-0.jsonl").read_text(encoding="utf-8").splitlines())
    }


@pytest.mark.parametrize("changes", [{"capacity_factor": 0.5}, {"precision": "fp32"}])
def test_an_interruption_changes_no_translation(model, vocabulary, spec, tmp_path, changes):
    decode = replace(DECODE, batch_tokens=150, **changes)
    job = TranslateJob(
        title="translate",
        slot=0,
        pairs=PAIRS,
        targets=["en", "en"],
        bitexts=[],
        vocabulary=spec.vocabulary,
        checkpoints=spec.checkpoints,
        out=str(tmp_path),
        done=[[], []],
        decode=decode,
        runtime=load_config(["runtime.device=cpu"]).runtime,
    )
    place = Place(rank=0, world=1, on_host=1, device=torch.device("cpu"))
    searched = []

    class Noting(Translator):
        def search(self, batch):
            searched.append(batch)
            return super().search(batch)

    def run(job):
        searched.clear()
        translator = Noting(model, vocabulary, decode, max_source_tokens=0, long="whole")
        translate_rest(job, SOURCES, translator, place, stop=False)
        return sum(map(len, searched))

    assert run(job) == 24  # all but the empty one
    expected = translations(tmp_path)
    assert expected.keys() == {
        (pair, row) for pair, texts in zip(PAIRS, SOURCES, strict=True) for row in range(len(texts))
    }
    for pair, kept in zip(PAIRS, (9, 4), strict=True):  # killed in the middle of a line
        part = tmp_path / f"{pair}.rank-0.jsonl"
        lines = part.read_text(encoding="utf-8").split("\n")
        part.write_text("\n".join([*lines[:kept], lines[kept][:20]]), encoding="utf-8")
    done = [translated_rows(tmp_path, pair) for pair in PAIRS]
    assert [len(rows) for rows in done] == [9, 4]
    assert 0 < run(replace(job, done=done)) < 24
    assert translations(tmp_path) == expected
