"""`make translate`: read lines, and write the translation of each."""

import json
import logging
import os
import stat
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from pipeline.config import ROOT, compose_tree
from pipeline.dag.store import Store
from pipeline.decode.job.stream import Stream
from pipeline.decode.job.workers import TranslatorPool
from pipeline.decode.text.line import EMPTY, PREFIX_TOO_LONG, SPLIT, TOO_LONG, TRUNCATED, Line, Long, Translated
from pipeline.finished_run import FinishedRun
from pipeline.jobs.runtime import RuntimeConfig
from pipeline.output import ReaderGone
from pipeline.routes import Route, find_route
from pipeline.schema import build
from pipeline.vocab.vocabulary import Vocabulary

logger = logging.getLogger(__name__)

STDIN, STDOUT = 0, 1
_REPLACED = "bytes replaced"
_MESSAGES = {
    EMPTY: "{} empty",
    SPLIT: "{} of more than {limit} tokens, translated in parts",
    TRUNCATED: "{} of more than {limit} tokens, of which the rest is not translated",
    TOO_LONG: "{} of more than {limit} tokens, not translated",
    PREFIX_TOO_LONG: "{} with a prefix of more than {limit} tokens, not translated",
    _REPLACED: "{} that are not UTF-8, read with U+FFFD in place of what is wrong",
}


@dataclass(frozen=True, kw_only=True)
class TranslateConfig:
    """The settings of configs/translate.yaml. input, output: paths, empty for the standard streams."""

    run: str
    pair: str
    direct: bool
    pivot: str
    experts: str
    input: str
    output: str
    format: Literal["text", "json"]
    errors: Literal["strict", "replace"]
    long: Long
    decode: dict[str, Any]
    runtime: RuntimeConfig

    def __post_init__(self) -> None:
        if not self.pair and self.format == "text":
            raise ValueError("PAIR is empty; give the direction to translate, such as PAIR=de-en")
        if self.runtime.launcher != "local":
            raise ValueError(
                f"runtime.launcher={self.runtime.launcher}: lines are translated on this machine; set it to local, or "
                "translate a file in bulk with make backtranslate"
            )
        if self.input and not Path(self.input).is_file():
            raise ValueError(f"input={self.input} is no file; without it, lines come from the standard input")
        if self.output and not Path(self.output).absolute().parent.is_dir():
            raise ValueError(f"output={self.output} would be in a directory that does not exist; make it first")
        if self.input and self.output and Path(self.output).exists() and Path(self.output).samefile(self.input):
            raise ValueError(f"output={self.output} is the input, which it would overwrite; choose another file")


def load_translate(overrides: Sequence[str]) -> TranslateConfig:
    """Return the configuration of `make translate`. Raises ValueError with what to change."""
    return build(TranslateConfig, compose_tree("translate", overrides))


def translate(config: TranslateConfig) -> None:
    """Translate to the end of the input.

    Raises ValueError with the number of a line that cannot be read, once the lines before it are translated.
    Raises ReaderGone when nobody reads the output, and TaskFailed when a process ended.
    """
    store, runs = Store(ROOT / config.runtime.artifacts), ROOT / config.runtime.runs
    run = FinishedRun.open(config.run, runs=runs, store=store).pruned(config.experts)
    decode = run.decode_with(config.decode, config.runtime.device)
    run.check_cut(config.runtime, decode)
    run = run.with_ensemble(decode, config.runtime, runs=runs, store=store)
    counts: Counter[str] = Counter()
    parser = _Parser(config, run, counts)
    if config.pair:
        parser.route(config.pair)  # its faults show before the model is loaded
    spec = run.spec(decode, long=config.long)
    render = _json if config.format == "json" else _text
    with _opened(config) as (source, target), TranslatorPool(spec, config.runtime) as pool:

        def write(lines: Sequence[Translated]) -> None:
            _write(target, "".join(render(line) + "\n" for line in lines).encode())
            counts.update(fate for line in lines for fate in (line.skipped, line.cut) if fate)

        vocabulary = Vocabulary.load(run.vocabulary.path)  # it loads while the processes start
        stream = Stream(
            source, parser.json if config.format == "json" else parser.text, write, pool, vocabulary.source_tokens
        )
        pool.wait()
        if config.output and stat.S_ISREG(os.fstat(target).st_mode):  # only now: an error above leaves the old file
            os.ftruncate(target, 0)
        if os.isatty(source):
            logger.info("run %s is ready: a line and Enter translates, Ctrl-D ends", run.name)
        try:
            stream.run()
        finally:
            _say(counts, run)
            if spec.decode.capacity_factor:
                logger.info("capacity: %s", pool.drops)


class _Parser:
    """A reader of lines from bytes. `text` and `json` raise ValueError with the number of the line from 1."""

    def __init__(self, config: TranslateConfig, run: FinishedRun, counts: "Counter[str]") -> None:
        self._where, self._errors = config.input or "standard input", config.errors
        self._config, self._run, self._counts = config, run, counts
        self._routes: dict[str, Route] = {}  # by the pair as it was written

    def route(self, pair: str) -> Route:
        """Return the way to translate a pair. Raises ValueError if the run cannot translate it."""
        if pair not in self._routes:
            config = self._config
            self._routes[pair] = find_route(self._run, pair, direct=config.direct, pivot=config.pivot)
        return self._routes[pair]

    def text(self, number: int, content: bytes) -> Line:
        return _line(self.route(self._config.pair), self._decoded(number, content), number)

    def json(self, number: int, content: bytes) -> Line:
        where = f"{self._where}, line {number + 1}"
        decoded = self._decoded(number, content)
        try:
            values = json.loads(decoded)
        except (ValueError, RecursionError) as error:  # ValueError also for numbers of thousands of digits
            raise ValueError(f'{where} is no JSON ({error}); write {{"text": "…"}} on each') from error
        if not isinstance(values, dict):
            raise ValueError(f'{where} is no JSON object; write {{"text": "…"}}')
        request = build(_Request, values, where)
        if request.pair is None and not self._config.pair:
            raise ValueError(f'{where} has no "pair", and no PAIR= is given for all; give one of them')
        try:
            route = self.route(self._config.pair if request.pair is None else request.pair)
        except ValueError as error:
            raise ValueError(f"{where}: {error}") from error
        try:
            f"{request.text}{request.prefix}".encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"{where} has half a surrogate pair, which is no character; escape both halves") from error
        return _line(route, request.text, number, request.prefix)

    def _decoded(self, number: int, content: bytes) -> str:
        content = content.removesuffix(b"\r")
        try:
            return content.decode()
        except UnicodeDecodeError as error:
            if self._errors == "replace":
                self._counts[_REPLACED] += 1
                return content.decode(errors="replace")
            raise ValueError(
                f"{self._where}, line {number + 1} is not UTF-8: byte 0x{content[error.start]:02x} at byte "
                f"{error.start + 1}; the lines before are translated; convert it (iconv), or set errors=replace"
            ) from error


@dataclass(frozen=True, kw_only=True)
class _Request:
    """A line of JSON."""

    text: str
    prefix: str = ""
    pair: str | None = None


def _line(route: Route, text: str, number: int, prefix: str = "") -> Line:
    pair = route.pair
    return Line(text=text, source=pair.src, target=pair.tgt, pivot=route.pivot, prefix=prefix, number=number)


def _text(line: Translated) -> str:
    return line.text


def _json(line: Translated) -> str:
    values = {"text": line.text, "score": line.score, **asdict(line)}
    if not line.pivot:
        del values["pivot"]
    return json.dumps(values, ensure_ascii=False)


def _say(counts: "Counter[str]", run: FinishedRun) -> None:
    limit = run.max_source_tokens
    if messages := [text.format(counts[fate], limit=limit) for fate, text in _MESSAGES.items() if counts[fate]]:
        logger.info("lines: %s", "; ".join(messages))


@contextmanager
def _opened(config: TranslateConfig) -> Iterator[tuple[int, int]]:
    """Give the descriptors to read from and to write to. An existing output file is not emptied yet."""
    opened: list[int] = []

    def descriptor(path: str, standard: int, flags: int) -> int:
        if not path:
            return standard
        opened.append(os.open(path, flags, 0o666))
        return opened[-1]

    try:
        source = descriptor(config.input, STDIN, os.O_RDONLY)
        yield source, descriptor(config.output, STDOUT, os.O_WRONLY | os.O_CREAT)
    finally:
        for number in opened:
            os.close(number)


def _write(target: int, content: bytes) -> None:
    unwritten = memoryview(content)
    while unwritten:
        try:
            unwritten = unwritten[os.write(target, unwritten) :]
        except BrokenPipeError as error:
            raise ReaderGone from error
