"""Deliver the events of the log to one endpoint, those of a session in order."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from functools import partial
from time import monotonic
from typing import Final

from chatlane_bridges.webhooks.event_log import EventLog, LoggedEvent, Position
from chatlane_bridges.webhooks.http_sender import HttpSender, PostFailedError
from chatlane_bridges.webhooks.metrics import (
    ATTEMPTS,
    GIVEN_UP,
    OLDEST,
    WAITING,
    AttemptOutcome,
)
from chatlane_bridges.webhooks.settings import DeclaredEndpoint
from chatlane_bridges.webhooks.signatures import signed_headers
from chatlane_client import ChatlaneClientError
from chatlane_client.transport.cursors import Cursors
from chatlane_client.transport.retry import Backoff

_log: Final = logging.getLogger("chatlane_bridges")

_AT_ONCE: Final = 16
# Events behind the oldest undelivered one; they are sent again if the process is killed.
_MAX_AHEAD: Final = 1000
_MAX_REFUSALS: Final = 5
_GIVE_UP_AFTER: Final = timedelta(hours=72)
_BETWEEN_SAVES: Final = timedelta(seconds=1)
_SAVE_WITHIN: Final = timedelta(seconds=5)
_LOAD_WITHIN: Final = timedelta(minutes=10)
_BACKOFF: Final = Backoff(first=timedelta(seconds=1), longest=timedelta(minutes=5))

ReadRows = Callable[[Mapping[str, object]], Awaitable[list[dict[str, object]]]]
"""Returns the rows of the turn of an event."""


@dataclass(slots=True)
class _Progress:
    seq: int
    at: datetime
    is_done: bool = False


class _Health:
    """Lets attempts wait while an endpoint does not work."""

    def __init__(self) -> None:
        self._pauses = _BACKOFF.pauses()
        self._resumes_at = 0.0

    async def until_open(self) -> None:
        await asyncio.sleep(max(0.0, self._resumes_at - monotonic()))

    def note_success(self) -> None:
        self._pauses = _BACKOFF.pauses()
        self._resumes_at = 0.0

    def note_failure(self, retry_after: timedelta | None) -> None:
        # Attempts that failed together count once.
        if monotonic() >= self._resumes_at:
            demanded = 0.0 if retry_after is None else retry_after.total_seconds()
            self._resumes_at = monotonic() + max(next(self._pauses), demanded)


class EndpointDelivery:
    """Reads the log from the stored position of an endpoint, and sends what it wants."""

    def __init__(
        self,
        name: str,
        declared: DeclaredEndpoint,
        *,
        log: EventLog,
        cursors: Cursors,
        sender: HttpSender,
        read_rows: ReadRows,
    ) -> None:
        """Create it; `run` delivers.

        Raises:
            OSError: The file with the secret cannot be read.
            ValueError: The secret cannot be used.
        """
        self._name = name
        self._declared = declared
        self._keys: Sequence[bytes] = declared.keys()
        self._log = log
        self._cursors = cursors
        self._sender = sender
        self._read_rows = read_rows
        self._health = _Health()
        self._slots = asyncio.Semaphore(_AT_ONCE)
        self._ahead: deque[_Progress] = deque()
        self._moved = asyncio.Event()
        self._last: dict[str, asyncio.Task[None]] = {}
        self._position = Position("", 0)
        for outcome in AttemptOutcome:
            ATTEMPTS.labels(name, outcome.value)
        GIVEN_UP.labels(name)
        WAITING.labels(name).set_function(lambda: len(self._ahead))
        OLDEST.labels(name).set_function(self._oldest_seconds)

    def _oldest_seconds(self) -> float:
        if not self._ahead:
            return 0.0
        return (datetime.now(UTC) - self._ahead[0].at).total_seconds()

    async def run(self) -> None:
        """Deliver until cancelled; the first start begins with events from then on."""
        stored = await self._cursors.load(self._name, _LOAD_WITHIN)
        if stored is None:
            self._position = await self._log.end()
        else:
            self._position = await self._log.checked(Position.parsed(stored))
        await self._save()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._keep_position())
            try:
                await self._read(group)
            finally:
                await self._save()

    async def _read(self, group: asyncio.TaskGroup) -> None:
        seq = self._position.seq
        while True:
            while len(self._ahead) >= _MAX_AHEAD:
                self._moved.clear()
                await self._moved.wait()
            event = await self._log.next(seq)
            seq = event.seq
            progress = _Progress(seq, event.at)
            self._ahead.append(progress)
            kind = event.kind
            if kind is None or not any(fnmatchcase(kind, it) for it in self._declared.events):
                self._finish(progress)
                continue
            session_id = event.session_id
            before = self._last.get(session_id)
            task = group.create_task(self._deliver(event, progress, before))
            self._last[session_id] = task
            task.add_done_callback(partial(self._forget, session_id))

    def _forget(self, session_id: str, task: asyncio.Task[None]) -> None:
        if self._last.get(session_id) is task:
            del self._last[session_id]

    async def _deliver(
        self, event: LoggedEvent, progress: _Progress, before: asyncio.Task[None] | None
    ) -> None:
        if before is not None:
            await asyncio.wait({before})
        refusals = 0
        for pause in _BACKOFF.pauses():
            try:
                await self._attempt(event)
                break
            except PostFailedError as exc:
                refusals += exc.is_refusal
                is_over = refusals >= _MAX_REFUSALS
                is_over = is_over or datetime.now(UTC) - event.at > _GIVE_UP_AFTER
                _log.log(
                    logging.ERROR if is_over else logging.WARNING,
                    "webhook_given_up" if is_over else "webhook_failed",
                    extra={
                        "endpoint": self._name,
                        "kind": event.kind,
                        "id": event.id,
                        "reason": exc.reason,
                    },
                )
                if is_over:
                    GIVEN_UP.labels(self._name).inc()
                    break
                await asyncio.sleep(pause)
        self._finish(progress)

    async def _attempt(self, event: LoggedEvent) -> None:
        """Send an event once.

        Raises:
            PostFailedError: The endpoint did not confirm it, or its text cannot be read now.
        """
        async with self._slots:
            await self._health.until_open()
            body = await self._body(event)
            now = int(datetime.now(UTC).timestamp())
            try:
                await self._sender.post(body, signed_headers(self._keys, event.id, now, body))
            except PostFailedError as exc:
                outcome = AttemptOutcome.REFUSED if exc.is_refusal else AttemptOutcome.FAILED
                ATTEMPTS.labels(self._name, outcome.value).inc()
                if not exc.is_refusal:
                    self._health.note_failure(exc.retry_after)
                raise
            ATTEMPTS.labels(self._name, AttemptOutcome.CONFIRMED.value).inc()
            self._health.note_success()

    async def _body(self, event: LoggedEvent) -> bytes:
        # Made for each attempt: what is erased in between is not sent.
        data = dict(event.fields or {})
        if self._declared.include_text and event.kind == "turn.ended":
            try:
                data["rows"] = await self._read_rows(data)
            except ChatlaneClientError as exc:
                raise PostFailedError(type(exc).__name__) from None
        content = {"type": event.kind, "timestamp": event.at.isoformat(), "data": data}
        return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()

    def _finish(self, progress: _Progress) -> None:
        progress.is_done = True
        while self._ahead and self._ahead[0].is_done:
            seq = self._ahead.popleft().seq
            self._position = self._position._replace(seq=seq)
        self._moved.set()

    async def _keep_position(self) -> None:
        saved = self._position
        while True:
            await asyncio.sleep(_BETWEEN_SAVES.total_seconds())
            if saved != self._position:
                saved = self._position
                await self._save()

    async def _save(self) -> None:
        try:
            await self._cursors.save(self._name, self._position.text, _SAVE_WITHIN)
        except ChatlaneClientError as exc:
            # Events since the last one are sent again, with their ids, if the process ends now.
            _log.warning(
                "webhook_position_not_saved",
                extra={"endpoint": self._name, "error": type(exc).__name__},
            )
