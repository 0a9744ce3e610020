"""Ensembles against a plain search that averages the probabilities of the models by hand."""

import math

import pytest

from pipeline.decode.search.ensemble import Ensemble
from pipeline.decode.search.search import Request, search
from tests.unit.decode.search.plain_search import (
    SOURCES,
    assert_same,
    config,
    log_probabilities,
    plain_search,
    random_model,
)

OPTIONS = {
    "beam": {},
    "greedy": {"beam": 1},
    "coverage": {"coverage_penalty": 0.3, "length_norm": "power"},
    "bans": {"min_length": 3, "no_repeat_ngram": 2},
    "reordered": {"beam_memory": "reordered"},
}
PREFIXES = [[], [7], [9, 30, 7], [], [11], [7, 7]]
each_option = pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)


@pytest.fixture(scope="module")
def models():
    """Return two models of different sizes."""
    return [random_model(1), random_model(2, encoder_layers=1, decoder_layers=3)]


def requests(prefixes=PREFIXES):
    batch = zip(SOURCES, prefixes, strict=True)
    return [Request(source=source, prefix=prefix, number=n) for n, (source, prefix) in enumerate(batch)]


def averaged(models, mean):
    """Return a function that computes what `log_probabilities` does of one model, of the mean over models."""

    def compute(_, source, tokens):
        logs, attention = zip(*(log_probabilities(model, source, tokens) for model in models), strict=True)
        columns = list(zip(*logs, strict=True))
        if mean == "linear":
            means = [math.log(sum(map(math.exp, column)) / len(column)) for column in columns]
        else:
            sums = [sum(column) / len(column) for column in columns]
            total = math.log(sum(map(math.exp, sums)))
            means = [value - total for value in sums]
        rows = [
            [sum(values) / len(values) for values in zip(*row, strict=True)] for row in zip(*attention, strict=True)
        ]
        return means, rows

    return compute


@each_option
@pytest.mark.parametrize("mean", ["linear", "log_linear"])
def test_two_models_find_what_a_plain_search_by_their_mean_finds(models, mean, options):
    settings = config(**options)
    expected = [
        plain_search(None, request.source, settings, request.prefix, averaged(models, mean)) for request in requests()
    ]
    actual = search(Ensemble(models, mean), requests(), settings)
    assert_same(actual, expected)
    for model in models:
        alone = search(model, requests(), settings)
        assert [[h.tokens for h in hypotheses] for hypotheses in alone] != [[h.tokens for h in hs] for hs in actual]


@each_option
@pytest.mark.parametrize("mean", ["linear", "log_linear"])
@pytest.mark.parametrize("sampling", [{}, {"search": "sample", "n_best": 3}], ids=["beam", "sample"])
def test_a_model_with_itself_translates_as_it_does_alone(models, mean, options, sampling):
    """log 2 is added and taken away again, so scores agree up to the last bits of float64."""
    settings = config(**options, **sampling)
    alone = search(models[0], requests(), settings)
    together = search(Ensemble([models[0], models[0]], mean), requests(), settings)
    assert_same(together, alone)
    scores = [h.score for hypotheses in together for h in hypotheses]
    assert scores == pytest.approx([h.score for hypotheses in alone for h in hypotheses], abs=1e-12)


def test_the_two_means_differ(models):
    linear, log_linear = (search(Ensemble(models, mean), requests(), config()) for mean in ("linear", "log_linear"))
    assert [h.score for h in linear[0]] != pytest.approx([h.score for h in log_linear[0]], abs=1e-3)


def test_translations_of_an_ensemble_do_not_depend_on_the_batch(models):
    together = search(Ensemble(models, "linear"), requests(), config())
    for order in ([5, 0, 4, 1, 3, 2], [2, 4], [3]):
        apart = search(Ensemble(models, "linear"), [requests()[i] for i in order], config())
        assert_same(apart, [together[i] for i in order])
