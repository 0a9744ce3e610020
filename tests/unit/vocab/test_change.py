"""Changes of a finished run's vocabulary, on rows of the sample: de-en and fr-en, to which languages are added."""

import json
import math
import random
from dataclasses import fields, replace
from pathlib import Path

import pytest
import sentencepiece

from pipeline.corpus.bitext import read_column
from pipeline.corpus.config import Rules
from pipeline.corpus.languages import LangPair
from pipeline.vocab.change import change_vocabulary
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.new_pieces import _comparable
from pipeline.vocab.pieces import Pieces
from pipeline.vocab.rows import RowSources
from pipeline.vocab.symbols import UNK
from pipeline.vocab.tokenizer import train_model, train_vocabulary
from pipeline.vocab.vocabulary import Vocabulary, vocabulary_sha256
from tests.corpora import clean_pair

SAMPLE = Path(__file__).parents[3] / "data" / "sample"
NO_RULES = Rules(**{rule.name: None for rule in fields(Rules)})
OLD = [LangPair("de", "en"), LangPair("fr", "en")]
RU, ES = LangPair("ru", "en"), LangPair("en", "es")
CONFIG = VocabConfig(shared=False, source_size=900, target_size=600)
CHANGE = replace(CONFIG, from_run="old", extend={"ru": None, "es": "en"}, extend_size=500)


@pytest.fixture(scope="module")
def bitexts(tmp_path_factory):
    """The first rows of the sample in which all languages have a text, by pair."""
    corpus = tmp_path_factory.mktemp("corpus")
    for split, number in {"train": 900, "dev": 20, "test": 60}.items():
        lines = (SAMPLE / f"{split}.tsv").read_text(encoding="utf-8").splitlines()
        columns = lines[0].split("\t")
        rows = [dict(zip(columns, line.split("\t"), strict=True)) for line in lines[1:]]
        rows = [row for row in rows if all(row[code] for code in ("de", "fr", "ru", "es", "en"))][:number]
        for pair in (*OLD, RU, ES):
            text = "".join(f"{row[pair.src]}\t{row[pair.tgt]}\n" for row in rows)
            (corpus / f"{split}.{pair.name}.tsv").write_text(text, encoding="utf-8")
    store = tmp_path_factory.mktemp("store")
    return {pair: clean_pair(corpus, pair.name, store, rules=NO_RULES).path for pair in (*OLD, RU, ES)}


@pytest.fixture(scope="module")
def old(bitexts, tmp_path_factory):
    """The vocabularies of de-en and fr-en, by whether one is shared."""
    directories = {}
    for shared in (False, True):
        directories[shared] = tmp_path_factory.mktemp("old")
        config = replace(CONFIG, shared=shared, target_size=900 if shared else 600)
        train_vocabulary(config, {pair: bitexts[pair] for pair in OLD}, directories[shared])
    return directories


@pytest.fixture(scope="module")
def changed(bitexts, old, tmp_path_factory):
    """Both vocabularies with Russian and Spanish."""
    directories = {}
    for shared, base in old.items():
        directories[shared] = tmp_path_factory.mktemp("changed")
        change_vocabulary(
            replace(CHANGE, shared=shared, target_size=CONFIG.source_size), base, bitexts, directories[shared]
        )
    return directories


def models(directory):
    return {path.stem: Pieces.read(path) for path in sorted(directory.glob("*.model"))}


@pytest.mark.parametrize("shared", [False, True])
def test_old_pieces_keep_their_ids_and_scores_and_new_ones_follow(old, changed, shared):
    for name, new in models(changed[shared]).items():
        before = models(old[shared])[name].proto.pieces
        assert list(new.proto.pieces)[: len(before)] == list(before)
        assert len(new.proto.pieces) > len(before) + 100
        assert len(set(new.names)) == len(new.names)
    vocabulary, base = Vocabulary.load(changed[shared]), Vocabulary.load(old[shared])
    assert vocabulary.tags == {"en": base.tags["en"], "es": vocabulary.source_size - 1}
    assert vocabulary.source_model.id_to_piece(vocabulary.tags["es"]) == "<2es>"
    assert vocabulary.source_model.is_control(vocabulary.tags["es"])
    content = json.loads((changed[shared] / "vocab.json").read_text(encoding="utf-8"))
    sizes = content["changes"]["shared" if shared else "source"]
    assert (sizes["before"], sizes["after"]) == (base.source_size, content["source_size"])
    assert content["source_size"] == vocabulary.source_size == base.source_size + sizes["added"]
    assert (content["target_size"], sizes["removed"]) == (vocabulary.target_size, 0)


def test_text_of_old_characters_is_cut_as_before_by_pieces_with_new_ones(bitexts, old, tmp_path):
    """No text to compare with: then every new piece has a character that no old piece has."""
    only_russian = {RU: bitexts[RU]}
    change_vocabulary(replace(CHANGE, extend={"ru": None}), old[False], only_russian, tmp_path)
    before, after = models(old[False])["source"], models(tmp_path)["source"]
    new = after.names[len(before.names) :]
    assert len(new) > 100
    assert not any(set(piece) <= before.characters for piece in new)
    assert (tmp_path / "target.model").read_bytes() == (old[False] / "target.model").read_bytes()
    draw, old_characters = random.Random(1), sorted(before.characters - {"▁"})
    texts = ["".join(draw.choices([*old_characters, " "], k=40)) for _ in range(300)]
    texts += [text for pair in OLD for text in read_column(bitexts[pair], "test", "src")]
    assert after.processor().encode(texts) == before.processor().encode(texts)
    foreign = ["日本語 and text", "a 𓀀 b", "ß日ß"]  # characters that neither has
    assert after.processor().encode(foreign) == before.processor().encode(foreign)


@pytest.mark.parametrize("shared", [False, True])
def test_the_text_of_the_other_languages_is_cut_as_before(bitexts, old, changed, shared):
    """Spanish pieces of known characters are used in Spanish, and nowhere in the training text of the others."""
    before, after = Vocabulary.load(old[shared]), Vocabulary.load(changed[shared])
    for pair in OLD:
        for side, name in (("src", "source"), ("tgt", "target")):
            old_characters = models(old[shared])["shared" if shared else name].characters
            texts = [
                text
                for text in read_column(bitexts[pair], "train", side)
                if old_characters.issuperset(text.replace(" ", "▁"))
            ]
            assert len(texts) > 150
            cut, cut_before = (getattr(vocabulary, f"{name}_model").encode(texts) for vocabulary in (after, before))
            assert cut == cut_before
    texts = read_column(bitexts[ES], "test", "tgt")
    rows, rows_before = after.target_model.encode(texts), before.target_model.encode(texts)
    pieces = {after.target_model.id_to_piece(i) for ids in rows for i in ids if i >= before.target_size}
    assert len([piece for piece in pieces if set(piece) <= old_characters]) > 20
    assert sum(map(len, rows)) < 0.8 * sum(map(len, rows_before))
    assert after.decode_target(rows) == texts


def test_new_text_is_cut_about_as_by_a_model_of_its_own(bitexts, changed):
    """Scores of new pieces compare with the old ones, so nearly as few pieces are needed as if they were alone."""
    texts = read_column(bitexts[RU], "train", "src")
    own = train_model(CONFIG, iter(texts), 500, "size", (), "nmt_nfkc", uncounted=260)
    alone = sentencepiece.SentencePieceProcessor(model_proto=own)
    test = read_column(bitexts[RU], "test", "src")
    after = Vocabulary.load(changed[False]).source_model
    assert sum(map(len, after.encode(test))) < 1.05 * sum(map(len, alone.encode(test)))
    assert not any(UNK in ids for ids in after.encode(test))


def test_scores_are_those_of_a_mixture_by_number_of_pieces(old):
    """A model of 1,000 pieces and a text of 4 new ones: log(4 / pieces) is added, and the lowest score is a floor."""
    model = models(old[False])["target"]
    scores = model.scores
    old_piece = next(iter(scores))
    lowest = min(scores.values())
    result = _comparable({old_piece: -1.0, "ж": -2.0, "жж": -3.0, "▁ж": -1000.0}, model)
    shift = math.log(4 / len(scores))
    assert result == {"ж": -2.0 + shift, "жж": max(-3.0 + shift, lowest), "▁ж": lowest}


@pytest.mark.parametrize("shared", [False, True])
def test_rows_start_from_the_old_spelling_of_a_piece(old, changed, shared):
    sources = RowSources.load(changed[shared])
    assert RowSources.load(old[shared]) is None
    assert sources.vocabulary == vocabulary_sha256(old[shared])
    vocabulary = Vocabulary.load(changed[shared])
    for name, rows in (("source", sources.source), ("target", sources.target)):
        base = models(old[shared])["shared" if shared else name]
        new = models(changed[shared])["shared" if shared else name].names
        assert len(rows) == len(new)
        assert rows[: len(base.names)] == [[index] for index in range(len(base.names))]
        for piece, row in list(zip(new, rows, strict=True))[len(base.names) :]:
            if piece == "<2es>":
                assert row == [vocabulary.tags["en"]]
            else:
                assert spelled(base, row) == piece
                assert UNK not in row


def spelled(model, ids):
    """Return the text of pieces, of which single bytes are put together."""
    text = b""
    for index in ids:
        piece = model.names[index]
        text += bytes([int(piece[3:5], 16)]) if piece.startswith("<0x") else piece.encode()
    return text.decode()


def test_a_size_below_the_characters_of_the_text_is_an_error(bitexts, old, tmp_path):
    with pytest.raises(ValueError, match=r"vocab\.extend_size=20 is too small for .*; choose (\d+) or more") as error:
        change_vocabulary(replace(CHANGE, extend_size=20), old[False], bitexts, tmp_path)
    smallest = int(str(error.value).split("choose ")[1].split()[0])
    assert 40 < smallest < 200
    change_vocabulary(replace(CHANGE, extend_size=smallest), old[False], bitexts, tmp_path)


def test_other_kinds_of_models_are_refused(tmp_path):
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three four five six"] * 20),
        model_prefix=str(tmp_path / "source"),
        vocab_size=30,
        model_type="bpe",
        minloglevel=2,
    )
    with pytest.raises(ValueError, match=r"source\.model is a bpe model .*; pieces can be added to unigram models"):
        Pieces.read(tmp_path / "source.model")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"extend": {"pt": "es"}},
            r"vocab\.extend changes the vocabulary of a finished run; name the run, by vocab\.f",
        ),
        ({"trim": True}, r"vocab\.trim changes the vocabulary of a finished run; .* or leave vocab\.trim out"),
        ({"extend": {}, "from_run": "old"}, r"vocab\.extend=\{\} names no language; name one, as vocab\.extend=\{pt"),
        ({"extend_size": 0}, r"vocab\.extend_size=0 has no effect without vocab\.extend; "),
        (
            {"extend": {"pt": "es"}, "from_run": "old", "extend_size": -1},
            r"vocab\.extend_size=-1 is negative; choose 0 \(tags alone\) or more",
        ),
    ],
)
def test_settings_that_make_no_sense_are_errors(settings, message):
    with pytest.raises(ValueError, match=message):
        replace(CONFIG, **settings)


@pytest.mark.parametrize("shared", [False, True])
def test_a_trimmed_vocabulary_has_the_pieces_that_the_text_uses(bitexts, old, tmp_path, shared, caplog):
    """French and Russian alone: German pieces go, and the text is cut as before, with other ids."""
    text = {OLD[1]: bitexts[OLD[1]], RU: bitexts[RU]}
    settings = replace(CHANGE, shared=shared, target_size=900 if shared else 600, extend={"ru": "en"})
    (tmp_path / "grown").mkdir()
    (tmp_path / "trimmed").mkdir()
    change_vocabulary(settings, old[shared], text, tmp_path / "grown")
    with caplog.at_level("INFO"):
        change_vocabulary(replace(settings, trim=True), old[shared], text, tmp_path / "trimmed")
    grown, trimmed = Vocabulary.load(tmp_path / "grown"), Vocabulary.load(tmp_path / "trimmed")
    sizes = json.loads((tmp_path / "trimmed" / "vocab.json").read_text(encoding="utf-8"))["changes"]
    sources = RowSources.load(tmp_path / "trimmed")
    for side, name in (("src", "source"), ("tgt", "target")):
        before, after = getattr(grown, f"{name}_model"), getattr(trimmed, f"{name}_model")
        of_model = sizes["shared" if shared else name]
        assert of_model["removed"] == before.get_piece_size() - after.get_piece_size()
        assert of_model["removed"] > 50 or name == "target"  # all the English pieces have a use
        line = f"{of_model['before']:,} pieces before, {of_model['after']:,} after"
        assert any(line in message for message in caplog.messages)
        assert json.loads((tmp_path / "trimmed" / "vocab.json").read_text())[f"{name}_size"] == after.get_piece_size()
        used = set()
        for pair, directory in text.items():
            for split in ("train", "dev"):
                texts = read_column(directory, split, side)
                pieces = after.encode(texts, out_type=str)
                assert pieces == before.encode(texts, out_type=str), (pair, split)
                used |= {piece for row in pieces for piece in row}
        base, new = (models(place)["shared" if shared else name] for place in (old[shared], tmp_path / "trimmed"))
        if not shared:
            assert len(new.scores.keys() - used) <= 1  # the one of the lowest score
        rows = dict(zip(new.names, getattr(sources, name), strict=True))
        kept = [piece for piece in base.names if piece in rows]
        assert new.names[: len(kept)] == kept
        assert [rows[piece] for piece in kept] == [[base.names.index(piece)] for piece in kept]
        odd = ["日本語 and text", "𓀀 a"]
        assert after.encode(odd, out_type=str) == before.encode(odd, out_type=str)
    assert trimmed.tags["en"] == old_tag(old[shared])
    assert trimmed.source_model.id_to_piece(trimmed.tags["ru"]) == "<2ru>"


def old_tag(directory):
    return Vocabulary.load(directory).tags["en"]
