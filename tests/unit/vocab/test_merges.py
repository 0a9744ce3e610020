"""Pieces that are added to BPE models: merges that continue old pieces."""

import io

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from pipeline.config import ROOT
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.merges import learn_merges
from pipeline.vocab.new_pieces import _reachable, _without_effect, with_new_pieces
from pipeline.vocab.pieces import Pieces
from tests.imports import rows_of_the_sample

CONFIG = VocabConfig(shared=True, source_size=1, target_size=1, from_run="x", extend={"tr": None}, extend_size=600)


def bpe_of(path, *names):
    """Return a BPE model of some pieces, the first merge first."""
    proto = sentencepiece_model_pb2.ModelProto()
    for symbol, kind in (("<unk>", 2), ("<s>", 3), ("</s>", 3)):
        proto.pieces.add(piece=symbol, type=kind)
    for place, name in enumerate(names):
        proto.pieces.add(piece=name, score=-place)
    proto.trainer_spec.model_type = sentencepiece_model_pb2.TrainerSpec.BPE
    proto.normalizer_spec.name = "identity"
    path.write_bytes(proto.SerializeToString())
    return Pieces.read(path, imported=True)


@pytest.fixture
def letters(tmp_path):
    return bpe_of(tmp_path / "letters.model", "ab", "▁", "a", "b", "c", "1", ".")


def scored(model, names):
    lowest = min(model.scores.values())
    return {name: lowest - place for place, name in enumerate(names, start=1)}


def extended(model, names):
    return model.with_pieces(scored(model, names))


class SideBySide:
    """Text as NewText has it."""

    def __init__(self, new, old):
        self.texts = {True: new, False: old}

    def sampled(self, name, *, new):
        return iter(self.texts[new])


def test_merges_continue_old_pieces_the_most_frequent_one_first(letters):
    names = learn_merges(letters.processor(), ["abc abc abc abd", "abd"], 9, 1.0)
    assert names == ["d", "▁ab", "▁abc", "▁abd"]  # 5, 3 and 2 times
    processor = extended(letters, names).processor()
    assert processor.encode("abc abd ab", out_type=str) == ["▁abc", "▁abd", "▁ab"]
    assert learn_merges(letters.processor(), ["abc abc abc abd", "abd"], 3, 1.0) == names[:3]
    assert learn_merges(letters.processor(), ["abc abc abc abd", "abd"], 2, 1.0, spare=1) == names[:3]


def test_merges_go_over_no_space_digit_or_full_stop(letters):
    names = learn_merges(letters.processor(), ["ca1. ca1.", "1c."] * 9, 99, 1.0)
    assert names == ["▁c", "▁ca"]


def test_characters_beyond_the_coverage_stay_unknown(letters):
    texts = ["ж" * 98 + "щё"]
    assert learn_merges(letters.processor(), texts, 50, 1.0)[:3] == ["ж", "щ", "ё"]
    names = learn_merges(letters.processor(), texts, 50, 0.95)
    assert names[0] == "ж"
    assert not {"щ", "ё"} & set("".join(names))


def test_too_many_new_characters_are_an_error(letters):
    with pytest.raises(ValueError, match=r"vocab\.extend_size=2 is too small for the 3 characters .* choose 3 or more"):
        learn_merges(letters.processor(), ["жщё"], 2, 1.0)


def test_a_merge_that_leads_to_an_old_piece_is_seen(tmp_path):
    """No old merge makes abc of its characters, and the new piece ab does."""
    model = bpe_of(tmp_path / "a.model", "abc", "▁", "a", "b", "c", "d")
    assert extended(model, ["ab"]).processor().encode("abc", out_type=str) == ["▁", "abc"]
    lowest = min(model.scores.values())
    familiar = {"ab": lowest - 1, "dd": lowest - 2}
    assert _without_effect(model, {}, familiar, ["abc", "d"]) == {"dd": lowest - 2}
    assert _without_effect(model, {}, familiar, ["a bc", "d d"]) == familiar


def test_turkish_is_cut_into_fewer_pieces_than_by_an_appended_model(tmp_path):
    """Beside a few more pieces of a BPE model of Turkish, put after the old ones, filtered alike (docs/import.md)."""
    rows = rows_of_the_sample()[1:]
    english, turkish = ([row[column] for row in rows if row[column]] for column in (0, 7))
    learned, further = turkish[:600], turkish[600:]
    old = trained(tmp_path / "old.model", english, 2000)
    grown = with_new_pieces(CONFIG, old, SideBySide(learned, english), "shared")
    new = grown.names[len(old.names) :]
    assert 590 < len(new) <= 600
    assert not {*new} & {*old.names}
    assert [grown.speller().encode(name) for name in new] == [[len(old.names) + place] for place in range(len(new))]
    foreign = [name for name in new if not old.characters.issuperset(name)]
    assert len(foreign) > 100
    assert grown.processor().encode(english) == extended(old, foreign).processor().encode(english)
    lengths = [sum(map(len, model.processor().encode(further))) for model in (old, grown)]
    appended = [name for name in trained(tmp_path / "own.model", learned, 2500).names if name not in old.names]
    appended.sort(key=lambda name: len(name) > 1)  # characters first, as in ours
    rival = extended(old, filtered(old, appended, english, 620))
    assert len(rival.names) >= len(grown.names)
    before, after, other = *lengths, sum(map(len, rival.processor().encode(further)))
    text = " ".join((ROOT / "docs" / "import.md").read_text(encoding="utf-8").split())
    assert f"adds {len(new)} pieces of Turkish" in text
    assert f"then has {after:,} pieces in place of {before:,}." in text
    assert f"With {len(rival.names) - len(old.names)} pieces of a BPE model of Turkish" in text
    assert f"it has {other:,}." in text
    assert after < other


def filtered(model, names, texts, size):
    """Return the first pieces that `with_new_pieces` would add of some, the most frequent first."""
    scores = scored(model, names)
    foreign = {name: score for name, score in scores.items() if not model.characters.issuperset(name)}
    familiar = {name: score for name, score in scores.items() if name not in foreign}
    kept = {**foreign, **_without_effect(model, foreign, familiar, texts)}
    return [*_reachable(model, {name: scores[name] for name in scores if name in kept}, size)]


def trained(path, texts, size):
    """Return a BPE model that SentencePiece trains as it did for NLLB."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="bpe", vocab_size=size, minloglevel=2
    )
    path.write_bytes(model.getvalue())
    return Pieces.read(path, imported=True)
