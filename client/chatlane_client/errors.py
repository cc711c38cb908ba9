"""Errors of the client, grouped by whether a retry can help.

ChatlaneClientError
├── TransientError              retry with the same id: the operation may have happened
│   ├── UnconfirmedPublishError
│   ├── RetryLaterError         the log is full: nothing was stored, retry after a while
│   ├── UnansweredRequestError
│   ├── UnavailableServiceError
│   └── RetryAfter              raised by an outbound handler: the platform asks to wait
└── PermanentError              a retry changes nothing
    ├── ConnectionClosedError   the connection is closed for good: end the process
    ├── OversizedMessageError
    ├── RefusedPublishError
    ├── ForeignEventError
    ├── UndeclaredAccountError  chatlane.toml does not declare the account: nothing was stored
    ├── InvalidAnswerError
    ├── RefusedRequestError
    │   ├── SessionNotFoundError
    │   ├── ProjectNotFoundError
    │   ├── ForbiddenRequestError
    │   ├── ConflictingRequestError
    │   └── StaleRequestError
    ├── QuestionWithdrawnError  a message of the turn was changed while it asked
    ├── EditorCallError         an editor did not do what a turn called it for
    ├── FrontEndCallError       a tool of the front end of a turn has no result
    ├── TurnFailedError         raised by a turn handler
    │   └── StepError           a step cannot be kept
    ├── AgentUnavailableError   raised by a turn handler
    └── UndeliverableError      raised by an outbound handler, also as `Undeliverable`
        └── ChatGone
"""

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from chatlane_schemas.content.editor_calls import EditorError
from chatlane_schemas.deliveries import DeliveryFailure
from chatlane_schemas.results import TranscriptRow

if TYPE_CHECKING:
    from chatlane_schemas.session_api.sessions import SessionView


_LONGEST_WAIT: Final = 86_400.0


class ChatlaneClientError(Exception):
    """Any error that this package raises on purpose."""


class TransientError(ChatlaneClientError):
    """An error after which a retry with the same id may succeed."""


class PermanentError(ChatlaneClientError):
    """An error after which a retry cannot succeed."""


class UnconfirmedPublishError(TransientError):
    """No stream confirmed a publish in time; the message may be stored anyway."""

    def __init__(self, subject: str, message_id: str) -> None:
        self.subject = subject
        self.message_id = message_id
        super().__init__(f"no stream confirmed {message_id} on {subject} in time")


class RetryLaterError(TransientError):
    """The log is full and accepts nothing now; the sender should keep the message for a while.

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
    """The service did not reply to a request in time; the request may have taken effect.

    If `reached_nobody` is true, it certainly had no effect: no service was subscribed.
    """

    def __init__(self, subject: str, *, reached_nobody: bool) -> None:
        self.subject = subject
        self.reached_nobody = reached_nobody
        super().__init__(f"no answer on {subject} in time")


class UnavailableServiceError(TransientError):
    """The service received a request and could not process it now."""

    def __init__(self, subject: str, message: str) -> None:
        self.subject = subject
        self.message = message
        super().__init__(f"no answer on {subject} now: {message}")


class RetryAfter(TransientError):  # noqa: N818 - what the platform asks for, not an error
    """Raised by an outbound handler when the platform asks to wait.

    Attributes:
        after: How long the platform asks to wait, at most a day: a longer wait is mostly a time
            stamp or other unit, and another try shows.
        whole_account: Whether it refuses all chats of the account, or only this one.
    """

    def __init__(self, seconds: float, *, whole_account: bool = False) -> None:
        self.after = timedelta(seconds=min(max(0.0, seconds), _LONGEST_WAIT))
        self.whole_account = whole_account
        super().__init__(f"the platform asks to wait {seconds} s")


class ConnectionClosedError(PermanentError):
    """The NATS connection was closed; it never opens again."""

    def __init__(self) -> None:
        super().__init__("the NATS connection is closed; end this process and start a new one")


class OversizedMessageError(PermanentError):
    """A message that no server would accept; it was not sent."""

    def __init__(self, subject: str, size_bytes: int, limit_bytes: int) -> None:
        self.subject = subject
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"message on {subject} has {size_bytes} bytes, allowed are {limit_bytes}")


class RefusedPublishError(PermanentError):
    """The stream rejected a message for good."""

    def __init__(self, subject: str, message_id: str, code: int | None, reason: str) -> None:
        self.subject = subject
        self.message_id = message_id
        self.code = code
        self.reason = reason
        super().__init__(f"the stream refused {message_id} on {subject}: {reason} ({code})")


class ForeignEventError(PermanentError):
    """An event of another account than the client's own."""

    def __init__(self, event_id: str, address: str, own_address: str) -> None:
        self.event_id = event_id
        self.address = address
        self.own_address = own_address
        super().__init__(f"event {event_id} is of {address}, this client speaks for {own_address}")


class UndeclaredAccountError(PermanentError):
    """No account of this name is declared; its events would become dead letters."""

    def __init__(self, platform: str, account: str) -> None:
        self.platform = platform
        self.account = account
        super().__init__(
            f"account {account!r} of platform {platform!r} is not declared: check the name, or add "
            f"[platforms.{platform}.accounts.{account}] to chatlane.toml, run `chatlane admin "
            "apply` and restart the routers"
        )


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
    """The session does not exist or does not belong to the person named in the request."""


class ProjectNotFoundError(RefusedRequestError):
    """The folder does not exist or does not belong to the person named in the request."""


class ForbiddenRequestError(RefusedRequestError):
    """The caller may not make this request, or not for this person."""


class ConflictingRequestError(RefusedRequestError):
    """The request contradicts the current state."""


class StaleRequestError(RefusedRequestError):
    """The state has changed since the version that the request was based on.

    Attributes:
        current: The session as it is now, if the request had an `expected_version` of a session;
            else None.
    """

    def __init__(self, subject: str, message: str, current: "SessionView | None" = None) -> None:
        self.current = current
        super().__init__(subject, message)


class QuestionWithdrawnError(PermanentError):
    """A person changed a message of the turn while its question was open.

    An answer would be to the former words. A handler that lets this error pass fails the attempt,
    and the next one gets the message as it is now.
    """

    def __init__(self) -> None:
        super().__init__("a message of the turn was changed while its question was open")


class EditorCallError(PermanentError):
    """An editor did not do what a turn called it for.

    Attributes:
        reason: Why; None if no editor answered in time.
    """

    def __init__(self, message: str, reason: EditorError | None = None) -> None:
        self.reason = reason
        super().__init__(message)


class FrontEndCallError(PermanentError):
    """A call of a tool of the front end of a turn has no result."""


class TurnFailedError(PermanentError):
    """Raised by a turn handler to fail its turn with an error text of its choice.

    The text travels with the result, so it should hold no personal data.

    Attributes:
        transcript: Rows to add to the transcript if the router gives the turn up, such as the
            tool calls that were made.
    """

    def __init__(
        self, message: str, *, retry: bool = False, transcript: Sequence[TranscriptRow] = ()
    ) -> None:
        self.message = message
        self.retry = retry
        self.transcript = transcript
        super().__init__(message)


class StepError(TurnFailedError):
    """A step of a turn cannot be kept: its name is taken, or its result is no JSON or too large.

    It is an error of the handler. If the handler does not catch it, the turn fails without another
    attempt, because that would run the step again.
    """


class AgentUnavailableError(PermanentError):
    """Raised by a turn handler that cannot answer now, for example because its model is unavailable.

    The attempt does not count. The turn waits, and so do the other turns of the agent: after the
    pause, one of them tries the agent. A long wait is announced once in the chat.

    Attributes:
        again_in: When the agent can probably answer again; None lets the service choose.
        transcript: Rows to add to the transcript, such as tool calls that were made. The next
            attempt gets them as `Turn.earlier_rows`.
    """

    def __init__(
        self,
        message: str = "the agent is unavailable",
        *,
        again_in: timedelta | None = None,
        transcript: Sequence[TranscriptRow] = (),
    ) -> None:
        self.message = message
        # The service waits no longer than `max_wait` of the agent; more does not fit into a result.
        longest = timedelta(seconds=_LONGEST_WAIT)
        self.again_in = again_in and min(max(again_in, timedelta(0)), longest)
        self.transcript = transcript
        super().__init__(message)


class UndeliverableError(PermanentError):
    """Raised by an outbound handler for a message that its platform will never accept.

    Attributes:
        reason: Text for the log of the adapter; it leaves the process nowhere else.
        failure: Kind of the refusal, which the service records.
    """

    def __init__(self, reason: str, *, failure: DeliveryFailure = DeliveryFailure.REFUSED) -> None:
        self.reason = reason
        self.failure = failure
        super().__init__(reason)


Undeliverable = UndeliverableError


class ChatGone(UndeliverableError):  # noqa: N818 - a fact about the chat, not an error of the handler
    """Raised by an outbound handler for a chat that takes no message of this account any more.

    All messages that wait for the chat are given up with this one.
    """

    def __init__(self, reason: str, *, failure: DeliveryFailure = DeliveryFailure.GONE) -> None:
        super().__init__(reason, failure=failure)
