"""The benchmark of `make serve`: its requests and its rows."""

import pytest

from bench.serve.__main__ import judge, measure, table
from tests.serving import served


def test_every_client_sends_its_requests():
    with served() as server:
        port = int(server.url.rpartition(":")[2])
        rate, seconds = measure(port, "de-en", ["eins", "zwei"], clients=3, requests=4)
    texts = [text for texts, _ in server.pool.calls for text in texts]
    assert sorted(texts) == ["eins"] * 6 + ["zwei"] * 6
    assert len(seconds) == 12
    assert 0 < rate < 12 / max(seconds)


def test_a_request_that_fails_is_no_figure():
    with served() as server, pytest.raises(SystemExit, match="422"):
        measure(int(server.url.rpartition(":")[2]), "de-xx", ["eins"], clients=1, requests=1)


def test_rows_are_medians_of_rounds_and_gains_of_the_same_round():
    rounds = {
        (32, 1): [(10.0, [0.1] * 2), (20.0, [0.05] * 2), (10.0, [0.1] * 2)],
        (32, 8): [(30.0, [0.2] * 4), (100.0, [0.1] * 4), (50.0, [0.2] * 4)],
    }
    single, eight = judge(rounds, {"device": "cpu"})
    assert (single["requests_per_second"], single["gain"], single["ms"]) == (10, 1, pytest.approx(100))
    assert (eight["requests_per_second"], eight["slowest"], eight["fastest"]) == (50, 30, 100)
    assert (eight["gain"], eight["ms"], eight["ms_99"]) == (5, pytest.approx(200), pytest.approx(200))
    assert "50.0" in table([single, eight])
