"""Keep how far an adapter has read its platform, in the stream CURSORS."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Final

import nats.errors
from nats.aio.client import Client

from chatlane_client.errors import ConnectionClosedError, InvalidAnswerError, UnansweredRequestError
from chatlane_client.transport.connection import until_connected
from chatlane_client.transport.retry import Backoff, CancellationGuard
from chatlane_client.transport.wire import ANSWER_WITHIN, publish_stored
from chatlane_schemas import Cursor, DecodeError, decode, new_envelope_id
from chatlane_schemas.topology import subjects
from chatlane_schemas.topology.streams import StreamName

_NOT_FOUND: Final = "404"
_CLOSED: Final = (nats.errors.ConnectionClosedError, nats.errors.ConnectionDrainingError)


class Cursors:
    """The cursors of one account."""

    def __init__(self, client: Client, *, platform: str, account: str) -> None:
        self._client = client
        self._platform = platform
        self._account = account

    async def load(self, name: str, patience: timedelta) -> str | None:
        """Return the newest value of a cursor; see `AdapterClient.load_cursor`."""
        subject = subjects.cursor(self._platform, self._account, name)
        guard = CancellationGuard()
        try:
            async with asyncio.timeout(patience.total_seconds()):
                for pause in Backoff().pauses():
                    try:
                        return await self._read(subject)
                    except (nats.errors.Error, TimeoutError):
                        guard.check()
                        await asyncio.sleep(pause)
        except TimeoutError as exc:
            raise UnansweredRequestError(subject, reached_nobody=False) from exc
        raise AssertionError("pauses never end")

    async def _read(self, subject: str) -> str | None:
        await until_connected(self._client)
        try:
            answer = await self._client.request(
                f"$JS.API.DIRECT.GET.{StreamName.CURSORS}.{subject}",
                timeout=ANSWER_WITHIN.total_seconds(),
            )
        except _CLOSED as exc:
            raise ConnectionClosedError from exc
        status = (answer.headers or {}).get("Status")
        if status == _NOT_FOUND:
            return None
        if status is not None:
            # Such as a replica that is not up to date.
            raise nats.errors.Error
        try:
            return decode(Cursor, answer.data).value
        except DecodeError as exc:
            raise InvalidAnswerError(subject, str(exc)) from exc

    async def save(self, name: str, value: str, patience: timedelta) -> None:
        """Store a value; see `AdapterClient.save_cursor`."""
        cursor = Cursor(id=new_envelope_id(), at=datetime.now(UTC), value=value)
        await publish_stored(
            self._client,
            subjects.cursor(self._platform, self._account, name),
            cursor,
            give_up_after=patience,
            waits_for_room=False,
        )
