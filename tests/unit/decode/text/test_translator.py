"""From texts to translations: lines are skipped, cut and joined, and do not depend on other lines."""

import json
from dataclasses import replace

import pytest
import torch

from pipeline.decode.model import check_vocabulary, load_model
from pipeline.decode.search.search import Hypothesis
from pipeline.decode.text.line import Line
from pipeline.decode.text.translator import Translator
from pipeline.vocab.tokenizer import Vocabulary
from tests.conftest import ROOT
from tests.unit.decode.conftest import DECODE, write_checkpoint

ROWS = (ROOT / "data/sample/train.tsv").read_text(encoding="utf-8").split("\n")[1:-1]
TURKISH = [text for text in (row.split("\t")[7] for row in ROWS) if text][:40]
LONG = " ".join(TURKISH[:12])


def lines(*texts):
    return [Line(text=text, target="en", number=number) for number, text in enumerate(texts)]


@pytest.fixture
def translator(model, vocabulary):
    def build(long="split", **changes):
        return Translator(model, vocabulary, replace(DECODE, **changes), max_source_tokens=24, long=long)

    return build


def translate(translator, lines):
    return [outcome for _, outcome in sorted(translator.translate(lines))]


def test_lines_stay_where_they_are_and_empty_ones_are_empty(translator):
    outcomes = translate(translator(), lines("", *TURKISH[:9], " \t\u3000", *TURKISH[9:20], "\r"))
    assert [index for index, outcome in enumerate(outcomes) if outcome.skipped == "empty"] == [0, 10, 22]
    assert all(outcome.text == "" for outcome in outcomes if outcome.skipped)
    assert len({outcome.text for outcome in outcomes}) > 5


def test_a_translation_does_not_depend_on_the_other_lines(translator):
    together = translate(translator(batch_tokens=200), lines(*TURKISH[:10]))
    for text, expected in zip(TURKISH[:10], together, strict=True):
        (alone,) = translate(translator(), lines(text))
        assert alone.text == expected.text
        assert alone.score == pytest.approx(expected.score, abs=1e-4)
        assert alone.cut == expected.cut


def test_each_line_may_ask_for_another_language(translator, vocabulary):
    tags = replace(vocabulary, tags={"en": vocabulary.tags["en"], "xx": vocabulary.tags["en"] + 1})
    batch = [Line(text=TURKISH[0], target=code) for code in ("en", "xx", "en")]
    mixed = Translator(translator().model, tags, DECODE, max_source_tokens=24).plan(batch)
    sources = {part.line: part.request.source for batch in mixed.batches for part in batch}
    assert [sources[line][0] for line in range(3)] == [tags.tags[line.target] for line in batch]
    assert sources[0][1:] == sources[1][1:]
    with pytest.raises(ValueError, match="target language 'de' has no tag"):
        translate(translator(), [Line(text="a", target="de")])


def test_a_prefix_is_given_to_the_search_as_target_tokens(translator, vocabulary):
    plan = translator().plan([Line(text=LONG, target="en", prefix="The file")])
    prefixes = {part.part: list(part.request.prefix) for batch in plan.batches for part in batch}
    assert vocabulary.decode_target([prefixes[0]]) == ["The file"]
    assert len(prefixes) > 2
    assert not any(prefixes[part] for part in prefixes if part)  # only the first part has the prefix


def test_a_prefix_may_be_as_long_as_a_line_and_leaves_room_whatever_the_source(translator, vocabulary):
    """Limits of length do not count the prefix, so a short source may have a long one."""
    short, words = TURKISH[0].split()[0], "The file is not open " * 20
    pieces = vocabulary.encode_target([words])[0]
    fitting, longer = (vocabulary.decode_target([pieces[:length]])[0] for length in (24, 28))
    assert [len(vocabulary.encode_target([text])[0]) - 1 for text in (fitting, longer)] == [24, 28]
    batch = [*lines(short), *(Line(text=short, target="en", prefix=prefix) for prefix in (fitting, longer))]
    outcomes = translate(translator(max_length_ratio=0.0), batch)
    assert [outcome.skipped for outcome in outcomes] == ["", "", "prefix_too_long"]
    assert [bool(outcome.text) for outcome in outcomes] == [True, True, False]
    assert outcomes[1].text.startswith(fitting)
    (whole,) = translate(translator("whole", max_length_ratio=0.0), batch[2:])
    assert whole.text.startswith(longer)


def test_a_batch_counts_the_longer_of_source_and_prefix(translator):
    """Every row of a batch has room for the keys and values of its longest prefix."""
    short = [Line(text=TURKISH[0].split()[0], target="en") for _ in range(40)]
    assert len(translator(batch_tokens=400).plan(short).batches) < 3
    prefixed = [replace(line, prefix="The file is not open in") for line in short]
    batches = translator(batch_tokens=400).plan(prefixed).batches
    for batch in batches:
        assert max(len(part.request.prefix) for part in batch) * len(batch) * DECODE.beam <= 400


def test_parts_of_a_line_are_sampled_apart(translator):
    plan = translator(search="sample").plan(lines(LONG))
    parts = [part for batch in plan.batches for part in batch]
    assert {part.request.part for part in parts} == set(range(len(parts)))
    assert len(parts) > 2


def test_what_a_capacity_drops_is_counted(translator):
    free, tight = translator(), translator(capacity_factor=0.5)
    translate(free, lines(*TURKISH[:8]))
    translate(tight, lines(*TURKISH[:8]))
    assert (free.drops.asked, free.drops.kept) == (0, 0)
    assert 0 < tight.drops.kept < tight.drops.asked


def test_a_long_line_is_split_into_parts_that_are_put_together(translator, vocabulary):
    (outcome,) = translate(translator(), lines(LONG))
    assert outcome.cut == "split"
    plan = translator().plan(lines(LONG))
    parts = sorted((part for batch in plan.batches for part in batch), key=lambda part: part.part)
    assert all(3 <= len(part.request.source) <= 24 for part in parts)
    assert LONG.startswith(vocabulary.source_model.decode(parts[0].request.source[1:-1]))
    best = [translator().search([part])[0][0] for part in parts]
    texts = [text for text in translator().texts(best) if text]
    assert outcome.text == " ".join(texts)
    weights = [len(hypothesis.tokens) + 1 for hypothesis in best]
    expected = sum(h.score * weight for h, weight in zip(best, weights, strict=True)) / sum(weights)
    assert outcome.score == pytest.approx(expected, abs=1e-4)


def test_the_next_best_of_a_line_in_parts_is_the_next_best_of_each(translator, vocabulary):
    def hypotheses(*texts):
        return [
            Hypothesis(tokens=vocabulary.encode_target([text])[0][:-1], score=-float(rank))
            for rank, text in enumerate(texts, start=1)
        ]

    parts = [hypotheses("One file.", "A file."), hypotheses("Two."), hypotheses("Three.", "3.", "III.")]
    alternatives = translator()._translated(parts, " ", "split").alternatives
    assert [alternative.text for alternative in alternatives] == [
        "One file. Two. Three.",
        "A file. Two. 3.",
        "A file. Two. III.",
    ]
    assert alternatives[0].score == pytest.approx(-1.0)
    assert -3.0 < alternatives[2].score < -1.0


def test_the_next_best_of_a_line_in_parts_are_no_better(translator, vocabulary):
    """The lengths of hypotheses do not matter: the second best of the good part is long, of the bad part short."""
    long, short = vocabulary.encode_target(["The file is not open in the window."])[0][:-1], [4]
    bad = [Hypothesis(tokens=short, score=-5.0), Hypothesis(tokens=short, score=-5.1)]
    good = [Hypothesis(tokens=short, score=-0.1), Hypothesis(tokens=long, score=-0.2)]
    alternatives = translator()._translated([bad, good], " ", "split").alternatives
    scores = [alternative.score for alternative in alternatives]
    assert scores == sorted(scores, reverse=True)
    assert scores[0] == pytest.approx(-2.55)


def test_a_long_line_is_truncated_skipped_or_taken_whole(translator, vocabulary):
    short = " ".join(vocabulary.source_model.decode(vocabulary.encode_source([LONG], "en")[0][1:23]).split())
    (truncated,), (skipped,) = (translate(translator(long), lines(LONG)) for long in ("truncate", "skip"))
    (expected,) = translate(translator(), lines(short))
    assert (truncated.text, truncated.cut) == (expected.text, "truncated")
    assert (skipped.text, skipped.skipped, skipped.cut) == ("", "too_long", "")
    tokens = vocabulary.encode_source([LONG], "en")[0]
    assert len(tokens) > len(translator().model.positions)
    (whole,) = translate(translator("whole", max_length_ratio=0.0), lines(LONG))
    assert (whole.cut, whole.skipped) == ("", "")
    assert whole.text


def test_a_text_is_one_line_whatever_the_model_spells(translator, vocabulary):
    spelled = [vocabulary.target_model.piece_to_id(piece) for piece in ("<0x41>", "<0x0A>", "<0x42>", "<0x0D>")]
    assert translator().texts([Hypothesis(tokens=spelled, score=0.0)]) == ["A B\r"]


def test_a_checkpoint_of_another_vocabulary_is_refused(model, vocabulary, prepared, tmp_path):
    load = {"config": DECODE, "device": torch.device("cpu")}
    other = write_checkpoint(tmp_path / "other", model, vocabulary="0123456789abcdef" * 4)
    with pytest.raises(ValueError, match=rf"trained with vocabulary 0123456789abcdef, and {prepared.vocabulary} is "):
        load_model(other, vocabulary, **load)
    right = write_checkpoint(tmp_path / "right", model, vocabulary=vocabulary.sha256)
    loaded = load_model(right, vocabulary, **load)
    assert all(torch.equal(*pair) for pair in zip(loaded.parameters(), model.parameters(), strict=True))


def test_an_old_checkpoint_is_judged_by_the_sizes_of_its_vocabulary(model, vocabulary, tmp_path):
    checkpoint = write_checkpoint(tmp_path, model) / "step-00000001"
    assert "vocabulary" not in json.loads((checkpoint / "state.json").read_text())
    check_vocabulary(checkpoint, vocabulary)
    swapped = Vocabulary(
        source_model=vocabulary.target_model, target_model=vocabulary.source_model, tags={}, shared=False
    )
    shared = replace(vocabulary, target_model=vocabulary.source_model, shared=True)
    sizes = vocabulary.source_size, vocabulary.target_size
    for wrong, expected in ((swapped, sizes[::-1]), (shared, (sizes[0], sizes[0]))):
        with pytest.raises(ValueError, match="one of {} and {} pieces.* is one of {} and {}".format(*sizes, *expected)):
            check_vocabulary(checkpoint, wrong)
