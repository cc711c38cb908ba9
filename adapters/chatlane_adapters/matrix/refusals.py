"""Translate errors of the homeserver into those of a delivery."""

from http import HTTPStatus
from typing import Final

from aiohttp import ClientError

from chatlane_client import ChatGone, RetryAfter, Undeliverable
from chatlane_client.errors import TransientError, UndeliverableError
from chatlane_schemas import DeliveryFailure

_GONE: Final = frozenset({"M_FORBIDDEN", "M_NOT_FOUND", "M_UNRECOGNIZED"})
_REVOKED: Final = frozenset(
    {
        "M_UNKNOWN_TOKEN",
        "M_MISSING_TOKEN",
        "M_USER_DEACTIVATED",
        "M_USER_LOCKED",
        "M_USER_SUSPENDED",
        "M_UNKNOWN_DEVICE",
        "IO.ELEMENT.MSC4326.M_UNKNOWN_DEVICE",
    }
)
# Asked for if the server names no time.
_PAUSE_SECONDS: Final = 5.0


class HomeserverError(TransientError):
    """The homeserver did not do what it was asked, and may do it later.

    Attributes:
        code: Its `errcode`, or the HTTP status.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"the homeserver answered {code}")


# What a homeserver that is away, or on its way back, leads to.
UNREACHABLE: Final = (ClientError, TimeoutError, HomeserverError)


class RevokedTokenError(TransientError):
    """The homeserver does not accept the token of the account any more.

    Attributes:
        code: Its `errcode`.
    """

    def __init__(self, code: str) -> None:
        self.code = code
        super().__init__(f"the homeserver answered {code}")


def refusal_of(
    code: str | None, status: int, retry_after_ms: int | None = None
) -> RetryAfter | UndeliverableError | HomeserverError | RevokedTokenError:
    """Return the exception for an error of the homeserver.

    Args:
        code: `errcode` of its answer, if it has one.
        status: HTTP status.
        retry_after_ms: How long it asks to wait, in milliseconds.
    """
    if status == HTTPStatus.TOO_MANY_REQUESTS or code == "M_LIMIT_EXCEEDED":
        seconds = (retry_after_ms or 0) / 1000 or _PAUSE_SECONDS
        # Homeservers count the events of a user, not those of a room.
        return RetryAfter(seconds, whole_account=True)
    if code in _REVOKED:
        return RevokedTokenError(code or str(status))
    if code == "M_TOO_LARGE" or status == HTTPStatus.REQUEST_ENTITY_TOO_LARGE:
        return Undeliverable("M_TOO_LARGE", failure=DeliveryFailure.TOO_LARGE)
    if code in _GONE:
        return ChatGone(code or str(status))
    if code is None or status >= HTTPStatus.INTERNAL_SERVER_ERROR:
        return HomeserverError(code or str(status))
    return Undeliverable(code)
