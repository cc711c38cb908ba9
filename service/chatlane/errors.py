"""The errors of the service, in one tree that says whether a retry can help.

ChatlaneError
├── TransientError                 retry: the batch waits and is retried in place
│   ├── StoreUnavailableError      Postgres did not answer, or a conflict can be retried
│   ├── SupersededError            another transaction decided first: read again, start over
│   ├── ResultAheadError           the cause of a result may still be unread in the other log
│   └── BusUnavailableError        NATS did not answer; a publish without PubAck is *unknown*
│       └── StreamFullError        the stream has no room, and did not store the message
└── PermanentError                 never retry: dead letter, then continue
    ├── MalformedMessageError
    ├── OversizedMessageError
    ├── SchemaMismatchError        the database or the streams differ from this release
    └── MissingTracingError        tracing is enabled, but its packages are not installed

Any other exception is a bug: the router logs it with its traceback, retries, bisects the batch to
the failing message, and dead-letters that message.
"""

from typing import Final

_LOCK_NOT_AVAILABLE: Final = "55P03"
_NO_RIGHT: Final = "42501"
# Postgres also reports this for a table in a schema without a right on it.
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
    """Base class of all errors that the service raises on purpose."""


class TransientError(ChatlaneError):
    """An error that a retry may resolve."""


class StoreUnavailableError(TransientError):
    """Postgres did not accept or answer a statement.

    Attributes:
        sqlstate: Five characters, or "" when the connection itself failed.
        is_held_up: Another transaction keeps a lock; work on other rows need not wait for it.
        is_forbidden: A database right is missing.
    """

    def __init__(self, sqlstate: str = "", kind: str = "") -> None:
        self.sqlstate = sqlstate
        self.is_held_up = sqlstate == _LOCK_NOT_AVAILABLE
        self.is_forbidden = sqlstate == _NO_RIGHT
        text = _TEXTS.get(sqlstate, "Postgres is unavailable" if sqlstate else _NO_ANSWER)
        facts = " ".join(filter(None, (sqlstate and f"sqlstate={sqlstate}", kind)))
        super().__init__(f"{text} ({facts})" if facts else text)


class SupersededError(TransientError):
    """Another transaction changed rows that this one had read; nothing was written."""

    def __init__(self, what: str) -> None:
        self.what = what
        super().__init__(f"superseded: {what}")


class ResultAheadError(TransientError):
    """A result was read before its cause, which may still be unread in the inbound log."""

    def __init__(self, result_id: str) -> None:
        super().__init__(f"result {result_id} answers what is not known yet")


class BusUnavailableError(TransientError):
    """NATS sent no acknowledgement in time, so it is unknown whether it stored the message."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(f"nats unavailable: {kind}")


class PartitionCountError(TransientError):
    """A log and the configuration have different partition counts; the router does not read it.

    The text says how to fix it.
    """


class StreamFullError(BusUnavailableError):
    """A stream has no room; work that publishes to it should wait."""


class PermanentError(ChatlaneError):
    """An error that no retry can resolve."""


class MalformedMessageError(PermanentError):
    """No version of the contract allows this body or subject."""


class OversizedMessageError(PermanentError):
    """Subject, headers and body together exceed what the server takes.

    Attributes:
        size_bytes: Size of the message that was not sent.
        limit_bytes: Limit that the server announced.
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
    """Tracing is enabled, but the packages that send traces are not installed."""

    def __init__(self) -> None:
        super().__init__(
            "tracing.endpoint is set, but what sends traces is missing: install chatlane[otel]"
        )
