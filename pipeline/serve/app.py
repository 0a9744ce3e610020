"""The HTTP API of a run, and its page."""

import asyncio
import time
from collections.abc import Coroutine
from dataclasses import asdict, dataclass, replace
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Receive, Scope, Send

from eval.language import text_direction
from pipeline.corpus.languages import LangPair
from pipeline.decode.config import DecodeConfig, with_neutral
from pipeline.decode.text.line import Line, Translated
from pipeline.finished_run import FinishedRun
from pipeline.serve.batching import Batcher, Full
from pipeline.serve.config import LimitsConfig
from pipeline.serve.messages import (
    Direction,
    Health,
    Hypothesis,
    Pairs,
    TranslatedText,
    TranslateRequest,
    TranslateResponse,
    read_request,
)
from pipeline.serve.page import page
from pipeline.serve.problem import Problem, ProblemDetails, shown
from pipeline.tasks.call import TaskFailed

_CLOSED = 499  # status of an answer that nobody reads, because the client has closed the connection
_RETRY = 2  # seconds
_PROBLEMS: dict[int | str, dict[str, Any]] = {
    status: {"model": ProblemDetails, "description": description}
    for status, description in {
        400: "no JSON, or not in UTF-8",
        408: "the body came too slowly",
        413: "the body is too large",
        415: "another Content-Type than application/json",
        421: "another Host than this machine, where the server is for it alone",
        422: "a field that cannot be; `field`, `value` and `remedy` say which and what to do",
        429: "more requests in a second than one client may send; Retry-After says when to come again",
        503: "loading, too many requests, or a process was lost; Retry-After says when to come again",
        504: "not translated in time",
    }.items()
}


def create_app(service: "Service") -> FastAPI:
    app = FastAPI(
        title=f"Translation by {service.run.name}",
        version="1",
        docs_url=None,  # these pages would load their scripts from another site
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},
    )
    schema = {"application/json": {"schema": TranslateRequest.model_json_schema()}}
    body = {"requestBody": {"required": True, "content": schema}}
    app.get("/", include_in_schema=False)(page)
    app.get("/health", responses={503: _PROBLEMS[503]})(service.health)
    app.get("/v1/pairs")(service.pairs)
    app.post("/v1/translate", responses=_PROBLEMS, response_model=TranslateResponse, openapi_extra=body)(
        service.translate
    )
    app.add_middleware(_HeadAsGet)
    app.exception_handler(Problem)(_answer_problem)
    app.exception_handler(HTTPException)(_answer_unknown)
    app.exception_handler(Exception)(_answer_failure)
    return app


@dataclass(kw_only=True)
class Service:
    """The end points of the API.

    run: the finished run that translates.
    decode: settings for requests that give no others.
    limits: limits of requests.
    batcher: translates the lines of all requests.
    loaded: True when the model is loaded.
    """

    run: FinishedRun
    decode: DecodeConfig
    limits: LimitsConfig
    batcher: Batcher
    loaded: bool = False

    async def health(self) -> Health:
        """Answer 200 if the server translates. After a failure, one line is translated to find out."""
        self._check_loaded()
        if self.batcher.broken:
            first = self.run.pairs[0]
            try:
                async with asyncio.timeout(self.limits.seconds):
                    await self._translate_lines([Line(text="1", source=first.src, target=first.tgt)], self.decode)
            except TimeoutError as error:
                detail = f"nothing was translated within {self.limits.seconds:g} seconds"
                raise Problem(503, detail, remedy="come again in some seconds", retry_after=_RETRY) from error
        return Health(status="ok")

    async def pairs(self) -> Pairs:
        """Answer with the language pairs, the settings of decoding and the limits of requests."""
        directions = [
            Direction(
                pair=pair.name,
                source=pair.src,
                target=pair.tgt,
                source_direction=text_direction(pair.src),
                target_direction=text_direction(pair.tgt),
            )
            for pair in self.run.pairs
        ]
        return Pairs(run=self.run.name, pairs=directions, decode=asdict(self.decode), limits=asdict(self.limits))

    async def translate(self, request: Request) -> Response:
        """Translate one line or several, in one direction."""
        start = time.monotonic()
        body = None
        try:
            async with asyncio.timeout(self.limits.seconds):
                self._check_loaded()
                body = await read_request(request, self.limits)
                pair, decode = self._pair(body), self._settings(body)
                lines = self._lines(body, pair)
                translations = await _unless_closed(request, self._translate_lines(lines, decode))
        except TimeoutError as error:
            detail = f"there was no answer within {self.limits.seconds:g} seconds"
            if body is None:
                raise Problem(408, detail, remedy="send the body faster") from error
            raise Problem(504, detail, remedy="send fewer lines at once, or lower beam") from error
        except asyncio.CancelledError as error:  # the server stops, and its grace is over
            raise Problem(503, "the server stops", remedy="come again later", retry_after=_RETRY) from error
        except ClientDisconnect:
            return Response(status_code=_CLOSED)
        answer = TranslateResponse(
            run=self.run.name,
            pair=pair.name,
            source=pair.src,
            target=pair.tgt,
            translations=[_text(translated) for translated in translations],
            seconds=round(time.monotonic() - start, 4),
        )
        return JSONResponse(answer.model_dump())

    def _check_loaded(self) -> None:
        if not self.loaded:
            raise Problem(503, "the model is being loaded", remedy="come again in some seconds", retry_after=_RETRY)

    async def _translate_lines(self, lines: list[Line], decode: DecodeConfig) -> list[Translated]:
        try:
            return await self.batcher.translate(lines, decode)
        except Full as error:
            raise Problem(
                503,
                f"{self.limits.waiting} requests are waiting",
                remedy="come again in some seconds",
                retry_after=_RETRY,
            ) from error
        except TaskFailed as error:
            raise Problem(503, str(error), remedy="send the request again", retry_after=_RETRY) from error

    def _pair(self, body: TranslateRequest) -> LangPair:
        remedy = "give one of " + ", ".join(pair.name for pair in self.run.pairs)
        if body.pair is not None and (body.source, body.target) == (None, None):
            field, text = "pair", body.pair
        elif body.pair is None and body.source is not None and body.target is not None:
            field, text = "source, target", f"{body.source}:{body.target}"
        else:
            raise Problem(
                422, "give either pair, or both source and target", field="pair", value=body.pair, remedy=remedy
            )
        try:
            return self.run.pair(text)
        except ValueError as error:
            raise Problem(422, str(error), field=field, value=text, remedy=remedy) from error

    def _settings(self, body: TranslateRequest) -> DecodeConfig:
        changes = body.settings()
        search = changes.get("search", self.decode.search)
        beam, n_best = changes.get("beam", self.decode.beam), changes.get("n_best", self.decode.n_best)
        for name, value in (("beam", beam), ("n_best", n_best), ("draws", changes.get("draws", 0))):
            if value > self.limits.beam and name in changes:
                detail = f"{name}={value} is more than this server searches by"
                raise Problem(422, detail, field=name, value=value, remedy=f"give at most {self.limits.beam}")
        if search == "beam" and n_best > beam:
            detail = f"n_best={n_best} alternatives need as large a beam, and it is {beam}"
            raise Problem(422, detail, field="n_best", value=n_best, remedy=f"give at most {beam}, or beam={n_best}")
        draws = changes.get("draws", self.decode.draws) or n_best
        if (beam if search == "beam" else draws) == 1:  # the server's own choice would have nothing to choose from
            changes = {"choose": "likeliest", **changes}
        try:
            return replace(self.decode, **with_neutral(changes))
        except ValueError as error:
            name = next((name for name in changes if str(error).startswith(f"decode.{name}=")), "")
            detail, remedy = str(error).replace("decode.", ""), "give another value, or leave it out"
            raise Problem(422, detail, field=name, value=changes.get(name), remedy=remedy) from error

    def _lines(self, body: TranslateRequest, pair: LangPair) -> list[Line]:
        texts, prefixes, limits = body.texts, body.prefixes, self.limits
        if not texts or (isinstance(body.text, str) and not body.text.strip()):
            raise Problem(422, "there is nothing to translate", field="text", value=body.text, remedy="give some text")
        if len(prefixes) != len(texts):
            remedy = "give one for all, or one for each line"
            detail = f"{len(texts)} lines of text have {len(prefixes)} prefixes"
            raise Problem(422, detail, field="prefix", value=len(prefixes), remedy=remedy)
        size = sum(map(len, texts)) + sum(map(len, prefixes))
        if size > limits.characters:
            field, subject = ("text, prefix", "text and prefix have") if any(prefixes) else ("text", "text has")
            remedy = f"send at most {limits.characters} in a request"
            raise Problem(422, f"{subject} {size} characters", field=field, value=size, remedy=remedy)
        return [
            Line(text=text, source=pair.src, target=pair.tgt, prefix=prefix, number=number)
            for number, (text, prefix) in enumerate(zip(texts, prefixes, strict=True))
        ]


class _HeadAsGet:
    """Answers HEAD as GET. The connection leaves out the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["method"] == "HEAD":
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, send)


async def _unless_closed(request: Request, work: Coroutine[Any, Any, list[Translated]]) -> list[Translated]:
    """Return the result of some work. When the client closes the connection, cancel it and raise ClientDisconnect."""
    task = asyncio.ensure_future(work)
    closing = asyncio.ensure_future(_wait_until_closed(request))
    try:
        await asyncio.wait((task, closing), return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise ClientDisconnect
    finally:
        task.cancel()
        closing.cancel()


async def _wait_until_closed(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _text(translated: Translated) -> TranslatedText:
    return TranslatedText(
        text=translated.text,
        score=translated.score,
        alternatives=[Hypothesis(text=choice.text, score=choice.score) for choice in translated.alternatives],
        skipped=translated.skipped,
        cut=translated.cut,
    )


async def _answer_problem(_: Request, problem: Exception) -> Response:
    assert isinstance(problem, Problem)
    return problem.response()


async def _answer_unknown(request: Request, error: Exception) -> Response:
    """Answer a request for a path or a method that does not exist."""
    assert isinstance(error, HTTPException)
    problem = Problem(
        *(error.status_code, f"{shown(request.method)} {shown(request.scope['path'])}: {error.detail}"),
        remedy="there are POST /v1/translate, GET /v1/pairs, GET /health, GET /openapi.json and GET /",
    )
    return problem.response()


async def _answer_failure(_: Request, error: Exception) -> Response:
    """Answer with an error of the server. Its traceback is in the server's log."""
    return Problem(
        500, f"an error of the server ({type(error).__name__})", remedy="its log says more; please report it"
    ).response()
