"""Requests and answers: the schema of the API, and the check of a request's body."""

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
_FIELD_MARKS = 20  # brackets and commas of a request outside of texts and lists of lines; there are at most 20
_DIGITS = 20  # most digits of an integer


class TranslateRequest(BaseModel):
    """A request for translations. The direction is `pair`, or `source` and `target`. Missing settings are the server's.

    A text is one line, whatever white space it holds. An empty one keeps its place and is answered as skipped.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    text: str | list[str] = Field(description="one line or several")
    pair: str | None = Field(None, max_length=LONGEST_CODE, description="such as de-en, or de:en")
    source: str | None = Field(None, max_length=LONGEST_CODE, description="language of the text, in place of pair")
    target: str | None = Field(None, max_length=LONGEST_CODE, description="language asked for, in place of pair")
    prefix: str | list[str] = Field("", description="what the translations begin with: of all lines, or one each")
    search: Literal["beam", "sample"] | None = Field(None, description="sample draws hypotheses at random")
    beam: int | None = Field(None, ge=1, description="hypotheses that are kept; 1 is greedy and fastest")
    n_best: int | None = Field(None, ge=1, description="alternatives of each line, at most beam of a beam search")
    length_penalty: float | None = Field(None, ge=0, le=10, description="more than 1 favours longer translations")
    coverage_penalty: float | None = Field(None, ge=0, le=10)
    no_repeat_ngram: int | None = Field(None, ge=0, le=100, description="no so many tokens in a row occur twice")
    temperature: float | None = Field(None, ge=COLDEST, le=100, description="of sampling")
    top_k: int | None = Field(None, ge=0, description="sampling among so many tokens; 0: all")
    top_p: float | None = Field(None, gt=0, le=1, description="sampling among the most probable of this sum")
    draws: int | None = Field(None, ge=0, description="of sampling: hypotheses of which n_best are returned; 0: n_best")
    seed: int | None = Field(None, ge=0, lt=2**31, description="of sampling")
    choose: Literal["likeliest", "mbr"] | None = Field(None, description="mbr: the one most like the other hypotheses")
    utility: Literal["chrf", "chrf++", "bleu"] | None = Field(None, description="what compares two of them for mbr")

    @property
    def texts(self) -> list[str]:
        return [self.text] if isinstance(self.text, str) else self.text

    @property
    def prefixes(self) -> list[str]:
        return [self.prefix] * len(self.texts) if isinstance(self.prefix, str) else self.prefix

    def settings(self) -> dict[str, Any]:
        """Return the settings of decoding that the request gives."""
        excluded = {"text", "pair", "source", "target", "prefix"}
        return {name: value for name, value in self.model_dump(exclude=excluded).items() if value is not None}


class Hypothesis(BaseModel):
    text: str
    score: float = Field(description="log-probability, normalised by length")


class TranslatedText(Hypothesis):
    """The best translation of a line, and all requested alternatives, best first."""

    alternatives: list[Hypothesis]
    skipped: str = Field(description="why there is no translation: empty, too_long or prefix_too_long; else empty")
    cut: str = Field(description="split or truncated where the line was too long to be translated whole; else empty")


class TranslateResponse(BaseModel):
    """The answer to a request. translations: in the order of the texts. seconds: time from request to answer."""

    run: str
    pair: str
    source: str
    target: str
    translations: list[TranslatedText]
    seconds: float


class Direction(BaseModel):
    """A language pair. source_direction, target_direction: direction of writing, ltr or rtl."""

    pair: str
    source: str
    target: str
    source_direction: Literal["ltr", "rtl"]
    target_direction: Literal["ltr", "rtl"]


class Pairs(BaseModel):
    """The language pairs of a run, its settings of decoding, and the limits of a request."""

    run: str
    pairs: list[Direction]
    decode: dict[str, Any]
    limits: dict[str, int | float]


class Health(BaseModel):
    status: Literal["ok"]


async def read_request(request: Request, limits: LimitsConfig) -> TranslateRequest:
    """Read and check the body of a request. Raises Problem if it is wrong, and ClientDisconnect."""
    kind = request.headers.get("content-type", "")
    if kind.partition(";")[0].strip().lower() != "application/json":
        raise Problem(
            *(415, "the body must be JSON"),
            field="Content-Type",
            value=kind,
            remedy="send Content-Type: application/json",
        )
    too_large = Problem(
        *(413, f"the body has more than {limits.bytes} bytes"),
        remedy="send fewer lines at once",
        field="Content-Length",
    )
    if int(request.headers.get("content-length", "0")) > limits.bytes:  # h11 has refused values that are no numbers
        raise too_large
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limits.bytes:
            raise too_large
    return parse(bytes(body), limits)


def parse(body: bytes, limits: LimitsConfig) -> TranslateRequest:
    """Return the request in a body. Sizes are checked first, before each item costs time. Raises Problem."""
    _check_marks(body, limits)
    values = _values(body)
    _check_fields(values, limits)
    try:
        return TranslateRequest.model_validate(values)
    except ValidationError as error:
        raise _problem(error) from error


def _check_marks(body: bytes, limits: LimitsConfig) -> None:
    """Refuse a body with too many commas and brackets, before its values are made.

    A text may consist of commas and brackets, so every request within the limits passes.
    """
    count = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    if count > limits.characters + 2 * limits.lines + _FIELD_MARKS:
        remedy = f"send at most {limits.lines} lines, of {limits.characters} characters together"
        raise Problem(422, f"the body has {count} commas and brackets", remedy=remedy)


def _values(body: bytes) -> Any:
    """Return the values of the JSON in a body. Raises Problem."""
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
    """Check names and lengths first, because pydantic makes an error object for each wrong name and item."""
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
    """Return a number. One that is too large for every field becomes a float, which is fast for any length."""
    return int(digits) if len(digits) <= _DIGITS else float(digits)


def _no_number(word: str) -> None:
    raise ValueError(f"{word} is no number")


def _problem(invalid: ValidationError) -> Problem:
    """Describe the most specific error of a request, the one in the innermost field."""
    error = max(invalid.errors(include_url=False), key=lambda details: len(details["loc"]))
    field = ".".join(str(part) for part in error["loc"] if part not in ("str", "list[str]"))
    if error["type"] == "missing":
        return Problem(422, f"{field} is not given", field=field, remedy=f"send it, as in {_EXAMPLE}")
    remedy = f"send an object, such as {_EXAMPLE}" if not field else "give another value; /openapi.json has the schema"
    detail = f"{field or 'the body'}: {error['msg'][:1].lower()}{error['msg'][1:]}"
    return Problem(422, detail, field=field, value=error["input"], remedy=remedy)
