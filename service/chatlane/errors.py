"""The errors of the service, in one tree that answers: is it worth trying again?

ChatlaneError
├── TransientError                 try again: the batch waits and is retried in place
│   ├── StoreUnavailableError      Postgres did not answer, or lost a race worth repeating
│   ├── SupersededError            somebody else decided first: read again and start over
│   ├── ResultAheadError           what a result answers may still be read from the other log
│   └── BusUnavailableError        NATS did not answer; a publish without PubAck is *unknown*
│       └── StreamFullError        the stream has no room, and did not store it
└── PermanentError                 never: dead letter, then go on
    ├── MalformedMessageError
    ├── UnroutableMessageError
    ├── OversizedMessageError
    ├── SchemaMismatchError        the database or the streams are not the ones we know
    └── MissingTracingError        traces are asked for, and what sends them is not installed

Anything outside the tree is a bug: logged with its traceback, retried, bisected to the one
message, and dead-lettered.
"""

from typing import Final

_LOCK_NOT_AVAILABLE: Final = "55P03"
_NO_RIGHT: Final = "42501"
# Postgres reports the same for a table in a schema without a right on it.
_NO_TABLE: Final = "42P01"
_WRONG_LOGIN: Final = "Postgres refuses the login: check user and password in postgres.dsn"
_TEXTS: Final = {
    "28P01": _WRONG_LOGIN,
    "28000": _WRONG_LOGIN,
    "3D000": "Postgres has no database of this name: check postgres.dsn, or create the database",
    _NO_RIGHT: "Postgres refuses a statement for a missing right: run `chatlane admin grants`",
    _NO_TABLE: "a table or a right is missing in Postgres: run `chatlane admin migrate`, then "
    "`chatlane admin grants`",
    "53300": "Postgres has no free connection slots (max_connections)",
}
_NO_ANSWER: Final = "Postgres does not answer: check postgres.dsn, and that the server runs"


class ChatlaneError(Exception):
    """Root of everything the service raises on purpose."""


class TransientError(ChatlaneError):
    """Trying again may help."""


class StoreUnavailableError(TransientError):
    """Postgres did not take or answer a statement.

    Attributes:
        sqlstate: Five characters, or "" when the connection itself failed.
        is_held_up: Whether somebody keeps a lock; work on other rows need not wait for it.
        is_forbidden: Whether a right is missing.
    """

    def __init__(self, sqlstate: str = "", kind: str = "") -> None:
        self.sqlstate = sqlstate
        self.is_held_up = sqlstate == _LOCK_NOT_AVAILABLE
        self.is_forbidden = sqlstate == _NO_RIGHT
        text = _TEXTS.get(sqlstate, "Postgres is unavailable" if sqlstate else _NO_ANSWER)
        facts = " ".join(filter(None, (sqlstate and f"sqlstate={sqlstate}", kind)))
        super().__init__(f"{text} ({facts})" if facts else text)


class SupersededError(TransientError):
    """Another transaction changed what this one had read; nothing was written."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"superseded: {what}")


class ResultAheadError(TransientError):
    """A result was read before what it answers, which may still be in the inbound log."""

    def __init__(self, result_id: str) -> None:
        super().__init__(f"result {result_id} answers what is not known yet")


class BusUnavailableError(TransientError):
    """NATS gave no acknowledgement in time; whether it stored the message is unknown."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"nats unavailable: {kind}")


class PartitionCountError(TransientError):
    """A log has another number of partitions than the configuration; the router does not read it.

    Its text says what to do.
    """


class StreamFullError(BusUnavailableError):
    """A stream has no room; what leads to it had better wait."""


class PermanentError(ChatlaneError):
    """Trying again cannot help."""


class MalformedMessageError(PermanentError):
    """A body or subject that no version of the contract allows."""


class UnroutableMessageError(PermanentError):
    """A well-formed message that leads to no conversation."""


class OversizedMessageError(PermanentError):
    """Subject, headers and body together exceed what the server takes.

    Attributes:
        size_bytes: What would have been sent.
        limit_bytes: What the server announced.
    """

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"message of {size_bytes} bytes exceeds the limit of {limit_bytes}")


class SchemaMismatchError(PermanentError):
    """The database schema or the streams differ from what this release works with.

    Attributes:
        differences: One sentence each.
    """

    def __init__(self, differences: tuple[str, ...]) -> None:
        self.differences = differences
        super().__init__("; ".join(differences))


class MissingTracingError(PermanentError):
    """Traces are to be sent, but the packages that do it are not installed."""

    def __init__(self) -> None:
        super().__init__(
            "tracing.endpoint is set, but what sends traces is missing: install chatlane[otel]"
        )
