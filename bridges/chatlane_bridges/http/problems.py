"""Errors of requests over HTTP, in the form of the API of OpenAI."""

import logging
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from pydantic import ValidationError
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from chatlane_client import (
    ChatlaneClientError,
    ConflictingRequestError,
    ConnectionClosedError,
    ForbiddenRequestError,
    OversizedMessageError,
    RefusedRequestError,
    SessionNotFoundError,
    TransientError,
)

_log: Final = logging.getLogger("chatlane_bridges")

_RETRY: Final = {"Retry-After": "2"}
# The first one that fits counts. Clients repeat 409 and 5xx by themselves, so a conflict, which a
# repetition does not solve, is a 400.
_KINDS: Final[tuple[tuple[type[ChatlaneClientError], HTTPStatus, str], ...]] = (
    (SessionNotFoundError, HTTPStatus.NOT_FOUND, "not_found"),
    (ForbiddenRequestError, HTTPStatus.FORBIDDEN, "forbidden"),
    (ConflictingRequestError, HTTPStatus.BAD_REQUEST, "conflict"),
    (RefusedRequestError, HTTPStatus.BAD_REQUEST, "invalid_request"),
    (OversizedMessageError, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "too_large"),
    (TransientError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
    (ConnectionClosedError, HTTPStatus.SERVICE_UNAVAILABLE, "unavailable"),
)


class ApiProblem(Exception):  # noqa: N818 - an answer to a client
    """An error that ends a request."""

    def __init__(
        self, status: HTTPStatus, code: str, message: str, *, param: str | None = None
    ) -> None:
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        super().__init__(code)

    @property
    def body(self) -> dict[str, Any]:
        """Return the body of the answer."""
        is_ours = self.status >= HTTPStatus.INTERNAL_SERVER_ERROR
        error = {
            "message": self.message,
            "type": "server_error" if is_ours else "invalid_request_error",
            "param": self.param,
            "code": self.code,
        }
        return {"error": error}


def invalid(message: str, param: str | None = None, code: str = "invalid_request") -> ApiProblem:
    """Return the error of a request that cannot be carried out as it is."""
    return ApiProblem(HTTPStatus.BAD_REQUEST, code, message, param=param)


def unavailable() -> ApiProblem:
    """Return the error of a request that may be repeated later."""
    return ApiProblem(HTTPStatus.SERVICE_UNAVAILABLE, "unavailable", "The service does not answer.")


def problem_of(error: Exception) -> ApiProblem:
    """Return the error that a client gets; never what a person wrote."""
    if isinstance(error, ApiProblem):
        return error
    if isinstance(error, ValidationError):
        found = error.errors()[0]
        return invalid(str(found["msg"]), ".".join(map(str, found["loc"])) or None)
    if isinstance(error, ChatlaneClientError):
        text = error.message if isinstance(error, RefusedRequestError) else None
        for kind, status, code in _KINDS:
            if isinstance(error, kind):
                return ApiProblem(status, code, text or status.phrase)
        return ApiProblem(HTTPStatus.BAD_GATEWAY, "bad_gateway", "The service was not understood.")
    _log.error("request_failed", extra={"error": type(error).__name__})
    return ApiProblem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal", "The request failed.")


def add_problem_handlers(app: FastAPI) -> None:
    """Answer errors of an application in this form."""
    for kind in (ApiProblem, ValidationError, ChatlaneClientError, Exception):
        app.add_exception_handler(kind, _on_error)
    app.add_exception_handler(HTTPException, _on_http_error)


async def _on_error(_: Request, error: Exception) -> JSONResponse:
    problem = problem_of(error)
    headers = dict(_RETRY) if problem.status is HTTPStatus.SERVICE_UNAVAILABLE else {}
    if problem.status is HTTPStatus.UNAUTHORIZED:
        headers["WWW-Authenticate"] = "Bearer"
    return JSONResponse(problem.body, status_code=problem.status, headers=headers)


async def _on_http_error(_: Request, error: Exception) -> JSONResponse:
    assert isinstance(error, HTTPException)  # noqa: S101 - registered for this type
    status = HTTPStatus(error.status_code)
    problem = ApiProblem(status, status.name.lower(), status.phrase)
    return JSONResponse(problem.body, status_code=status, headers=error.headers)
