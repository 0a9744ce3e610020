"""The settings of a request change those of the server, as far as they have an effect together."""

from dataclasses import replace

import requests

from tests.serving import DECODE, served


def translate(server, **body):
    return requests.post(f"{server.url}/v1/translate", json={"pair": "de-en", "text": "ja", **body}, timeout=10)


def test_a_setting_that_a_request_leaves_without_effect_is_no_error():
    """A server's own choice among translations ends where there is one, or where a request says so."""
    mbr = replace(DECODE, choose="mbr", utility="bleu")
    with served(decode=mbr) as running:
        for body, expected in (
            ({}, mbr),
            ({"beam": 2}, replace(mbr, beam=2)),
            ({"beam": 1}, replace(DECODE, beam=1)),
            ({"choose": "likeliest"}, DECODE),
            ({"search": "sample"}, replace(DECODE, search="sample")),
            ({"search": "sample", "draws": 3}, replace(mbr, search="sample", draws=3)),
        ):
            translate(running, **body).raise_for_status()
            assert running.pool.calls[-1][1] == expected
        details = translate(running, beam=1, choose="mbr").json()
    assert (details["field"], details["value"]) == ("choose", "mbr")
