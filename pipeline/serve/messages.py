"""What clients send and get: the schema of the API, and the reading of a body."""

import json
from typing import Any, Literal

from fastapi import Request
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from pipeline.corpus.languages import LONGEST_CODE
from pipeline.decode.config import COLDEST
from pipeline.serve.config import LimitsConfig
from pipeline.serve.problem import Problem, shown
from pipeline.spelling import suggestion

_EXAMPLE = '{"pair": "de-en", "text": "Guten Tag."}'
_OTHER_MARKS = 20  # brackets and commas of a request that are neither in a text nor between lines: 17 at most
_DIGITS = 20  # of an integer


class TranslateRequest(BaseModel):
    """What to translate. The direction is `pair`, or `source` and `target`. Settings left out are the server's.

    A text is one line, whatever white space it holds. An empty one keeps its place and is answered as skipped.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: str | list[str] = Field(description="one line or several")
    pair: str | None = Field(None, max_length=LONGEST_CODE, description="such as de-en, or de:en")
    source: str | None = Field(None, max_length=LONGEST_CODE, description="language of the text, in place of pair")
    target: str | None = Field(None, max_length=LONGEST_CODE, description="language asked for, in place of pair")
    prefix: str | list[str] = Field("", description="what the translations begin with: of all lines, or one each")
    search: Literal["beam", "sample"] | None = Field(None, description="sample draws n_best hypotheses at random")
    beam: int | None = Field(None, ge=1, description="hypotheses that are kept; 1 is greedy and fastest")
    n_best: int | None = Field(None, ge=1, description="alternatives of each line, at most beam of a beam search")
    length_penalty: float | None = Field(None, ge=0, le=10, description="more than 1 favours longer translations")
    coverage_penalty: float | None = Field(None, ge=0, le=10)
    no_repeat_ngram: int | None = Field(None, ge=0, le=100, description="no so many tokens in a row occur twice")
    temperature: float | None = Field(None, ge=COLDEST, le=100, description="of sampling")
    top_k: int | None = Field(None, ge=0, description="sampling among so many tokens; 0: all")
    top_p: float | None = Field(None, gt=0, le=1, description="sampling among the most probable of this sum")
    seed: int | None = Field(None, ge=0, lt=2**31, description="of sampling")

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def prefixes(self) -> list[str]:
        return [self.prefix] * len(self.texts) if isinstance(self.prefix, str) else self.prefix

    def settings(self) -> dict[str, Any]:
        """Of decoding, those that are given."""
        others = {"text", "pair", "source", "target", "prefix"}
        return {name: value for name, value in self.model_dump(exclude=others).items() if value is not None}


class Hypothesis(BaseModel):
    text: str
    score: float = Field(description="log-probability, normalised by length")


class TranslatedText(Hypothesis):
    """The best translation of a line, and all that were asked for, best first."""

    alternatives: list[Hypothesis]
    skipped: str = Field(description="why there is no translation: empty, too_long or prefix_too_long; else empty")
    cut: str = Field(description="split or truncated where the line was too long to be translated whole; else empty")


class TranslateResponse(BaseModel):
    """translations: of the texts, in their order. seconds: from request to answer."""

    run: str
    pair: str
    source: str
    target: str
    translations: list[TranslatedText]
    seconds: float


class Direction(BaseModel):
    """source_direction, target_direction: of writing, ltr or rtl."""

    pair: str
    source: str
    target: str
    source_direction: Literal["ltr", "rtl"]
    target_direction: Literal["ltr", "rtl"]


class Pairs(BaseModel):
    """What the run translates, the settings of its decoding, and what a request may ask for."""

    run: str
    pairs: list[Direction]
    decode: dict[str, Any]
    limits: dict[str, int | float]


class Health(BaseModel):
    status: Literal["ok"]


async def read_request(request: Request, limits: LimitsConfig) -> TranslateRequest:
    """The body, checked. Raises Problem, and ClientDisconnect."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Problem(
            *(415, "the body must be JSON"),
            field="Content-Type",
            value=kind,
            remedy="send Content-Type: application/json",
        )
    most = limits.bytes
    too_large = Problem(
        *(413, f"the body has more than {most} bytes"), remedy="send fewer lines at once", field="Content-Length"
    )
    length = request.headers.get("content-length", "0")
    if int(length) > most:  # the protocol lets only numbers through
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise too_large
    return parse(bytes(body), limits)


def parse(body: bytes, limits: LimitsConfig) -> TranslateRequest:
    """The request in a body, checked from the outside in: counts come before what each item costs. Raises Problem."""
    _check_marks(body, limits)
    values = _values(body)
    _check_fields(values, limits)
    try:
        return TranslateRequest.model_validate(values)
    except ValidationError as error:
        raise _problem(error) from error


def _check_marks(body: bytes, limits: LimitsConfig) -> None:
    """Count what separates the values of a body, before any of them is made.

    All of a text may be commas and brackets, so that no request within the limits is refused here.
    """
    count = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if count > limits.characters + 2 * limits.lines + _OTHER_MARKS:
        remedy = f"send at most {limits.lines} lines, of {limits.characters} characters together"
        raise Problem(422, f"the body has {count} commas and brackets", remedy=remedy)


def _values(body: bytes) -> Any:
    """What the JSON says."""
    try:
        values = json.loads(body.decode("utf-8"), parse_int=_integer, parse_constant=_no_number)
        json.dumps(values, ensure_ascii=False).encode("utf-8")
        return values
    except UnicodeDecodeError as error:
        remedy = "send the body in UTF-8"
        detail = f"the body is not UTF-8: byte {error.start} is {body[error.start : error.start + 1]!r}"
        raise Problem(400, detail, remedy=remedy) from error
    except UnicodeEncodeError as error:
        detail = f"the body has {error.object[error.start]!r}, half of a character"
        raise Problem(
            400, detail, remedy="write a character beyond U+FFFF as itself, or as both of its halves"
        ) from error
    except (ValueError, RecursionError) as error:
        raise Problem(400, f"the body is not JSON: {error}", remedy=f"send an object, such as {_EXAMPLE}") from error


def _check_fields(values: Any, limits: LimitsConfig) -> None:
    """Look at names and lengths alone: pydantic makes an error of each name and item that is wrong."""
    if not isinstance(values, dict):
        return
    for name in values:
        if name not in TranslateRequest.model_fields:
            nearest = suggestion(name[:LONGEST_CODE], TranslateRequest.model_fields).removeprefix("; ")
            field = str(shown(name))
            raise Problem(422, f"{field} does not exist", field=field, value=values[name], remedy=nearest)
    for name in ("text", "prefix"):
        count = len(values[name]) if isinstance(values.get(name), list) else 0
        if count > limits.lines:
            remedy = f"send at most {limits.lines} in a request"
            raise Problem(422, f"{name} has {count} lines", field=name, value=count, remedy=remedy)


def _integer(digits: str) -> int | float:
    """A number; one that is too large for any field is a float, which costs little however many digits it has."""
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _problem(invalid: ValidationError) -> Problem:
    """Of the first thing that is wrong, as deep as it can be told."""
    error = max(invalid.errors(include_url=False), key=lambda each: len(each["loc"]))
    field = ".".join(str(part) for part in error["loc"] if part not in ("str", "list[str]"))
    if error["type"] == "missing":
        return Problem(422, f"{field} is not given", field=field, remedy=f"send it, as in {_EXAMPLE}")
    remedy = f"send an object, such as {_EXAMPLE}" if not field else "give another value; /openapi.json has the schema"
    detail = f"{field or 'the body'}: {error['msg'][:1].lower()}{error['msg'][1:]}"
    return Problem(422, detail, field=field, value=error["input"], remedy=remedy)
