"""Augmentation changes the share of rows that it is told to, by the seed alone, and keeps lengths and tags."""

import json
from collections import Counter
from dataclasses import replace
from random import Random

import numpy as np
import pytest
import sentencepiece

from pipeline.batch.assembly import assemble
from pipeline.batch.augmentation import Augmentation
from pipeline.batch.config import AUGMENTATIONS
from pipeline.batch.lengths import PairLengths
from pipeline.batch.mixture import Mixture
from pipeline.config import load_config
from pipeline.vocab.config import VocabConfig
from pipeline.vocab.symbols import EOS
from pipeline.vocab.tokenizer import Vocabulary, train_model
from tests.unit.batch.streams import config, named, take

WORDS = ("haus", "garten", "fenster", "datei", "baum", "hund", "katze", "strasse", "wasser", "wolke", "Hannover")
ENGLISH = ("house", "garden", "window", "file", "tree", "dog", "cat", "street", "water", "cloud", "Hannover")
ALL = dict.fromkeys(AUGMENTATIONS, 0.08)
STEPS = 20


class Rows:
    """Encoded rows of a pair."""

    def __init__(self, sources, targets):
        self.sides = [[np.array(ids, dtype=np.uint16) for ids in side] for side in (sources, targets)]

    def source(self, index):
        return self.sides[0][index]

    def target(self, index):
        return self.sides[1][index]

    def lengths(self, name):
        source, target = (np.array([len(ids) for ids in side]) for side in self.sides)
        return PairLengths(name=name, source=source, target=target, sources=[("web", len(source))])


def sentences(words, count):
    rng = Random(1)
    return [" ".join(rng.choices(words, k=rng.randint(2, 6))).capitalize() + "." for _ in range(count)]


@pytest.fixture(scope="module")
def vocabulary():
    texts = [text for words in (WORDS, ENGLISH) for text in sentences(words, 300)]
    settings = VocabConfig(shared=True, source_size=420, target_size=420)
    model = train_model(settings, iter(texts), 420, "vocab.source_size", ["<2de>", "<2en>", "<bt>"], "identity")
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    tags = {"tags": {"de": 4, "en": 5}, "source_tags": {"bt": 6}}
    return Vocabulary(source_model=processor, target_model=processor, shared=True, **tags)


@pytest.fixture(scope="module")
def data(vocabulary):
    """Rows of de-en, of which every third has the tag of back-translation, and of en-de."""
    german, english = sentences(WORDS, 240), sentences(ENGLISH, 240)
    marked = vocabulary.encode_source(german, "en")
    marked = [[ids[0], 6, *ids[1:]] if row % 3 == 0 else ids for row, ids in enumerate(marked)]
    return [
        Rows(marked, vocabulary.encode_target(english)),
        Rows(vocabulary.encode_source(english, "de"), vocabulary.encode_target(german)),
    ]


PAIRS = ["de-en", "en-de"]


def batch(shares, **changes):
    return replace(config(), augment=shares, **changes)


def stream(vocabulary, data, settings, seed=3):
    augmentation = Augmentation(settings, PAIRS, data, vocabulary, seed=seed) if settings.augment else None
    lengths = [rows.lengths(name) for rows, name in zip(data, PAIRS, strict=True)]
    return Mixture(settings, lengths, seed=seed, augmentation=augmentation)


def rows_of(steps, data):
    """Return source and target tokens of all rows of the steps."""
    return [
        (tuple(overlaid[pair].source(index).tolist()), tuple(overlaid[pair].target(index).tolist()))
        for step in steps
        for overlaid in [data if step.changed is None else step.changed.over(data)]
        for pair, index in step.sentences.tolist()
    ]


def counts_of(steps):
    totals = Counter()
    for step in steps:
        for kind, outcomes in step.changed.count(step.sentences).items():
            totals.update({(kind, outcome): number for outcome, number in outcomes.items()})
    return totals


def test_the_order_of_the_settings_does_not_matter(vocabulary, data):
    """The key of the stage does not tell two orders apart."""
    one, two = ({"typos": 0.3, "upper": 0.2}, {"upper": 0.2, "typos": 0.3})
    streams = [take(stream(vocabulary, data, batch(shares)), STEPS) for shares in (one, two)]
    assert rows_of(streams[0], data) == rows_of(streams[1], data)


def test_without_shares_the_stream_is_the_plain_one(vocabulary, data):
    plain = take(stream(vocabulary, data, config()), STEPS)
    zero = take(stream(vocabulary, data, batch({"typos": 0.0})), STEPS)
    assert named(plain) == named(zero)
    assert all(step.changed is None for step in plain + zero)


def test_changed_rows_fit_and_keep_their_tags(vocabulary, data):
    steps = take(stream(vocabulary, data, batch(ALL)), STEPS)
    plain = set(rows_of(take(stream(vocabulary, data, config()), 60), data))
    rows = rows_of(steps, data)
    lengths = np.concatenate([step.lengths for step in steps])
    assert [(len(source), len(target)) for source, target in rows] == list(map(tuple, lengths.tolist()))
    assert (lengths <= (64, 48)).all()
    assert 0.4 < sum(row not in plain for row in rows) / len(rows) < 0.85
    for step in steps:
        overlaid = step.changed.over(data)
        for pair, index in step.sentences.tolist():
            names = step.changed.plain_names(np.array([[pair, index]])).tolist()
            plain_rows = [data[pair].source(row) for _, row in names]
            source = overlaid[pair].source(index)
            num_tags = 2 if plain_rows[0][1] == 6 else 1
            assert {tuple(row[:num_tags].tolist()) for row in plain_rows} == {tuple(source[:num_tags].tolist())}
            assert (source[-1], overlaid[pair].target(index)[-1]) == (EOS, EOS)
            assert source[num_tags] > 6


@pytest.mark.parametrize("kind", AUGMENTATIONS)
def test_each_kind_does_what_it_says(vocabulary, data, kind):
    steps = take(stream(vocabulary, data, batch({kind: 1.0})), 8)
    texts = [[vocabulary.decode_target([side])[0] for side in row] for row in rows_of(steps, data)]
    counts = counts_of(steps)
    assert counts[kind, "drawn"] >= len(texts)
    sources = [source for source, _ in texts]
    checks = {
        "upper": lambda text: text == text.upper(),
        "title": lambda text: text == text.title(),
        "full_stop": lambda text: not text.endswith("."),
        "typos": lambda text: not {*text[:-1].lower().split()} <= {word.lower() for word in (*WORDS, *ENGLISH)},
        "word": lambda text: " " not in text,
        "number": str.isdecimal,
        "url": lambda text: text.startswith("https://www."),
        "emoji": lambda text: not any(map(str.isascii, text)),
        "merged": lambda text: text.count(".") == 2,
    }
    if kind == "subwords":
        assert {text.lower().rstrip(".") for text in sources} <= {
            text.lower().rstrip(".") for words in (WORDS, ENGLISH) for text in sentences(words, 240)
        }
        default = {tuple(ids.tolist()) for rows in data for ids in rows.sides[0]}
        assert sum(source not in default for source, _ in rows_of(steps, data)) > 0.6 * len(
            texts
        )  # small pieces make some rows too long
    else:
        num_done = sum(map(checks[kind], sources))
        rows_of_one = 2 if kind == "merged" else 1
        assert counts[kind, "changed"] == rows_of_one * num_done
        assert num_done > (0.3 if kind == "word" else 0.7) * len(texts)


def test_the_stream_is_a_function_of_the_seed_and_resumes_anywhere(vocabulary, data):
    straight = take(stream(vocabulary, data, batch(ALL)), STEPS)
    assert named(straight) == named(take(stream(vocabulary, data, batch(ALL)), STEPS))
    other = take(stream(vocabulary, data, batch(ALL), seed=4), STEPS)
    assert rows_of(straight, data) != rows_of(other, data)
    for stop in (1, 6, 13):
        first = stream(vocabulary, data, batch(ALL))
        head = take(first, stop)
        resumed = stream(vocabulary, data, batch(ALL))
        resumed.restore(json.loads(json.dumps(first.position.state())))
        assert (resumed.position.leftover >= 0).all()
        steps = head + take(resumed, STEPS - stop)
        assert rows_of(steps, data) == rows_of(straight, data)


def test_a_row_that_becomes_too_long_keeps_its_plain_form(vocabulary, data):
    longest = max(len(ids) for rows in data for side in rows.sides for ids in side)
    shapes = [replace(shape, source=longest, target=longest) for shape in config().shapes]
    steps = take(stream(vocabulary, data, batch({"upper": 0.5, "merged": 0.5}, shapes=shapes)), 10)
    counts = counts_of(steps)
    assert min(counts[kind, "too_long"] for kind in ("upper", "merged")) > 0
    for kind in ("upper", "merged"):
        assert counts[kind, "drawn"] >= counts[kind, "changed"] + counts[kind, "too_long"]
    assert max(max(map(len, row)) for row in rows_of(steps, data)) <= longest


def test_each_row_is_drawn_as_often_as_without(vocabulary, data):
    """No row is lost or doubled: of the first window, the steps and the leftover are the rows that were drawn."""
    mixture = stream(vocabulary, data, batch(ALL))
    steps, following = mixture._window(mixture.position)
    names = [steps[0].changed.plain_names(step.sentences) for step in steps]
    after = Counter(map(tuple, np.concatenate([*names, following.leftover]).tolist()))
    plain = stream(vocabulary, data, config())
    plain_steps, plain_following = plain._window(plain.position)
    before = [*(step.sentences for step in plain_steps), plain_following.leftover]
    assert after == Counter(map(tuple, np.concatenate(before).tolist()))


def test_batches_are_made_of_changed_rows(vocabulary, data):
    step = next(iter(stream(vocabulary, data, batch({"upper": 1.0}))))
    tensors = assemble(step.group(0), step.shape, step.changed.over(data))
    kept = tensors.encoder_tokens_BL[0][tensors.encoder_segments_BL[0] == 1].tolist()
    text = vocabulary.decode_target([kept[1:]])[0]
    assert text == text.upper()
    targets = sum(
        int((assemble(g, step.shape, step.changed.over(data)).decoder_segments_BT > 0).sum()) for g in step.groups
    )
    assert targets == step.target_tokens


def test_a_row_with_an_unknown_character_stays(vocabulary, data):
    row = data[0].source(1).copy()
    row[1] = 3
    unknown = [Rows([row], [data[0].target(1)]), data[1]]
    steps = take(stream(vocabulary, unknown, batch({"upper": 1.0})), 3)
    tagged = {source for source, _ in rows_of(steps, unknown) if source[0] == 5}
    assert tagged == {tuple(row.tolist())}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"augment": {"typo": 0.1}}, r"batch.augment.typo does not exist; did you mean typos"),
        ({"augment": {"typos": 1.2}}, r"batch.augment.typos=1.2 must be a share of the rows, from 0 to 1"),
        ({"augment": {"typos": 0.6, "upper": 0.6}}, r"batch.augment: shares sum to 1.2, .*; lower them to 1 in all"),
        ({"subword_alpha": 0.0}, r"batch.subword_alpha=0.0 must be above 0"),
        ({"subword_nbest": 1}, r"batch.subword_nbest=1 must be from 2 to 512"),
    ],
)
def test_wrong_settings_are_errors(changes, message):
    with pytest.raises(ValueError, match=message):
        replace(config(), **changes)


def test_settings_are_in_keys_and_records_only_where_they_have_an_effect():
    default = load_config(["recipes=smoke"])
    keys = {"shapes", "groups_per_step", "mixture", "window_steps"}
    assert set(default.batch.to_key()) == keys == set(default.to_json()["batch"])
    assert load_config(["recipes=smoke", "+batch.augment.typos=0"]).to_json() == default.to_json()
    typos = load_config(["recipes=smoke", "+batch.augment.typos=0.1", "batch.subword_alpha=0.5"])
    assert typos.batch.to_key()["augment"] == {"typos": 0.1}
    assert set(typos.batch.to_key()) == keys | {"augment"}
    subwords = load_config(["recipes=smoke", "+batch.augment.subwords=0.1"])
    assert subwords.batch.to_key()["subword_alpha"] == 0.1
    assert set(subwords.to_json()["batch"]) == keys | {"augment"}
    with pytest.raises(ValueError, match=r"batch.augment.typos names something new; add it with a plus"):
        load_config(["recipes=smoke", "batch.augment.typos=0.1"])
