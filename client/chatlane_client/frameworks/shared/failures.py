"""Errors of models and their HTTP libraries in the terms of chatlane."""

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final

from chatlane_client.errors import AgentUnavailableError, TurnFailedError
from chatlane_schemas import TranscriptRow

_log = logging.getLogger("chatlane_client")

# A key or a model name that is wrong does not get right by itself.
OPERATOR_PAUSE: Final = timedelta(minutes=1)
_MAX_PAUSE: Final = timedelta(hours=1)
_OPERATOR_STATUSES: Final = {
    HTTPStatus.UNAUTHORIZED,
    HTTPStatus.PAYMENT_REQUIRED,
    HTTPStatus.FORBIDDEN,
    HTTPStatus.NOT_FOUND,
}
_PASSING_STATUSES: Final = {
    HTTPStatus.REQUEST_TIMEOUT,
    HTTPStatus.CONFLICT,
    HTTPStatus.TOO_MANY_REQUESTS,
}
# Of openai, anthropic and both generations of httpx, none of which must be installed.
_CONNECTION_ERRORS: Final = {"APIConnectionError", "TransportError", "ModelTimeoutError"}


def failure_of(exc: Exception, rows: Sequence[TranscriptRow]) -> Exception:
    """Return an error of a run for `raise`; texts of errors may quote messages.

    * A model that is away, or a wrong key or model, lets the turn wait.
    * A request that the provider refuses fails the turn.
    * Any other error fails the attempt.

    Args:
        exc: What the run raised.
        rows: What the run did, for the next attempt.
    """
    for cause in _causes(exc):
        status = getattr(cause, "status_code", None)
        if isinstance(status, int):
            return status_failure(f"{type(cause).__name__}", status, rows, _pause_of(cause))
        if _CONNECTION_ERRORS & {kind.__name__ for kind in type(cause).__mro__}:
            return AgentUnavailableError(type(cause).__name__, transcript=rows)
    _log.error("turn_failed", exc_info=exc, extra={"reason": type(exc).__name__})
    return TurnFailedError(type(exc).__name__, retry=True, transcript=rows)


def status_failure(
    name: str, status: int, rows: Sequence[TranscriptRow], again_in: timedelta | None = None
) -> Exception:
    """Return the error for a status with which a provider answered."""
    text = f"{name}, status {status}"
    if status in _OPERATOR_STATUSES:
        _log.error("model_refused", extra={"error": text})
        return AgentUnavailableError(text, again_in=OPERATOR_PAUSE, transcript=rows)
    if status in _PASSING_STATUSES or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return AgentUnavailableError(text, again_in=again_in, transcript=rows)
    return TurnFailedError(f"the model refused: {text}", transcript=rows)


def _causes(exc: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = exc
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _pause_of(exc: BaseException) -> timedelta | None:
    """Return the pause that a provider asks for in seconds, if it does."""
    headers: Any = getattr(getattr(exc, "response", None), "headers", None) or {}
    seconds = str(headers.get("retry-after", ""))
    return min(timedelta(seconds=int(seconds[:9])), _MAX_PAUSE) if seconds.isdecimal() else None
