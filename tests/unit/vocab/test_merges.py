"""Pieces that are added to BPE models: merges that continue old pieces."""

import io
import random

import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2

from pipeline.vocab.merges import learn_merges
from pipeline.vocab.new_pieces import _without_effect
from pipeline.vocab.pieces import Pieces
from tests.imports import rows_of_the_sample


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


def extended(model, names):
    lowest = min(model.scores.values())
    return model.with_pieces({name: lowest - place for place, name in enumerate(names, start=1)})


def test_merges_continue_old_pieces_the_most_frequent_one_first(letters):
    names = learn_merges(letters.processor(), ["abc abc abc abd", "abd"], 9, 1.0)
    assert names == ["d", "▁ab", "▁abc", "▁abd"]  # 5, 3 and 2 times
    processor = extended(letters, names).processor()
    assert processor.encode("abc abd ab", out_type=str) == ["▁abc", "▁abd", "▁ab"]
    assert learn_merges(letters.processor(), ["abc abc abc abd", "abd"], 3, 1.0) == names[:3]


def test_merges_go_over_no_space_digit_or_full_stop(letters):
    names = learn_merges(letters.processor(), ["ca1. ca1.", "1c."] * 9, 99, 1.0)
    assert names == ["ca", "▁ca"] or names == ["▁c", "▁ca"]


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
    """Beside the pieces of a BPE model of Turkish, put after the old ones, which old merges often prevent."""
    rows = rows_of_the_sample()[1:]
    english, turkish = ([row[column] for row in rows if row[column]] for column in (0, 7))
    old = trained(tmp_path / "old.model", english, 2000)
    own = trained(tmp_path / "own.model", turkish[:600], 600)
    merges = learn_merges(old.processor(), turkish[:600], 600, 1.0)
    assert len({*merges}) == len(merges) == 600
    assert not {*merges} & {*old.names}
    appended = [name for name in own.names if name not in old.names]
    lengths = {}
    for kind, names in {"none": [], "merges": merges, "appended": appended}.items():
        lengths[kind] = sum(map(len, extended(old, names).processor().encode(turkish[600:])))
    assert lengths["merges"] < 0.86 * lengths["appended"] < 0.6 * lengths["none"]
    draw, characters = random.Random(1), sorted(old.characters - {"▁"})
    processor = old.processor()
    texts = [text for text in english if processor.unk_id() not in processor.encode(text)]
    texts += ["".join(draw.choices([*characters, " "], k=40)) for _ in range(300)]
    foreign = [name for name in merges if not old.characters.issuperset(name)]
    assert len(foreign) > 50
    assert extended(old, foreign).processor().encode(texts) == processor.encode(texts)


def trained(path, texts, size):
    """Return a BPE model that SentencePiece trains as it did for NLLB."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(texts), model_writer=model, model_type="bpe", vocab_size=size, minloglevel=2
    )
    path.write_bytes(model.getvalue())
    return Pieces.read(path, imported=True)
