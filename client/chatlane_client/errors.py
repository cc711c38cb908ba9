"""Errors of the client; the tree answers one question: is it worth trying again?

ChatlaneClientError
├── TransientError              try again with the same id: it may or may not have happened
│   ├── UnconfirmedPublishError
│   ├── RetryLaterError         the log is full: nothing was taken, try again after a while
│   ├── UnansweredRequestError
│   └── UnavailableServiceError
└── PermanentError              trying again changes nothing
    ├── ConnectionClosedError   the connection is gone for good: end the process
    ├── OversizedMessageError
    ├── RefusedPublishError
    ├── ForeignEventError
    ├── InvalidAnswerError
    ├── RefusedRequestError
    │   ├── SessionNotFoundError
    │   ├── ForbiddenRequestError
    │   ├── ConflictingRequestError
    │   └── StaleRequestError
    ├── TurnFailedError         raised by a turn handler
    └── UndeliverableError      raised by an outbound handler
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from chatlane_schemas.results import TranscriptRow

if TYPE_CHECKING:
    from chatlane_schemas.sessions import SessionView


class ChatlaneClientError(Exception):
    """Any error this package raises on purpose."""


class TransientError(ChatlaneClientError):
    """Worth another try, with the same id."""


class PermanentError(ChatlaneClientError):
    """Not worth another try."""


class UnconfirmedPublishError(TransientError):
    """No stream confirmed a publish in time; the message may be stored all the same."""

    def __init__(self, subject: str, message_id: str) -> None:
        self.subject = subject
        self.message_id = message_id
        super().__init__(f"no stream confirmed {message_id} on {subject} in time")


class RetryLaterError(TransientError):
    """The log is full and takes nothing now; whoever sent the message should keep it for a while.

    Attributes:
        after: How long to wait before the same event is published again. It grows while the
            log stays full.
    """

    def __init__(self, subject: str, message_id: str, after: timedelta) -> None:
        self.subject = subject
        self.message_id = message_id
        self.after = after
        super().__init__(f"the stream of {subject} is full and did not take {message_id}")


class UnansweredRequestError(TransientError):
    """Nobody answered a request in time; it may have had its effect all the same.

    `reached_nobody` says for sure that it had none: no service was listening.
    """

    def __init__(self, subject: str, *, reached_nobody: bool) -> None:
        self.subject = subject
        self.reached_nobody = reached_nobody
        super().__init__(f"no answer on {subject} in time")


class UnavailableServiceError(TransientError):
    """The service heard a request and could not answer it now."""

    def __init__(self, subject: str, message: str) -> None:
        self.subject = subject
        self.message = message
        super().__init__(f"no answer on {subject} now: {message}")


class ConnectionClosedError(PermanentError):
    """The NATS connection was closed; it never opens again."""

    def __init__(self) -> None:
        super().__init__("the NATS connection is closed; end this process and start a new one")


class OversizedMessageError(PermanentError):
    """A message that no server would take; it was never sent."""

    def __init__(self, subject: str, size_bytes: int, limit_bytes: int) -> None:
        self.subject = subject
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"message on {subject} has {size_bytes} bytes, allowed are {limit_bytes}")


class RefusedPublishError(PermanentError):
    """The stream refused a message for good."""

    def __init__(self, subject: str, message_id: str, code: int | None, reason: str) -> None:
        self.subject = subject
        self.message_id = message_id
        self.code = code
        self.reason = reason
        super().__init__(f"the stream refused {message_id} on {subject}: {reason} ({code})")


class ForeignEventError(PermanentError):
    """An event that speaks for another account than the client's own."""

    def __init__(self, event_id: str, address: str, own_address: str) -> None:
        self.event_id = event_id
        self.address = address
        self.own_address = own_address
        super().__init__(f"event {event_id} is of {address}, this client speaks for {own_address}")


class InvalidAnswerError(PermanentError):
    """An answer that does not follow the contract; it may come from a newer release."""

    def __init__(self, subject: str, detail: str) -> None:
        self.subject = subject
        self.detail = detail
        super().__init__(f"the answer on {subject} does not follow the contract: {detail}")


class RefusedRequestError(PermanentError):
    """The service refused a request for good."""

    def __init__(self, subject: str, message: str) -> None:
        self.subject = subject
        self.message = message
        super().__init__(f"request on {subject} was refused: {message}")


class SessionNotFoundError(RefusedRequestError):
    """There is no such session, or it is not of the person who is acted for."""


class ForbiddenRequestError(RefusedRequestError):
    """The caller may not ask this, or not for this person."""


class ConflictingRequestError(RefusedRequestError):
    """The request contradicts something that is there."""


class StaleRequestError(RefusedRequestError):
    """The request was made for what has changed since.

    Attributes:
        current: The session as it is now, where the request had an `expected_version` of one;
            else None.
    """

    def __init__(self, subject: str, message: str, current: "SessionView | None" = None) -> None:
        self.current = current
        super().__init__(subject, message)


class TurnFailedError(PermanentError):
    """Raised by a turn handler to fail its turn with words of its own choice.

    The text travels with the result, so it should hold nothing personal.

    Attributes:
        transcript: Rows to add to the transcript if the turn is given up, such as the calls of
            tools that were made.
    """

    def __init__(
        self, message: str, *, retry: bool = False, transcript: Sequence[TranscriptRow] = ()
    ) -> None:
        self.message = message
        self.retry = retry
        self.transcript = transcript
        super().__init__(message)


class UndeliverableError(PermanentError):
    """Raised by an outbound handler for a message its platform will never take."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)
