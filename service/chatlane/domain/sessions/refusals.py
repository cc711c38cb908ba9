"""Build the errors of refused API requests."""

from __future__ import annotations

from chatlane_schemas.session_api.sessions import ApiError, ApiErrorCode


def invalid(message: str) -> ApiError:
    """Return the error of a request with a value that is not permitted."""
    return ApiError(code=ApiErrorCode.INVALID, message=message)


def conflict(message: str) -> ApiError:
    """Return the error of a request that contradicts the stored state."""
    return ApiError(code=ApiErrorCode.CONFLICT, message=message)


def stale(message: str) -> ApiError:
    """Return the error of a request that was made from an outdated state."""
    return ApiError(code=ApiErrorCode.STALE, message=message)


def not_found(message: str) -> ApiError:
    """Return the error of a request for something that is unknown or hidden from the caller."""
    return ApiError(code=ApiErrorCode.NOT_FOUND, message=message)


def no_session() -> ApiError:
    """Return the error of a request for a session that is unknown or hidden from the caller."""
    return not_found("there is no session with this id")


def is_read_only() -> ApiError:
    """Return the error of a request that would write to a session that nothing is written to."""
    return conflict("the session is read only; a copy of it is not")


def no_lane() -> ApiError:
    """Return the error of a request for a lane that is unknown or hidden from the caller."""
    return not_found("there is no lane with this key")
