"""A translation that continues after an interruption gives what an uninterrupted one gives."""

from dataclasses import replace

import pytest
import torch

from pipeline.decode.job.process import translate_round
from pipeline.decode.job.shards import make_shards
from pipeline.decode.text.translator import Translator
from pipeline.jobs.device import Place
from tests.unit.decode.conftest import DECODE
from tests.unit.decode.text.test_translator import TURKISH

SOURCES = {"tr-en": ["", *TURKISH[:14]], "az-en": TURKISH[14:24]}


@pytest.mark.parametrize("changes", [{"capacity_factor": 0.5}, {"precision": "fp32"}])
def test_an_interruption_changes_no_translation(model, vocabulary, tmp_path, changes):
    decode = replace(DECODE, batch_tokens=150, **changes)
    shards = [shard for pair, lines in SOURCES.items() for shard in make_shards(tmp_path / pair, lines, target="en")]
    place = Place(rank=0, world=1, on_host=1, device=torch.device("cpu"))
    searched = []

    class Recording(Translator):
        def search(self, batch):
            searched.append(batch)
            return super().search(batch)

    def run():
        searched.clear()
        translator = Recording(model, vocabulary, decode, max_source_tokens=0, long="whole")
        translate_round(shards, translator, place, stop=False, title="translate")
        return sum(map(len, searched))

    assert run() == 24  # all but the empty line
    expected = []
    for shard, num_lines in zip(shards, (9, 4), strict=True):  # killed in the middle of a line
        lines = shard.part(0).read_text(encoding="utf-8").split("\n")
        assert shard.gather()
        expected.append(shard.records())
        shard.part(0).with_name(f"{shard.part(0).name.split('.')[0]}.jsonl").unlink()
        shard.part(0).write_text("\n".join([*lines[:num_lines], lines[num_lines][:20]]), encoding="utf-8")
        assert not shard.gather()
        assert len(shard.records()) == num_lines
    assert 0 < run() < 24
    for shard, records in zip(shards, expected, strict=True):
        assert shard.gather()
        assert shard.records() == records
