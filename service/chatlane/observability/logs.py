"""Structured logs that cannot contain message bodies.

Every event passes one gate: it drops keys that are not on the list, replaces ids of other systems
with keyed digests, escapes control characters, and reduces an exception to its types and frames,
without a text that could quote its input. Logs of libraries pass the same gate.
"""

from __future__ import annotations

import hashlib
import io
import logging
import math
import re
import secrets
import sys
import threading
import time
import traceback
from contextlib import suppress
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, cast
from uuid import UUID

import structlog
from asyncpg import PostgresError
from pydantic import ValidationError
from typing_extensions import override

from chatlane.errors import ChatlaneError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType
    from typing import TextIO

    from structlog.typing import EventDict, FilteringBoundLogger, Processor, WrappedLogger


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Values of these keys come from chatlane: numbers, declared names, states, ids that it made.
PLAIN_KEYS: Final = _words(
    """
    account agent attempt attempts batches bytes clean column component config count cursor delay
    delivery detail digest dispatch dropped_keys durable duration duration_ms epoch error errors expected
    first_seq found generation held holder host how interval kind lag last_seq lease level limit
    limit_bytes log logger max_payload messages method missing mode new_cursor next_seq old_cursor
    outcome owned owner part partition partitions path pending pid platform point port previous principal
    problems profile reason released replicas repeated rows router router_id seconds seq sequence
    session_id share signal size_bytes slot slots sqlstate stage started state status step stream
    suspect_count suspect_seq taken_over task template timeout timestamp total turn_id turns url_host
    version waited wanted worker
    """
)

# Values of these keys come from outside and identify a person, a chat or a message.
DIGEST_KEYS: Final = _words(
    """
    alias canonical chat chat_id claim_id envelope_id event_id message_id person result_id
    sender sender_id session_key subject thread_id
    """
)

_OUTAGE_INTERVAL: Final = timedelta(seconds=30)
_MAX_TEXT: Final = 300
_MAX_ITEMS: Final = 64
_MAX_FRAMES: Final = 20
_MAX_CAUSES: Final = 5
# C0, DEL, C1, line and paragraph separators, and the marks that reorder text on a terminal.
_CONTROL: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\u2028\u2029\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
_EVENT_NAME: Final = re.compile(r"[a-z][a-z0-9_]*")

Level = Literal["debug", "info", "warning", "error"]
_LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}


def get_logger(component: str) -> FilteringBoundLogger:
    """Return the logger of one part of the service, also before `configure_logging`."""
    logger: FilteringBoundLogger = structlog.get_logger(component=component)
    return logger


def configure_logging(
    level: Level = "info",
    *,
    json: bool,
    digest_key: bytes | None = None,
    stream: TextIO | None = None,
) -> None:
    """Send all logs of the process, those of libraries included, through the gate.

    Args:
        level: Lowest level that is written.
        json: One JSON object per line; otherwise coloured text for people.
        digest_key: Key of the digests that replace ids. Processes that share it write the same
            digest for the same id; without it each process has its own key.
        stream: Output stream; standard error by default.
    """
    target = sys.stderr if stream is None else stream
    structlog.configure(
        processors=[
            OutageLimit(),
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            Gate(digest_key or secrets.token_bytes(32)),
            *_renderers(json=json, colors=target.isatty()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(_LEVELS[level]),
        logger_factory=structlog.WriteLoggerFactory(file=cast("TextIO", _Sink(target))),
        cache_logger_on_first_use=False,
    )
    _route_library_logs(_LEVELS[level])


def log_uncaught() -> None:
    """Send exceptions that end the process or a thread, or occur in cleanup, through the gate.

    Python would print them with their text, and the text of a database error quotes the row.
    """
    log = get_logger("process")

    def end(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        del kind, trace
        log.critical("process_failed", exc_info=error)

    def in_thread(failed: threading.ExceptHookArgs) -> None:
        log.error("thread_failed", exc_info=failed.exc_value)

    def unraisable(failed: sys.UnraisableHookArgs) -> None:
        log.error("error_unraisable", exc_info=failed.exc_value)

    sys.excepthook = end
    threading.excepthook = in_thread
    sys.unraisablehook = unraisable


class _Sink(io.TextIOBase):
    """A stream whose loss does not stop the process; later log lines are dropped."""

    def __init__(self, target: TextIO) -> None:
        self._target = target

    @override
    def write(self, text: str, /) -> int:
        with suppress(OSError, ValueError):
            self._target.write(text)
        return len(text)

    @override
    def flush(self) -> None:
        with suppress(OSError, ValueError):
            self._target.flush()


def _renderers(*, json: bool, colors: bool) -> tuple[Processor, ...]:
    if json:
        return (structlog.processors.JSONRenderer(sort_keys=True),)
    return (
        _exception_as_lines,
        structlog.dev.ConsoleRenderer(colors=colors, sort_keys=False, pad_event_to=28),
    )


def _exception_as_lines(
    logger: WrappedLogger, method_name: str, event_dict: EventDict
) -> EventDict:
    """Turn the described exception into the lines that the console renderer expects."""
    del logger, method_name
    described = event_dict.get("exception")
    if isinstance(described, dict):
        causes = described.get("causes", ())
        event_dict["exception"] = "\n".join(
            f"  {error['type']}: {error.get('says', '')}\n    "
            + "\n    ".join(error.get("frames", ()))
            for error in (described, *causes)
        )
    return event_dict


class OutageLimit:
    """A processor that drops repeated warnings about an unavailable Postgres.

    Every job of a router retries and warns while Postgres is away. One line per event and
    interval is enough; it counts the lines that were dropped before it.
    """

    def __init__(
        self, interval: timedelta = _OUTAGE_INTERVAL, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._interval = interval.total_seconds()
        self._clock = clock
        self._logged: dict[tuple[object, object], tuple[float, int]] = {}

    def __call__(self, logger: WrappedLogger, method_name: str, event_dict: EventDict) -> EventDict:
        """Return the event, or drop it as a repetition."""
        del logger
        text = event_dict.get("reason", event_dict.get("error"))
        is_outage = isinstance(text, str) and text.startswith("Postgres ")
        if method_name != "warning" or not is_outage:
            return event_dict
        key, now = (event_dict.get("event"), text), self._clock()
        logged_at, dropped = self._logged.get(key, (-math.inf, 0))
        if now - logged_at < self._interval:
            self._logged[key] = (logged_at, dropped + 1)
            raise structlog.DropEvent
        self._logged[key] = (now, 0)
        if dropped:
            event_dict["repeated"] = dropped
        return event_dict


class Gate:
    """The processor that decides which parts of an event may be written."""

    def __init__(self, digest_key: bytes) -> None:
        self._digest_key = digest_key[:64]

    def __call__(self, logger: WrappedLogger, method_name: str, event_dict: EventDict) -> EventDict:
        """Return the event with only the parts that may be written."""
        del logger, method_name
        exc_info = event_dict.pop("exc_info", None)
        written: dict[str, object] = {"event": _event_name(event_dict.pop("event", None))}
        dropped = []
        for key, value in event_dict.items():
            if key in PLAIN_KEYS:
                written[key] = _plain(value)
            elif key in DIGEST_KEYS:
                written[key] = self.digest(value)
            else:
                dropped.append(key)
        if dropped:
            written["dropped_keys"] = sorted(escaped(key) for key in dropped)
        error = _exception_of(exc_info)
        if error is not None:
            written["exception"] = describe_exception(error)
        return written

    def digest(self, value: object) -> str | None:
        """Return the digest of an id: the same id and key give the same text."""
        if value is None:
            return None
        text = str(value).encode("utf-8", "surrogatepass")
        return hashlib.blake2b(text, key=self._digest_key, digest_size=8).hexdigest()


def _event_name(event: object) -> str:
    """Return the constant name of the event; any other text could contain data."""
    if isinstance(event, str) and _EVENT_NAME.fullmatch(event):
        return event
    return "unnamed_event"


def _plain(value: object) -> object:
    match value:
        case None | bool() | int() | float():
            return value
        case set() | frozenset():
            return [_plain(item) for item in sorted(value, key=str)[:_MAX_ITEMS]]
        case list() | tuple():
            return [_plain(item) for item in value[:_MAX_ITEMS]]
        case timedelta():
            return value.total_seconds()
        case _:
            return _plain_text(value)


def _plain_text(value: object) -> str:
    """Return the text of a value if it is known to be harmless, else only its type."""
    match value:
        case str() | UUID() | Path():
            return escaped(str(value))
        case datetime() | date():
            return value.isoformat()
        case _:
            return f"<{type(value).__name__}>"


def escaped(text: str) -> str:
    """Return `text` on one line, without control characters, at most 300 characters long."""
    cut = text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}…"
    return without_controls(cut)


def without_controls(text: str, keep: str = "") -> str:
    """Return `text` with control characters, except those in `keep`, in hexadecimal."""
    return _CONTROL.sub(
        lambda match: match[0] if match[0] in keep else f"\\u{ord(match[0]):04x}", text
    )


def describe_exception(error: BaseException) -> dict[str, object]:
    """Describe an exception by types, frames and causes, without text that quotes its input.

    Our own errors build their text from data that may be shown; of all other errors only text that
    is known to be harmless is kept.
    """
    causes = list(_chain(error))
    described = _describe_one(error)
    if len(causes) > 1:
        described["causes"] = [_describe_one(cause) for cause in causes[1:_MAX_CAUSES]]
    return described


def _chain(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    current: BaseException | None = error
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        hidden = current.__suppress_context__
        current = current.__cause__ or (None if hidden else current.__context__)


def _describe_one(error: BaseException) -> dict[str, object]:
    described: dict[str, object] = {"type": type(error).__qualname__}
    text = _safe_text(error)
    if text:
        described["says"] = escaped(text)
    frames = _frames(error.__traceback__)
    if frames:
        described["frames"] = frames
    return described


def _safe_text(error: BaseException) -> str:
    """Return the harmless text of an error, or ""."""
    match error:
        case ChatlaneError():
            return str(error)
        case ValidationError():
            return ", ".join(
                f"{'.'.join(map(str, problem['loc']))}: {problem['type']}"
                for problem in error.errors(include_input=False, include_context=False)
            )
        case PostgresError():
            return f"sqlstate={error.sqlstate}"
        case OSError():
            return error.strerror or ""
        case BaseExceptionGroup():
            return ", ".join(type(inner).__qualname__ for inner in error.exceptions)
        case _:
            return ""


def _frames(trace: TracebackType | None) -> list[str]:
    frames = traceback.extract_tb(trace)[-_MAX_FRAMES:]
    return [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]


def _exception_of(exc_info: object) -> BaseException | None:
    match exc_info:
        case BaseException():
            return exc_info
        case (_, BaseException() as error, _):
            return error
        case True:
            return sys.exc_info()[1]
        case _:
            return None


class _LibraryHandler(logging.Handler):
    """Passes log records of libraries to structlog.

    Only the first line of the template is kept, without its arguments: these quote subjects,
    addresses and reprs of tasks, which in turn quote exceptions.
    """

    @override
    def emit(self, record: logging.LogRecord) -> None:
        template = str(record.msg).split("\n", 1)[0]
        if record.name == "py.warnings":
            # path:line: category: a text without a template
            template = ": ".join(template.split(": ")[:2])
        structlog.get_logger().log(
            record.levelno,
            "library_logged",
            logger=record.name,
            template=template,
            exc_info=record.exc_info,
            **_own_extras(record),
        )


def _own_extras(record: logging.LogRecord) -> dict[str, object]:
    """Return the fields that our client packages add to a record; the gate filters them."""
    if not record.name.startswith("chatlane"):
        return {}
    return {
        key: value
        for key, value in vars(record).items()
        if key in PLAIN_KEYS | DIGEST_KEYS and key not in _RECORD_FIELDS
    }


_RECORD_FIELDS: Final = vars(logging.makeLogRecord({})).keys()

# At `info` these libraries only report that their connections open and close.
_QUIET_LIBRARIES: Final = ("uvicorn", "uvicorn.error", "faststream", "nats", "asyncio", "httpx")


def _route_library_logs(level: int) -> None:
    root = logging.getLogger()
    root.handlers[:] = [_LibraryHandler()]
    root.setLevel(max(level, logging.WARNING))
    for name in _QUIET_LIBRARIES:
        library = logging.getLogger(name)
        library.handlers.clear()
        library.propagate = True
        library.setLevel(logging.NOTSET)
    logging.getLogger("uvicorn.access").disabled = True
    logging.captureWarnings(capture=True)
