"""The API over real sockets, with translations that need no model."""

import http.client
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import pytest
import requests

from tests.serving import served, wait_until

LIMITS = {"lines": 5, "characters": 200, "bytes": 2000, "beam": 8}


@pytest.fixture(scope="module")
def server():
    with served(limits=LIMITS) as running:
        yield running


@pytest.fixture
def blocked():
    """A server whose pool does not translate, and that gives requests up soon."""
    with served(limits={"seconds": 0.6, "waiting": 2}) as running:
        running.pool.go.clear()
        yield running


def ask(server, timeout=10, **body):
    return requests.post(f"{server.url}/v1/translate", json={"pair": "de-en", **body}, timeout=timeout)


def problem(answer):
    assert answer.headers["Content-Type"] == "application/problem+json"
    return answer.json()


def test_translations_are_in_order_with_alternatives_and_what_was_not_translated(server):
    answer = ask(server, text=["eins", " ", "zwei", "x" * 101], n_best=2, prefix=["", "", "Z", ""]).json()
    assert (answer["run"], answer["pair"], answer["source"], answer["target"]) == ("capitals", "de-en", "de", "en")
    assert answer["seconds"] > 0
    one, empty, two, long = answer["translations"]
    best = {"text": "EINS", "score": -0.5}
    assert one == {**best, "alternatives": [best, {"text": "EINS!", "score": -1.5}], "skipped": "", "cut": ""}
    assert empty == {"text": "", "score": 0.0, "alternatives": [], "skipped": "empty", "cut": ""}
    assert (two["text"], long["cut"]) == ("ZZWEI", "split")


@pytest.mark.parametrize(
    "body", [{"pair": "de-en"}, {"pair": "de:en"}, {"pair": "DE-en"}, {"source": "de", "target": "en"}], ids=str
)
def test_a_direction_has_several_names(server, body):
    answer = requests.post(f"{server.url}/v1/translate", json={**body, "text": "ja", "prefix": "O"}, timeout=10)
    assert answer.json()["pair"] == "de-en"
    assert [translation["text"] for translation in answer.json()["translations"]] == ["OJA"]


def test_settings_of_a_request_reach_the_search(server):
    settings = {"beam": 6, "n_best": 5, "length_penalty": 0, "coverage_penalty": 0.2, "no_repeat_ngram": 3, "seed": 7}
    settings |= {"search": "sample", "temperature": 0.7, "top_k": 5, "top_p": 0.9, "draws": 7}
    settings |= {"choose": "mbr", "utility": "chrf++"}
    ask(server, text="ja", **settings).raise_for_status()
    config = server.pool.calls[-1][1]
    assert {name: getattr(config, name) for name in settings} == settings


WRONG = {
    "unknown language": ({"pair": "de-xx"}, "pair", "de-xx", "de-en, en-ar, he-en"),
    "unknown direction": ({"pair": "en-de"}, "pair", "en-de", "de-en, en-ar, he-en"),
    "no direction": ({"pair": None}, "pair", None, "de-en, en-ar, he-en"),
    "two directions": ({"source": "he", "target": "en"}, "pair", "de-en", "de-en, en-ar, he-en"),
    "half a direction": ({"pair": None, "source": "he"}, "pair", None, "de-en, en-ar, he-en"),
    "no such target": ({"pair": None, "source": "de", "target": "he"}, "source, target", "de:he", "de-en, en-ar"),
    "lines": ({"text": ["a"] * 6}, "text", 6, "at most 5"),
    "characters": ({"text": ["a" * 150, "b" * 51]}, "text", 201, "at most 200"),
    "characters of a prefix": ({"prefix": "a" * 201}, "text, prefix", 203, "at most 200"),
    "characters of both": ({"text": ["ja"] * 3, "prefix": "a" * 65}, "text, prefix", 201, "at most 200"),
    "prefixes": ({"text": ["a", "b", "c"], "prefix": ["a", "b"]}, "prefix", 2, "one for each line"),
    "nothing": ({"text": []}, "text", "[]", "give some text"),
    "empty": ({"text": "  \n"}, "text", "  \n", "give some text"),
    "no text": ({"text": None}, "text", None, "openapi.json"),
    "number in the text": ({"text": ["a", 5]}, "text.1", 5, "openapi.json"),
    "true for a number": ({"beam": True}, "beam", True, "openapi.json"),
    "n_best": ({"n_best": 5}, "n_best", 5, "at most 4, or beam=5"),
    "n_best of the beam": ({"n_best": 3, "beam": 2}, "n_best", 3, "at most 2, or beam=3"),
    "beam": ({"beam": 9}, "beam", 9, "at most 8"),
    "samples": ({"search": "sample", "n_best": 9}, "n_best", 9, "at most 8"),
    "draws": ({"search": "sample", "draws": 9}, "draws", 9, "at most 8"),
    "draws of a beam": ({"draws": 4}, "draws", 4, "leave it out"),
    "one to choose from": ({"beam": 1, "choose": "mbr"}, "choose", "mbr", "leave it out"),
    "greedy": ({"beam": 0}, "beam", 0, "openapi.json"),
    "infinity": ({"length_penalty": 1e999}, "length_penalty", "inf", "openapi.json"),
    "of sampling": ({"beam": 2, "temperature": 0.5}, "temperature", 0.5, "leave it out"),
    "search": ({"search": "best"}, "search", "best", "openapi.json"),
    "misspelt": ({"nbest": 2}, "nbest", 2, "did you mean n_best"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_told_by_field_value_and_remedy(server, name):
    change, field, value, remedy = WRONG[name]
    body = {"pair": "de-en", "text": "ja", **change}
    text = json.dumps({key: value for key, value in body.items() if key != "pair" or value is not None})
    before = len(server.pool.calls)
    headers = {"Content-Type": "application/json"}
    answer = requests.post(f"{server.url}/v1/translate", text.replace("Infinity", "1e999"), headers=headers, timeout=10)
    details = problem(answer)
    assert (answer.status_code, details["field"], details["value"]) == (422, field, value)
    assert remedy in details["remedy"]
    assert len(server.pool.calls) == before


BODIES = {
    "no JSON": (b'{"pair"', 400, "not JSON"),
    "no body": (b"", 400, "not JSON"),
    "no object": (b"[]", 422, "the body"),
    "not UTF-8": (b'{"pair": "de-en", "text": "f\xfcr"}', 400, "byte 28 is b'\\xfc'"),
    "half a character": (b'{"pair": "de-en", "text": "\\ud83d"}', 400, "half of a character"),
    "half a character as a key": (b'{"\\ud83d": 1}', 400, "half of a character"),
    "no number": (b'{"pair": "de-en", "text": "a", "beam": NaN}', 400, "NaN"),
    "more lists than lines": (b'{"text": ' + b"[" * 1900, 422, "1901 commas and brackets"),
    "a large number": (b'{"pair": "de-en", "text": "a", "seed": 1' + b"0" * 1900 + b"}", 422, "seed"),
}


@pytest.mark.parametrize("name", BODIES)
def test_a_body_that_cannot_be_read(server, name):
    body, status, detail = BODIES[name]
    answer = requests.post(f"{server.url}/v1/translate", body, headers={"Content-Type": "application/json"}, timeout=10)
    assert answer.status_code == status, answer.text
    assert detail in problem(answer)["detail"]


def test_only_json_is_read_so_that_no_other_site_can_send_it_from_a_browser(server):
    answer = requests.post(f"{server.url}/v1/translate", '{"pair": "de-en", "text": "ja"}', timeout=10)
    assert (answer.status_code, problem(answer)["field"]) == (415, "Content-Type")
    preflight = requests.options(f"{server.url}/v1/translate", headers={"Origin": "http://example.org"}, timeout=10)
    assert not [name for name in preflight.headers if name.startswith("Access-Control")]


def connect(server):
    url = urlsplit(server.url)
    return http.client.HTTPConnection(url.hostname, url.port, timeout=5)


def post(connection, **headers):
    """Send the head of a request to translate."""
    connection.putrequest("POST", "/v1/translate")
    for name, value in {"Content-Type": "application/json", **headers}.items():
        connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()


def test_a_body_that_is_too_large_is_refused_before_it_is_there(server):
    connection = connect(server)
    post(connection, Content_Length=str(10**12))
    answer = connection.getresponse()
    assert answer.status == 413
    assert json.loads(answer.read())["detail"] == "the body has more than 2000 bytes"


def test_a_body_of_unknown_length_is_read_up_to_the_limit(server):
    connection = connect(server)
    post(connection, Transfer_Encoding="chunked")
    for _ in range(3):
        connection.send(b"400\r\n" + b" " * 1024 + b"\r\n")
    assert connection.getresponse().status == 413


def test_a_body_that_does_not_come_is_not_waited_for(blocked):
    connection = connect(blocked)
    post(connection, Content_Length="100")
    answer = connection.getresponse()
    assert answer.status == 408
    assert "0.6 seconds" in json.loads(answer.read())["detail"]


def test_what_is_not_translated_in_time_is_given_up(blocked):
    texts = [str(number) for number in range(100)]
    answer = ask(blocked, text=texts, timeout=5)
    assert (answer.status_code, problem(answer)["remedy"]) == (504, "send fewer lines at once, or lower beam")
    blocked.pool.go.set()
    assert ask(blocked, text="ja").json()["translations"][0]["text"] == "JA"
    assert [text for texts, _ in blocked.pool.calls for text in texts] == [*texts[:32], "ja"]


def test_a_client_that_goes_takes_its_lines_along(server):
    server.pool.go.clear()
    calls = len(server.pool.calls)
    first = threading.Thread(target=ask, args=(server,), kwargs={"text": "first"})
    first.start()
    wait_until(lambda: len(server.pool.calls) == calls + 1)
    with pytest.raises(requests.Timeout):
        ask(server, text=list("01234"), timeout=0.2)
    wait_until(lambda: server.batcher.under_way == 1)
    server.pool.go.set()
    first.join()
    assert ask(server, text="ja").json()["translations"][0]["text"] == "JA"
    assert [texts for texts, _ in server.pool.calls[calls:]] == [["first"], ["ja"]]


def test_a_client_that_goes_while_it_sends_is_no_error(server, caplog):
    connection = connect(server)
    post(connection, Content_Length="100")
    connection.close()
    assert ask(server, text="ja").ok
    assert not caplog.records


def test_more_requests_than_may_wait_are_told_when_to_come_again(blocked):
    with ThreadPoolExecutor(2) as clients:
        for _ in range(2):
            clients.submit(ask, blocked, text="a")
        wait_until(lambda: blocked.batcher.under_way == 2)
        answer = ask(blocked, text="b")
        blocked.pool.go.set()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert problem(answer)["detail"] == "2 requests are waiting"


def test_what_outlasts_the_grace_is_told():
    with served() as stopping:
        stopping.pool.go.clear()
        with ThreadPoolExecutor(1) as client:
            future = client.submit(ask, stopping, text="a")
            wait_until(lambda: stopping.pool.calls)
            stopping.server.should_exit = True
            answer = future.result()
    assert (answer.status_code, problem(answer)["detail"]) == (503, "the server stops")


def test_health_is_200_only_when_it_translates(server):
    health = f"{server.url}/health"
    assert requests.get(health, timeout=10).json() == {"status": "ok"}
    server.service.loaded = False
    for answer in (requests.get(health, timeout=10), ask(server, text="ja")):
        assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
        assert problem(answer)["detail"] == "the model is being loaded"
    server.service.loaded = True
    lost = ask(server, text="lost")
    assert (lost.status_code, problem(lost)["remedy"]) == (503, "send the request again")
    calls = len(server.pool.calls)
    assert all(requests.get(health, timeout=10).ok for _ in range(2))  # only the first one translates a line
    assert len(server.pool.calls) == calls + 1


def test_health_after_a_loss_does_not_wait_for_ever(blocked):
    blocked.batcher.broken = True
    answer = requests.get(f"{blocked.url}/health", timeout=5)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert problem(answer)["detail"] == "nothing was translated within 0.6 seconds"


def test_pairs_and_how_they_are_written(server):
    answer = requests.get(f"{server.url}/v1/pairs", timeout=10).json()
    directions = {pair["pair"]: (pair["source_direction"], pair["target_direction"]) for pair in answer["pairs"]}
    assert directions == {"de-en": ("ltr", "ltr"), "en-ar": ("ltr", "rtl"), "he-en": ("rtl", "ltr")}
    assert (answer["run"], answer["decode"]["beam"]) == ("capitals", 4)
    assert answer["limits"] == {**answer["limits"], **LIMITS}


def test_openapi_names_what_there_is_and_nothing_comes_from_elsewhere(server):
    schema = requests.get(f"{server.url}/openapi.json", timeout=10).json()
    assert sorted(schema["paths"]) == ["/health", "/v1/pairs", "/v1/translate"]
    post = schema["paths"]["/v1/translate"]["post"]
    fields = post["requestBody"]["content"]["application/json"]["schema"]["properties"]
    assert {"text", "pair", "n_best", "beam", "prefix"} <= set(fields)
    assert {"200", "400", "413", "422", "503", "504"} <= set(post["responses"])
    for path in ("docs", "redoc", "v1/translate"):
        answer = requests.get(f"{server.url}/{path}", timeout=10)
        assert answer.status_code in (404, 405)
        assert "POST /v1/translate" in problem(answer)["remedy"]
    page = requests.get(server.url, timeout=10)
    assert "https://" not in page.text
    assert page.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'sha256-")


@pytest.mark.parametrize("path", ["/", "/health", "/v1/pairs", "/openapi.json", "/v1/translate", "/nowhere"])
def test_head_is_answered_as_get_without_the_body(server, path):
    connection = connect(server)
    answers = []
    for method in ("GET", "HEAD", "GET"):  # a body after HEAD would be read as the last answer
        connection.request(method, path)
        answer = connection.getresponse()
        headers = {name: value for name, value in answer.getheaders() if name.lower() != "date"}
        answers.append((answer.status, headers, answer.read()))
    get, head, again = answers
    assert head == (*get[:2], b"")
    assert int(head[1]["content-length"]) == len(get[2]) > 0
    assert again == get
