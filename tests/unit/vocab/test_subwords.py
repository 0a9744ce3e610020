"""Segmentations are drawn by the model's scores and the caller's generator, the same in every process."""

import hashlib
import io
import subprocess
import sys
from collections import Counter
from math import exp
from random import Random

import pytest
import sentencepiece

from pipeline.vocab import subwords
from pipeline.vocab.subwords import SubwordSampler, check_samples
from pipeline.vocab.vocabulary import Vocabulary

SYLLABLES = ("ha", "us", "boot", "gar", "ten", "baum", "li", "mo")
TEXT = "baumgarten bootmoha"


def trained(kind, vocab_size=80, **options):
    rng = Random(1)
    words = ["".join(rng.choices(SYLLABLES, k=rng.randint(1, 4))) for _ in range(200)]
    texts = (" ".join(rng.choices(words, k=8)) for _ in range(300))
    content = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=texts, model_writer=content, model_type=kind, vocab_size=vocab_size, minloglevel=2, **options
    )
    return content.getvalue()


@pytest.fixture(scope="module")
def model():
    return sentencepiece.SentencePieceProcessor(model_proto=trained("unigram"))


def test_every_segmentation_is_of_the_text(model):
    sampler = SubwordSampler(model, alpha=0.1, nbest=64)
    samples = [sampler.sample(TEXT, Random(seed)) for seed in range(50)]
    assert {model.decode(ids) for ids in samples} == {TEXT}
    assert len({tuple(ids) for ids in samples}) > 10
    assert samples == [sampler.sample(TEXT, Random(seed)) for seed in range(50)]


@pytest.mark.parametrize("alpha", [0.1, 1.0])
def test_shares_are_in_proportion_to_the_scores(model, alpha):
    """A share of 0.5 of 20,000 draws has a standard deviation of 0.0035, and 0.02 is more than five of them."""
    rng, sampler = Random(2), SubwordSampler(model, alpha=alpha, nbest=4)
    counts = Counter(tuple(sampler.sample("baumgarten", rng)) for _ in range(20_000))
    best = model.nbest_encode("baumgarten", nbest_size=4)
    assert len(best) == 4
    weights = {tuple(ids): exp(alpha * sum(map(model.get_score, ids))) for ids in best}
    for ids, weight in weights.items():
        assert counts[ids] / 20_000 == pytest.approx(weight / sum(weights.values()), abs=0.02)


def test_another_process_draws_the_same(model, tmp_path):
    (tmp_path / "model").write_bytes(model.serialized_model_proto())
    code = (
        "import hashlib, sys, sentencepiece; from random import Random\n"
        "from pipeline.vocab.subwords import SubwordSampler\n"
        "s = SubwordSampler(sentencepiece.SentencePieceProcessor(model_file=sys.argv[1]), alpha=0.1, nbest=64);"
        "print(hashlib.md5(repr([s.sample('baumgarten bootmoha', Random(n)) for n in range(99)]).encode()).hexdigest())"
    )
    command = [sys.executable, "-c", code, str(tmp_path / "model")]
    results = [subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() for _ in range(2)]
    sampler = SubwordSampler(model, alpha=0.1, nbest=64)
    samples = repr([sampler.sample(TEXT, Random(number)) for number in range(99)])
    assert results == [hashlib.md5(samples.encode()).hexdigest()] * 2


def test_a_vocabulary_of_bpe_is_refused(model):
    bpe = sentencepiece.SentencePieceProcessor(model_proto=trained("bpe"))
    check_samples(Vocabulary(source_model=model, target_model=model, tags={}, shared=True))
    with pytest.raises(ValueError, match=r"batch.augment.subwords needs a unigram vocabulary, .*; leave subwords out"):
        check_samples(Vocabulary(source_model=model, target_model=bpe, tags={}, shared=False))


def test_a_vocabulary_without_a_dummy_prefix_is_refused():
    bare = sentencepiece.SentencePieceProcessor(model_proto=trained("unigram", add_dummy_prefix=False))
    with pytest.raises(
        ValueError, match=r"needs a vocabulary that marks the beginning of a text .* leave subwords out"
    ):
        check_samples(Vocabulary(source_model=bare, target_model=bare, tags={}, shared=True))


@pytest.mark.parametrize("space", ["\u00a0", "\u3000"])
def test_a_wide_space_stays_where_it_has_a_piece(space):
    options = {"normalization_rule_name": "identity", "byte_fallback": True, "vocab_size": 330}
    model = sentencepiece.SentencePieceProcessor(model_proto=trained("unigram", **options))
    text = f"baum{space}garten  boot"
    plain = model.decode(model.encode(text))
    assert space in plain
    assert model.decode(SubwordSampler(model, alpha=0.1, nbest=64).sample(text, Random(1))) == plain


def test_kept_segmentations_are_few_and_of_short_words(model):
    sampler, other = (SubwordSampler(model, alpha=0.1, nbest=nbest) for nbest in (64, 512))
    sampler.sample(f"baum garten {'baum' * 30}", Random(1))
    assert sampler._cached.cache_info().currsize == 2
    assert sampler._cached.cache_info().maxsize * 64 == other._cached.cache_info().maxsize * 512
    best = sampler._best("baumgartenbootmoha")
    assert len(best.bounds) > 32
    assert sum(part.itemsize * len(part) for part in best) < len(best.bounds) * (12 + 4 * subwords._LONGEST)
