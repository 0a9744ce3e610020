"""Lines that the processes of a job translated are read with what their records say of them."""

from dataclasses import replace

import torch

from pipeline.commands.translated_corpus import Translation, translate_lines
from pipeline.config import load_config
from pipeline.corpus.languages import LangPair
from pipeline.dag.store import Store
from pipeline.decode.job.process import translate_round
from pipeline.decode.job.shards import make_shards
from pipeline.decode.model import load_model
from pipeline.decode.text.translator import Translator
from pipeline.finished_run import FinishedRun
from pipeline.jobs.device import Place
from pipeline.vocab.tokenizer import Vocabulary
from tests.unit.commands.conftest import ROWS

LINES = [ROWS[0][0], "", ROWS[1][0]]


def test_translations_that_the_limit_of_length_ended_are_read_as_the_others(place, tmp_path):
    run = FinishedRun.open("old", runs=place / "runs", store=Store(place / "artifacts"))
    decode = replace(run.decode, max_length_ratio=0.0, max_length_extra=40, precision="fp32")
    vocabulary = Vocabulary.load(run.vocabulary.path)
    device = torch.device("cpu")
    model = load_model(run.model.path / "checkpoints", vocabulary, longest=48, config=decode, device=device)
    (shard,) = make_shards(tmp_path / "work", LINES, source="tr", target="en", rows=10)
    translator = Translator(model, vocabulary, decode, max_source_tokens=48, long="skip")
    translate_round([shard], translator, Place(rank=0, world=1, on_host=1, device=device), stop=False, title="lines")
    assert shard.gather()
    records = shard.records()
    assert [records[row].get("at_limit") for row in range(3)] == [False, None, True]  # the second repeats itself
    pair, runtime = LangPair("tr", "en"), load_config([]).runtime
    # All lines have a record, so no process is started.
    read = list(translate_lines(run, pair, LINES, work=tmp_path / "work", runtime=runtime, decode=decode))
    assert [line.source for line in read] == LINES
    assert read[1] == Translation(source="", skipped="empty")
    for row in (0, 2):
        assert read[row] == Translation(source=LINES[row], text=records[row]["text"], score=records[row]["score"])
