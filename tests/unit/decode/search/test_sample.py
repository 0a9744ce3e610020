"""Sampling: draws follow the exact probabilities, and depend only on the seed, sentence, draw and position."""

import collections
import math

import pytest
import torch

from pipeline.decode.search.sample import draw, keys, uniform
from pipeline.decode.search.search import Request, search
from pipeline.vocab.symbols import BOS, EOS, PAD
from tests.unit.decode.search.plain_search import (
    SOURCES,
    assert_same,
    config,
    log_probabilities,
    normalized,
    random_model,
)


@pytest.fixture(scope="module")
def model():
    return random_model(1)


def sampling(**changes):
    return config(**{"search": "sample", "n_best": 1, **changes})


def requests(prefix=()):
    return [Request(source=source, prefix=prefix, number=number) for number, source in enumerate(SOURCES)]


def probabilities(model, source, tokens, settings):
    """Compute the probability of every next token by hand: temperature, then top_k, then top_p, as transformers."""
    logp, _ = log_probabilities(model, tuple(source), tuple(tokens))
    weights = {t: math.exp(lp / settings.temperature) for t, lp in enumerate(logp) if t not in (BOS, PAD)}
    falling = sorted(weights, key=weights.__getitem__, reverse=True)[: settings.top_k or None]
    total, kept, reached = sum(weights[t] for t in falling), [], 0.0
    for token in falling:
        if reached < settings.top_p:
            kept.append(token)
        reached += weights[token] / total
    total = sum(weights[t] for t in kept)
    return {t: weights[t] / total for t in kept}


def assert_follows(counts, expected, draws):
    """Test by Pearson's chi-square at the 0.999 quantile (Wilson and Hilferty), with rare outcomes in one bin."""
    assert set(counts) <= set(expected)
    common = [outcome for outcome, p in expected.items() if p * draws >= 5]
    bins = [(counts[outcome], expected[outcome] * draws) for outcome in common]
    rare = draws - sum(p for _, p in bins)
    if rare >= 5:
        bins.append((draws - sum(n for n, _ in bins), rare))
    statistic, freedom = sum((n - e) ** 2 / e for n, e in bins), len(bins) - 1
    assert freedom >= 2
    assert statistic < freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.5}, {"temperature": 1.5, "top_k": 6}, {"top_p": 0.7}, {"top_k": 9, "top_p": 0.9}]
)
def test_draws_of_two_tokens_follow_the_exact_probabilities(model, options):
    source, settings = SOURCES[0], sampling(n_best=4, max_length_ratio=0.0, max_length_extra=2, seed=7, **options)
    samples = search(model, [Request(source=source, number=number) for number in range(1000)], settings)
    counts = collections.Counter(tuple(h.tokens) for hypotheses in samples for h in hypotheses)
    expected = {}
    for first, p in probabilities(model, source, [], settings).items():
        if first == EOS:
            expected[()] = p
            continue
        for second, q in probabilities(model, source, [first], settings).items():
            expected[(first, second) if second != EOS else (first,)] = p * q
    assert sum(expected.values()) == pytest.approx(1)
    assert_follows(counts, expected, 4000)


@pytest.mark.parametrize("options", [{}, {"temperature": 0.7, "top_k": 20, "top_p": 0.95, "coverage_penalty": 0.3}])
def test_draws_do_not_depend_on_the_batch(model, options):
    together = search(model, requests(), sampling(n_best=3, **options))
    assert len({tuple(h.tokens) for hypotheses in together for h in hypotheses}) > 12
    for order in ([5, 0, 4, 1, 3, 2], [2, 4], [3]):
        apart = search(model, [requests()[i] for i in order], sampling(n_best=3, **options))
        assert_same(apart, [together[i] for i in order])


def test_a_draw_does_not_depend_on_how_many_there_are(model):
    for (one,), three in zip(
        search(model, requests(), sampling()), search(model, requests(), sampling(n_best=3)), strict=True
    ):
        assert any(h.tokens == one.tokens for h in three)


def test_other_seeds_and_numbers_draw_something_else(model):
    def drawn(batch, **changes):
        return [tuple(hypotheses[0].tokens) for hypotheses in search(model, batch, sampling(**changes))]

    assert drawn(requests()) != drawn(requests(), seed=2)
    assert len(set(drawn([Request(source=SOURCES[0], number=number) for number in range(20)]))) > 10
    assert len(set(drawn([Request(source=SOURCES[0], number=3, part=part) for part in range(20)]))) > 10


def test_a_score_is_the_models_own_whatever_was_drawn_from(model):
    settings = sampling(n_best=2, temperature=0.6, top_k=10, length_norm="power", length_penalty=0.8)
    for source, hypotheses in zip(SOURCES, search(model, requests(), settings), strict=True):
        for hypothesis in hypotheses:
            limit = len(source) + 4
            tokens = hypothesis.tokens if len(hypothesis.tokens) == limit else [*hypothesis.tokens, EOS]
            logp = sum(log_probabilities(model, tuple(source), tuple(tokens[:n]))[0][t] for n, t in enumerate(tokens))
            assert hypothesis.score == pytest.approx(normalized(logp, len(tokens), [[1.0]], settings), abs=1e-9)
        assert hypotheses[0].score >= hypotheses[1].score


@pytest.mark.parametrize("options", [{"top_k": 1}, {"top_p": 1e-9}, {"temperature": 1e-3}])
def test_with_one_token_to_draw_it_is_greedy(model, options):
    greedy = search(model, requests(prefix=[7]), config(beam=1))
    assert_same(search(model, requests(prefix=[7]), sampling(**options)), greedy)


def test_prefix_length_and_repetition_hold_for_draws(model):
    settings = sampling(n_best=4, min_length=5, no_repeat_ngram=2, temperature=1.5)
    for hypotheses in search(model, requests(prefix=[9, 30]), settings):
        for tokens in (h.tokens for h in hypotheses):
            assert tokens[:2] == [9, 30]
            assert len(tokens) >= 7
            bigrams = list(zip(tokens, tokens[1:], strict=False))
            assert len(set(bigrams)) == len(bigrams)


def test_uniform_is_splitmix64():
    """First outputs for the seed 1234567, as published with the generator's reference implementation."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    numbers = [float(uniform(torch.tensor([1234567]), position)) for position in range(4)]
    assert numbers == [(value >> 11) * 2.0**-53 for value in expected]


def test_draws_of_neighbouring_keys_are_independent():
    """Pairs of draws fall into each of the 16 cells of a square equally often, for neighbouring keys and positions."""
    key = keys(1, torch.arange(4000).unsqueeze(1), torch.arange(2)).flatten()
    first = uniform(key, 0)
    for second in (first.roll(1), uniform(key, 1)):
        cell = (first * 4).long() * 4 + (second * 4).long()
        assert_follows(
            dict(enumerate(cell.bincount(minlength=16).tolist())), dict.fromkeys(range(16), 1 / 16), len(key)
        )


def test_the_ends_of_the_interval_draw_allowed_tokens():
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 1.0, -torch.inf]]).expand(2, -1)
    ends = torch.tensor([0.0, 1 - 2.0**-53], dtype=torch.float64)
    assert draw(logits, ends, sampling()).tolist() == [1, 3]
