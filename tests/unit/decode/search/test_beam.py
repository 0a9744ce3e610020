"""Beam search against a plain search, against all possible sequences, and against itself in other batches."""

import itertools
from dataclasses import replace

import pytest
import torch

from pipeline.decode.search.rows import batch_size
from pipeline.decode.search.search import Request, length_penalty, max_length, search
from pipeline.vocab.symbols import BOS, EOS, PAD
from tests.unit.decode.search.plain_search import (
    SOURCES,
    assert_same,
    config,
    log_probabilities,
    normalized,
    plain_search,
    random_model,
)

OPTIONS = {
    "power": {"length_norm": "power"},
    "gnmt": {"length_penalty": 0.6, "n_best": 2},
    "greedy": {"beam": 1},
    "two": {"beam": 2, "length_penalty": 0.0},
    "coverage": {"coverage_penalty": 0.4},
    "min_length": {"min_length": 5},
    "no_repeat_1": {"no_repeat_ngram": 1},
    "no_repeat_2": {"no_repeat_ngram": 2},
    "constant_length": {"max_length_ratio": 0.0, "max_length_extra": 4},
    "one_token": {"max_length_ratio": 0.0, "max_length_extra": 1},
    "all": {"coverage_penalty": 0.2, "min_length": 4, "no_repeat_ngram": 2, "length_norm": "power"},
}
PREFIXES = [[], [7], [9, 30, 7], [], [11], [7, 7]]
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture(scope="module")
def models():
    return [random_model(seed) for seed in range(2)]


def requests(prefixes):
    return [Request(source=source, prefix=prefix) for source, prefix in zip(SOURCES, prefixes, strict=True)]


@each_option
def test_a_batch_finds_what_a_plain_search_finds(models, options):
    for model, prefixes in zip(models, ([[]] * 6, PREFIXES), strict=True):
        batch = requests(prefixes)
        plain = [plain_search(model, r.source, config(**options), r.prefix) for r in batch]
        assert_same(search(model, batch, config(**options)), plain)


@each_option
def test_translations_do_not_depend_on_the_batch(models, options):
    batch = requests(PREFIXES)
    together = search(models[0], batch, config(**options))
    for order in ([5, 0, 4, 1, 3, 2], [2, 4], [3]):
        apart = search(models[0], [batch[i] for i in order], config(**options))
        assert_same(apart, [together[i] for i in order])


def test_a_long_prefix_leaves_as_much_room_as_a_short_one(models):
    """The prefix even has more tokens than the model has positions."""
    prefix = [5 + i % 40 for i in range(len(models[0].positions))]
    settings = config(min_length=3)
    ((best, *_),) = search(models[0], [Request(source=SOURCES[0], prefix=prefix)], settings)
    assert best.tokens[: len(prefix)] == prefix
    assert 3 <= len(best.tokens) - len(prefix) <= max_length(len(SOURCES[0]), settings)


def test_hypotheses_are_sorted_and_distinct(models):
    for model in models:
        for hypotheses in search(model, requests([[]] * 6), config()):
            scores = [h.score for h in hypotheses]
            assert scores == sorted(scores, reverse=True)
            assert len({tuple(h.tokens) for h in hypotheses}) == len(hypotheses) == 4


def test_the_best_is_the_best_of_many(models):
    for one, four in zip(*(search(models[0], requests([[]] * 6), config(n_best=n)) for n in (1, 4)), strict=True):
        assert one == four[:1]


def test_a_wide_beam_finds_the_best_of_all_sequences():
    """With a vocabulary of 8 and at most 3 tokens, all sequences can be scored."""
    model = random_model(3, num_experts=0, encoder_layers=1, decoder_layers=1)
    with torch.no_grad():
        model.target_embedding_VM = torch.nn.Parameter(model.target_embedding_VM[:8])
    source, settings = [4, 9, EOS], config(beam=200, max_length_ratio=0.0, max_length_extra=3, length_penalty=0.6)
    ((hypothesis, *_),) = search(model, [Request(source=source)], settings)
    words = [w for w in range(8) if w not in (BOS, PAD, EOS)]
    ends = [(*t, EOS) for n in range(3) for t in itertools.product(words, repeat=n)]
    scored = {}
    for tokens in (*ends, *itertools.product(words, repeat=3)):
        logp = sum(log_probabilities(model, tuple(source), tokens[:n])[0][token] for n, token in enumerate(tokens))
        scored[tokens] = normalized(logp, len(tokens), [[1.0]], settings)
    best = max(scored, key=scored.__getitem__)
    assert hypothesis.tokens == [token for token in best if token != EOS]
    assert hypothesis.score == pytest.approx(scored[best], abs=1e-9)


def test_the_default_search_ends_at_its_limit(models):
    settings = config(max_length_ratio=0.5, max_length_extra=1)
    lengths = [
        (len(source), len(h.tokens))
        for source, hypotheses in zip(SOURCES, search(models[0], requests([[]] * 6), settings), strict=True)
        for h in hypotheses
    ]
    assert all(length <= max_length(source, settings) for source, length in lengths)
    assert any(length == max_length(source, settings) for source, length in lengths)


def test_batches_shrink_and_idle_rows_reach_no_expert(models):
    """Each row of a sentence that is not done reaches two experts. Other rows reach none."""
    model, passed, routed = models[1], [], []
    layer = model.decoder.layers[1]
    handles = [
        layer.feed_forward_norm.register_forward_pre_hook(lambda _, args: passed.append(len(args[0]))),
        layer.feed_forward.experts.register_forward_pre_hook(lambda _, args: routed.append(len(args[0]) // 2)),
    ]
    source = max(SOURCES, key=len)
    batch = [Request(source=[*source[:n], EOS], number=n) for n in range(2, 9)] * 5
    assert len(search(model, batch, config(max_length_ratio=2.0))) == 35
    for handle in handles:
        handle.remove()
    steps = list(zip(passed, routed, strict=True))
    assert steps[0] == (140, 140)
    assert any(tokens < rows for rows, tokens in steps)
    sizes = [140, *(4 * batch_size(tokens // 4) for _, tokens in steps)]
    assert [rows for rows, _ in steps] == [min(sizes[: number + 2]) for number in range(len(steps))]


def test_sizes_of_batches():
    assert sorted({batch_size(n) for n in range(1, 41)}) == [*range(1, 17), *range(18, 33, 2), 36, 40]
    assert all(n <= batch_size(n) < 1.125 * n + 1 for n in range(1, 300))


def test_length_penalty_by_hand():
    """GNMT, equation 14: ((5 + 7) / 6)^0.5 = sqrt(2)."""
    assert length_penalty(7, config(length_penalty=0.5)) == pytest.approx(2**0.5)
    assert length_penalty(1, config(length_penalty=2.0)) == 1.0
    assert length_penalty(9, config(length_penalty=0.5, length_norm="power")) == 3.0


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (Request(source=[], number=3), "sentence 3 has no source tokens"),
        (Request(source=[4, EOS], prefix=[7, EOS]), r"prefix of sentence 0 has the special tokens \[2\]"),
    ],
)
def test_what_cannot_be_translated_is_refused(models, request_, message):
    with pytest.raises(ValueError, match=message):
        search(models[0], [request_], config())


@pytest.mark.parametrize("changes", [{}, {"search": "sample"}])
def test_outputs_that_are_not_numbers_are_an_error(changes):
    model = random_model(0, num_experts=0)
    with torch.no_grad():
        model.decoder.norm.bias.fill_(torch.nan)
    with pytest.raises(ValueError, match="sentence 0 has no hypothesis with a finite score"):
        search(model, requests([[]] * 6), replace(config(), **changes))
