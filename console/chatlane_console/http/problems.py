"""Problems: the errors of the HTTP API, as `application/problem+json` (RFC 9457)."""

import logging
from http import HTTPStatus
from typing import Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, Field, ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from chatlane_client import (
    ChatlaneClientError,
    ConflictingRequestError,
    ConnectionClosedError,
    ForbiddenRequestError,
    OversizedMessageError,
    ProjectNotFoundError,
    RefusedRequestError,
    SessionNotFoundError,
    StaleRequestError,
    TransientError,
)

_log = logging.getLogger("chatlane_console")

MEDIA_TYPE: Final = "application/problem+json"
_RETRY_SECONDS: Final = "2"

# The first one that fits counts, so the kinds of a refusal come before it.
_STATUS_OF_ERRORS: Final[tuple[tuple[type[ChatlaneClientError], HTTPStatus, str], ...]] = (
    (SessionNotFoundError, HTTPStatus.NOT_FOUND, "not_found"),
    (ProjectNotFoundError, HTTPStatus.NOT_FOUND, "not_found"),
    (ForbiddenRequestError, HTTPStatus.FORBIDDEN, "forbidden"),
    (StaleRequestError, HTTPStatus.PRECONDITION_FAILED, "stale"),
    (ConflictingRequestError, HTTPStatus.CONFLICT, "conflict"),
    (RefusedRequestError, HTTPStatus.UNPROCESSABLE_ENTITY, "invalid"),
    (OversizedMessageError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"),
    (TransientError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
    (ConnectionClosedError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
)


class FieldProblem(BaseModel):
    """A fault of one value of a request."""

    field: str = Field(description="Where the value is, such as `body.text`.")
    problem: str = Field(description="What is wrong with it.")


class Problem(BaseModel):
    """Why a request was refused."""

    type: str = Field(description="Kind of the problem: `urn:chatlane:` and its code.")
    title: str = Field(description="Kind of the problem, for people.")
    status: int = Field(description="HTTP status.")
    code: str = Field(description="Kind of the problem, for programs.")
    detail: str | None = Field(default=None, description="Explanation for people.")
    fields: list[FieldProblem] = Field(default=[], description="Values that were refused.")


class ProblemError(Exception):
    """A problem that ends a request."""

    def __init__(
        self,
        status: HTTPStatus,
        code: str,
        detail: str | None = None,
        *,
        headers: dict[str, str] | None = None,
    ) -> None:
        self.status = status
        self.code = code
        self.detail = detail
        self.headers = headers
        super().__init__(code)


def problem_response(
    status: HTTPStatus,
    code: str,
    detail: str | None = None,
    *,
    fields: list[FieldProblem] | None = None,
    headers: dict[str, str] | None = None,
) -> JSONResponse:
    """Return the response that tells a problem."""
    problem = Problem(
        type=f"urn:chatlane:{code}",
        title=status.phrase,
        status=status,
        code=code,
        detail=detail,
        fields=fields or [],
    )
    content = problem.model_dump(mode="json", exclude_none=True)
    # A cache must not keep that something is not there.
    headers = {"Cache-Control": "no-store", **(headers or {})}
    return JSONResponse(content, status_code=status, media_type=MEDIA_TYPE, headers=headers)


def add_problem_handlers(app: FastAPI) -> None:
    """Answer errors of an application with problems."""
    app.add_exception_handler(ProblemError, _on_problem)
    app.add_exception_handler(HTTPException, _on_http_error)
    app.add_exception_handler(RequestValidationError, _on_invalid)
    app.add_exception_handler(ValidationError, _on_invalid)
    app.add_exception_handler(ChatlaneClientError, _on_client_error)
    app.add_exception_handler(Exception, _on_error)


async def _on_problem(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ProblemError)  # noqa: S101 - registered for this type
    return problem_response(error.status, error.code, error.detail, headers=error.headers)


async def _on_http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type
    status = HTTPStatus(error.status_code)
    headers = None if error.headers is None else dict(error.headers)
    return problem_response(status, status.name.lower(), headers=headers)


async def _on_invalid(_: Request, error: Exception) -> JSONResponse:
    # The second one: a value fits the body, but not the request to the service.
    assert isinstance(error, RequestValidationError | ValidationError)  # noqa: S101 - registered for these
    # Neither the value nor the context of an error: they may be what a person wrote.
    fields = [
        FieldProblem(field=".".join(map(str, found["loc"])), problem=str(found["msg"]))
        for found in error.errors()
    ]
    return problem_response(HTTPStatus.UNPROCESSABLE_ENTITY, "invalid", fields=fields)


async def _on_client_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, ChatlaneClientError)  # noqa: S101 - registered for this type
    status, code = status_of(error)
    detail = error.message if isinstance(error, RefusedRequestError) else None
    headers = {"Retry-After": _RETRY_SECONDS} if code == "unavailable" else None
    return problem_response(status, code, detail, headers=headers)


async def _on_error(_: Request, error: Exception) -> JSONResponse:
    # Only the type: the text of an error may repeat what a person wrote.
    _log.error("request_failed", extra={"error": type(error).__name__})
    return problem_response(HTTPStatus.INTERNAL_SERVER_ERROR, "internal")


def status_of(error: ChatlaneClientError) -> tuple[HTTPStatus, str]:
    """Return the status and the code of an error of the client."""
    for kind, status, code in _STATUS_OF_ERRORS:
        if isinstance(error, kind):
            return status, code
    return HTTPStatus.BAD_GATEWAY, "bad_gateway"
