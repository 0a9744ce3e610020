"""`make serve` with the smoke run: a server process, its workers, sockets and a browser, all real."""

import json
import os
import re
import shlex
import shutil
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import requests

from pipeline.config import ROOT
from tests.serving import served, wait_until
from tests.system.place import run
from tests.system.serving import started
from tests.system.test_backtranslation import sentences


@pytest.fixture(scope="module")
def server(place, results):
    with started(place) as running:
        assert running.health().status_code == 503
        assert requests.get(f"{running.url}/v1/pairs", timeout=10).ok  # the page can be shown meanwhile
        running.wait_until_healthy()
        yield running


def test_many_clients_at_once_get_what_one_gets(server):
    texts = sentences(50)
    alone = [server.translated(text)[0] for text in texts]
    assert len({answer["text"] for answer in alone}) > 10
    with ThreadPoolExecutor(50) as clients:
        together = [translation for (translation,) in clients.map(server.translated, texts)]
    for one, other in zip(alone, together, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-4)  # matmuls of other shapes round otherwise
    assert sum(one["text"] == other["text"] for one, other in zip(alone, together, strict=True)) >= 49


@pytest.mark.quiet
def test_many_clients_are_served_faster_than_one(server):
    texts = sentences(96)

    def rate(clients, texts):
        began = time.monotonic()
        with ThreadPoolExecutor(clients) as asking:
            list(asking.map(server.translated, texts))
        return len(texts) / (time.monotonic() - began)

    gains = [rate(16, texts) / rate(1, texts[:24]) for _ in range(3)]
    print("sixteen clients against one:", gains)
    assert max(gains) > 2


def test_lines_keep_their_place_and_long_ones_are_told(server):
    short, long = sentences(1)[0], "Das ist ein langer Satz. " * 60
    first, empty, split, last = server.translated([short, "", long, short], beam=2, n_best=2)
    assert first["text"] == last["text"]
    assert first["text"] == first["alternatives"][0]["text"]
    assert first["alternatives"][0]["score"] >= first["alternatives"][1]["score"]
    assert (empty["text"], empty["skipped"], split["cut"]) == ("", "empty", "split")
    assert len(split["text"]) > len(first["text"])


@pytest.mark.parametrize("text", ["\x00", "\x00 a \x00", "a\nb", "​", "<s> </s> <pad> <unk>", "𝔘𝔫𝔦 🙂"])
def test_strange_text_is_translated_or_skipped(server, text):
    (answer,) = server.translated([text])
    assert answer["skipped"] in ("", "empty")
    assert "\n" not in answer["text"]


@pytest.mark.parametrize("text", [sentences(500) * 4, "Das ist ein langer Satz. " * 2000], ids=["lines", "a line"])
def test_clients_that_go_hold_up_nobody(server, text):
    def ask(_):
        with pytest.raises(requests.Timeout):
            server.ask(text, beam=16, n_best=16, timeout=0.5)

    with ThreadPoolExecutor(2) as clients:  # one for each process
        list(clients.map(ask, range(2)))
    began = time.monotonic()
    server.translated("Guten Tag.")
    assert time.monotonic() - began < 30  # and not the minute that either takes


def test_a_port_in_use_is_told_before_the_model_is_loaded(place, server):
    port = server.url.rpartition(":")[2]
    process = run(place.python("serve", "run=smoke", f"port={port}"), timeout=60)
    assert process.returncode == 1
    assert process.stderr == (
        f"error: host=127.0.0.1 port={port}: Address already in use; end what listens there, or choose another, as "
        "port=8001 (port=0 takes one that is free)\n"
    )


def test_a_lost_process_costs_its_requests_and_is_replaced(server):
    victim, other = server.workers
    with ThreadPoolExecutor(1) as client:
        future = client.submit(server.ask, sentences(400), beam=8)
        time.sleep(0.3)
        os.kill(victim.pid, signal.SIGKILL)
        answer = future.result()
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "a process was killed by SIGKILL" in answer.json()["detail"]
    assert server.translated("Guten Tag.")[0]["text"]
    assert server.health().ok
    end = time.monotonic() + 60
    while victim in server.workers or len(server.workers) < 2:
        assert time.monotonic() < end
        time.sleep(0.05)
    assert other in server.workers


def test_the_commands_of_the_documentation_are_answered(server):
    text = (ROOT / "docs" / "serve.md").read_text(encoding="utf-8")
    commands = [shlex.split(line) for line in text.splitlines() if line.startswith("curl ")]
    assert len(commands) == 3
    answers = []
    for command in commands:
        url = command[1].replace("http://127.0.0.1:8000", server.url)
        if shutil.which("curl"):
            process = run([command[0], "--silent", "--fail-with-body", url, *command[2:]])
            assert process.returncode == 0, process.stdout
            answers.append(json.loads(process.stdout))
    if not answers:
        pytest.skip("there is no curl")
    assert {"pair": "de-en", "source": "de", "target": "en"}.items() <= answers[0]["pairs"][0].items()
    assert answers[1] == {"status": "ok"}
    first, empty = answers[2]["translations"]
    assert (len(first["alternatives"]), empty["skipped"]) == (2, "empty")


@pytest.fixture
def page(browser):
    """One whose errors, of script or of policy, fail the test."""
    context = browser.new_context(viewport={"width": 390, "height": 844})
    page = context.new_page()
    page.set_default_timeout(20_000)
    faults = []
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", lambda message: faults.append(message.text) if "Content Security" in message.text else None)
    yield page
    context.close()
    assert not faults


def open_page(page, url):
    page.goto(url)
    page.wait_for_selector("#translate:enabled")


def translate(page, text):
    page.fill("#text", text)
    page.click("#translate")
    page.wait_for_selector("#translations:not([aria-busy]) .row")
    return page.locator("#translations .row.best p").all_inner_texts()


def test_a_person_translates_in_a_browser(server, page):
    open_page(page, server.url)
    assert page.locator("#pair option").all_inner_texts() == ["German → English", "Turkish → English"]
    page.select_option("#pair", "de-en")
    text = sentences(1)[0]
    page.click("summary")
    page.fill("#n_best", "3")
    page.fill("#beam", "4")
    assert translate(page, f"{text}\n\n{text}") == [server.translated(text, beam=4)[0]["text"]] * 2
    alternatives = server.translated(text, beam=4, n_best=3)[0]["alternatives"][1:]
    rows = page.locator("#translations .row.other").all_inner_texts()
    assert [row.split("\n\n") for row in rows] == [
        [alternative["text"], f"{alternative['score']:.2f}"] for alternative in alternatives
    ] * 2
    assert re.fullmatch(r"\d+\.\d\d s", page.inner_text("#status"))
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")  # a phone need not be moved sideways


def test_the_page_shows_text_as_text_and_errors_and_notices(page):
    with served(limits={"lines": 3}) as capitals:
        open_page(page, capitals.url)
        assert translate(page, "<img src=x onerror=alert(1)>&amp;") == ["<IMG SRC=X ONERROR=ALERT(1)>&AMP;"]
        translate(page, "long " * 30)
        assert page.inner_text(".notice") == "too long to be translated whole: split into parts"
        page.fill("#text", "1\n2\n3\n4")
        page.click("#translate")
        page.wait_for_selector("#problem:visible")
        assert page.inner_text("#problem") == "text has 4 lines: send at most 3 in a request"
        assert translate(page, "again") == ["AGAIN"]
        assert not page.is_visible("#problem")


def test_the_page_writes_from_right_to_left_where_the_language_does(page):
    with served() as capitals:
        open_page(page, capitals.url)
        sides = "[text, out].map((side) => [side.lang, getComputedStyle(side).direction])"
        page.select_option("#pair", "en-ar")
        assert page.evaluate(sides) == [["en", "ltr"], ["ar", "rtl"]]
        page.select_option("#pair", "he-en")
        assert page.evaluate(sides) == [["he", "rtl"], ["en", "ltr"]]


def test_the_page_copies_and_a_second_click_gives_up_the_first(page):
    with served() as capitals:
        page.context.grant_permissions(["clipboard-read", "clipboard-write"])
        open_page(page, capitals.url)
        capitals.pool.go.clear()
        page.fill("#text", "first\n" * 100)
        page.click("#translate")
        page.wait_for_selector("#status:text-is('Translating …')")
        wait_until(lambda: capitals.pool.calls)
        page.fill("#text", "second\n\nthird")
        page.press("#text", "Control+Enter")
        wait_until(lambda: any(given_up.is_set() for given_up in list(capitals.pool.given_up.values())))
        capitals.pool.go.set()
        page.click("#copy")
        page.wait_for_selector("#copy:text-is('Copied')")
        assert page.evaluate("navigator.clipboard.readText()") == "SECOND\n\nTHIRD"
        assert sum(texts.count("first") for texts, _ in capitals.pool.calls) == 32  # what was under way


def test_the_page_waits_for_the_model_and_works_below_a_path(page):
    with served(below="/a/path") as capitals:
        capitals.service.loaded = False
        page.goto(f"{capitals.url}/")
        page.wait_for_selector("#status:text-is('The model is being loaded …')")
        assert page.is_disabled("#translate")
        capitals.service.loaded = True
        page.wait_for_selector("#translate:enabled")
        assert translate(page, "ja") == ["JA"]
        assert f"curl {capitals.url}/v1/translate" in page.text_content("#command")


def test_asked_to_stop_it_ends_what_is_under_way(server):
    """The last test with this server."""
    workers = server.workers
    with ThreadPoolExecutor(1) as client:
        future = client.submit(server.ask, sentences(60))
        time.sleep(0.2)
        server.process.send_signal(signal.SIGTERM)
        answer = future.result()
    assert len(answer.json()["translations"]) == 60
    assert server.process.wait(timeout=20) == 0
    assert not [worker for worker in workers if worker.is_running()]
    assert "error" not in "".join(server.output).lower()
    with pytest.raises(requests.ConnectionError):
        server.health()


def test_without_its_model_it_ends_and_says_why(place, results):
    with started(place, "decode.average=9", "runtime.processes=1") as loading:
        assert loading.process.wait(timeout=60) == 1
        loading.reader.join()
        assert loading.output[-1].startswith("error: decode.average=9: of the last checkpoints ")


def test_asked_to_stop_it_does_not_load_to_the_end(place, results):
    with started(place, "runtime.processes=1") as loading:
        workers = loading.workers
        loading.process.send_signal(signal.SIGINT)
        assert loading.process.wait(timeout=20) == 0
        loading.reader.join()
        assert not [line for line in loading.output if line.startswith("ready")]
        assert len(workers) == 1
        assert not [worker for worker in workers if worker.is_running()]
        assert "error" not in "".join(loading.output).lower()
