"""Errors of the session API as errors of JSON-RPC."""

from collections.abc import Iterator
from contextlib import contextmanager
from uuid import UUID

from acp.exceptions import RequestError
from pydantic import ValidationError

from chatlane_client import (
    ConnectionClosedError,
    ForbiddenRequestError,
    InvalidAnswerError,
    OversizedMessageError,
    RefusedRequestError,
    SessionNotFoundError,
    TransientError,
)


def invalid(details: str) -> RequestError:
    """Return the error of a request that cannot be carried out as it is."""
    return RequestError(-32602, details, {"details": details})


def not_found(session_id: str) -> RequestError:
    """Return the error of a session that is not there, or that belongs to another person."""
    return RequestError(-32002, "There is no such session.", {"uri": session_id})


def failed(details: str) -> RequestError:
    """Return the error of a request that the service could not carry out."""
    return RequestError(-32603, details, {"details": details})


def no_entry(details: str) -> RequestError:
    """Return the error of a connection that is refused."""
    return RequestError(-32000, "Authentication required", {"details": details})


@contextmanager
def refusals(session_id: str = "") -> Iterator[None]:
    """Translate the errors of the client library within a block."""
    try:
        yield
    except SessionNotFoundError as exc:
        raise not_found(session_id) from exc
    except ForbiddenRequestError as exc:
        raise no_entry(exc.message) from exc
    except RefusedRequestError as exc:
        raise invalid(exc.message) from exc
    except OversizedMessageError as exc:
        raise invalid(f"The message is too large: at most {exc.limit_bytes} bytes.") from exc
    except ValidationError as exc:
        # Without the values: they are in the request.
        problems = "; ".join(f"{error['loc']}: {error['msg']}" for error in exc.errors())
        raise invalid(problems) from exc
    except (TransientError, ConnectionClosedError, InvalidAnswerError) as exc:
        raise failed("chatlane does not answer.") from exc


def session_uuid(session_id: str) -> UUID:
    """Return the id of a session as chatlane has it.

    Raises:
        RequestError: It is no id of a session.
    """
    try:
        return UUID(session_id)
    except ValueError as exc:
        raise not_found(session_id) from exc


def check_directories(cwd: str, more: list[str] | None) -> None:
    """Check that directories are absolute.

    Raises:
        RequestError: A directory is relative.
    """
    for directory in (cwd, *(more or ())):
        is_windows = directory[1:3] in {":\\", ":/"} or directory.startswith("\\\\")
        if not directory.startswith("/") and not is_windows:
            raise invalid("Directories must be absolute paths.")
