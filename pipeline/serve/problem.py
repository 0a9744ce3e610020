"""Errors for clients: problem details (RFC 9457) with field, value and remedy."""

import reprlib
from http import HTTPStatus
from typing import Any

from fastapi.responses import JSONResponse
from pydantic import BaseModel

_SHOWN = 60  # characters of a value
_brief = reprlib.Repr()  # it reads the first items only, so a long list costs little
_brief.maxstring = _brief.maxlong = _brief.maxother = _SHOWN


class Problem(Exception):  # noqa: N818 - the term of RFC 9457
    """An error that is answered to a client. retry_after: seconds after which the same request may succeed."""

    def __init__(
        self, status: int, detail: str, *, field: str = "", value: Any = None, remedy: str, retry_after: int = 0
    ) -> None:
        super().__init__(detail)
        self.status, self.detail, self.field, self.value = status, detail, field, value
        self.remedy, self.retry_after = remedy, retry_after

    def response(self) -> JSONResponse:
        body = ProblemDetails(
            title=HTTPStatus(self.status).phrase,
            status=self.status,
            detail=self.detail,
            field=self.field,
            value=shown(self.value),
            remedy=self.remedy,
        )
        headers = {"Retry-After": str(self.retry_after)} if self.retry_after else None
        return JSONResponse(body.model_dump(), self.status, headers=headers, media_type="application/problem+json")


class ProblemDetails(BaseModel):
    """The body of an error's answer (RFC 9457).

    field, value: the wrong field of the request, or empty.
    remedy: what the client can do.
    """

    title: str
    status: int
    detail: str
    field: str
    value: str | int | float | bool | None
    remedy: str


def shown(value: Any) -> str | int | float | bool | None:
    """Return a value for a message: a number as it is, any other value as short text that JSON can hold."""
    if value is None or (isinstance(value, bool | int | float) and abs(value) < 2**53):
        return value
    text = value if isinstance(value, str) else _brief.repr(value)
    text = text[: _SHOWN + 1].encode("utf-8", "backslashreplace").decode("utf-8")
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
