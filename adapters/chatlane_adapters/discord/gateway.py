"""Receive the events of the gateway in their order, with a place that outlives the process.

The connection is that of discord.py: handshake, compression, heartbeats, close codes. Its client,
its caches and its tasks are not used: a task for each event would lose their order, and a place that
moves before an event is stored would lose events.
"""

import asyncio
import logging
import random
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import Any, Final, NamedTuple

import aiohttp
import discord
import yarl
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from typing_extensions import override

from chatlane_adapters.discord.rest import Json, RevokedTokenError

_log: Final = logging.getLogger(__name__)

INTENTS: Final = discord.Intents(
    guilds=True,
    guild_messages=True,
    guild_reactions=True,
    guild_polls=True,
    dm_messages=True,
    dm_reactions=True,
    dm_polls=True,
    message_content=True,
)
_MOST_WAITING: Final = 1_000
_LARGEST_BATCH: Final = 100
_CONNECT_WITHIN: Final = 60.0
_LONGEST_PAUSE: Final = 60.0
_AUTHENTICATION_FAILED: Final = 4004
_RESET_CODES: Final = frozenset({4007, 4009})


class Place(NamedTuple):
    """A place in the events of a session, from which Discord repeats what came later.

    Attributes:
        session: Id of the session.
        sequence: Number of the last event that is stored.
        url: Where the session is resumed.
    """

    session: str
    sequence: int
    url: str


class Dispatch(NamedTuple):
    """An event of the gateway."""

    name: str
    data: Json
    place: Place


class DisallowedIntentsError(Exception):
    """The bot may not read the content of messages; its owner allows it in the developer portal."""


class _Connection(DiscordWebSocket):
    """A connection that tells Discord only of events that no process needs again.

    Discord may forget what a heartbeat names, so the heartbeat and the next resumption name the last
    event behind which the next process would go on, and not the last received one.
    """

    received: int | None = None
    _saved: int | None = None

    @property  # type: ignore[explicit-override]
    def sequence(self) -> int | None:
        """Return the number of the last event that is stored and saved."""
        return self._saved

    @sequence.setter
    def sequence(self, number: int | None) -> None:
        # The base class sets it for each event that it receives.
        self.received = number
        if number is None or self._saved is None:
            self._saved = number

    def note_saved(self, number: int) -> None:
        """Note that all events up to this one are stored, and that the next process knows it."""
        self._saved = number


class _Sockets:
    """Opens WebSockets for the client of a connection."""

    def __init__(self, session: aiohttp.ClientSession, token: str) -> None:
        self._session = session
        self.token = token

    async def ws_connect(self, url: str, *, compress: int = 0) -> aiohttp.ClientWebSocketResponse:
        """Open a WebSocket."""
        return await self._session.ws_connect(
            url, max_msg_size=0, autoclose=False, compress=compress
        )


class _EveryEvent(dict[str, Callable[[Any], Any]]):
    """Handlers of events by name: the same for each."""

    def __init__(self, take: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._take = take

    def __missing__(self, name: str) -> Callable[[Any], Any]:
        return lambda data: self._take(name, data)


class _Client(discord.Client):
    """The attributes that a connection of discord.py reads from its client."""

    def __init__(
        self, session: aiohttp.ClientSession, token: str, take: Callable[[str, Any], None]
    ) -> None:
        super().__init__(intents=INTENTS, max_messages=None)
        self.loop = asyncio.get_running_loop()
        self.http = _Sockets(session, token)  # type: ignore[assignment]
        self._connection.parsers = _EveryEvent(take)

    @override
    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        pass


class Gateway:
    """The events of one bot.

    Args:
        session: Opens the connections.
        token: Token of the bot.
        url: Where sessions begin.
        place: Where to go on; None begins a session.
        notice: Called at once with each event, before those that wait are stored.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        token: str,
        url: str,
        place: Place | None,
        *,
        notice: Callable[[str, Json], None],
    ) -> None:
        self._client = _Client(session, token, self._take)
        self._url = url
        self._place = place
        self._notice = notice
        self._connection: _Connection | None = None
        self._waiting: deque[Dispatch] = deque()
        self._taken = Place("", 0, "") if place is None else place
        # Number of the event that began the present session, which heartbeats name at first.
        self._first = 0
        self._changed = asyncio.Event()
        self.is_connected = False

    async def batches(self) -> AsyncIterator[list[Dispatch]]:
        """Yield the events in their order, as they come."""
        while True:
            while not self._waiting:
                await self._until_changed()
            count = min(len(self._waiting), _LARGEST_BATCH)
            yield [self._waiting.popleft() for _ in range(count)]
            self._changed.set()

    def note_saved(self, place: Place) -> None:
        """Note that all events up to a place are stored, and that the next process knows it."""
        self._place = place
        if self._connection is not None and self._connection.session_id == place.session:
            self._connection.note_saved(place.sequence)

    async def run(self) -> None:
        """Keep a connection until cancelled.

        Raises:
            RevokedTokenError: Discord does not accept the token.
            DisallowedIntentsError: The bot may not read the content of messages.
        """
        is_first, failures = True, 0
        while True:
            try:
                connection = await self._open(is_first=is_first)
                is_first = False
                while True:
                    while len(self._waiting) >= _MOST_WAITING:
                        await self._until_changed()
                    await connection.poll_event()
                    failures = 0
            except ReconnectWebSocket as exc:
                if not exc.resume:
                    self._forget_place()
            except discord.ConnectionClosed as exc:
                self._judge(exc.code)
            except (OSError, aiohttp.ClientError, TimeoutError) as exc:
                _log.warning("gateway_failed", extra={"error": type(exc).__name__})
            finally:
                await self._close()
            failures += 1
            if failures > 1:
                pause = min(_LONGEST_PAUSE, 2.0 ** min(failures, 10) / 2)
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    async def _open(self, *, is_first: bool) -> _Connection:
        # The gateway resumes a session at its own address.
        place = self._resumable()
        self._connection = connection = await asyncio.wait_for(
            _Connection.from_client(
                self._client,
                initial=is_first,
                gateway=yarl.URL(self._url if place is None else place.url),
                session=None if place is None else place.session,
                sequence=None if place is None else place.sequence,
                resume=place is not None,
            ),
            _CONNECT_WITHIN,
        )
        return connection

    def _resumable(self) -> Place | None:
        """Return the place from which the present session goes on."""
        if self._place is not None and self._place.session == self._taken.session:
            return self._place
        # The session began, and nothing of it is stored yet.
        return self._taken._replace(sequence=self._first) if self._taken.session else None

    def _forget_place(self) -> None:
        """Begin another session; what waits of the last one is still stored."""
        self._taken = Place("", 0, "")
        self._place = None

    def _judge(self, code: int) -> None:
        """Raise an error if a close of the connection needs the owner of the bot."""
        _log.warning("gateway_closed", extra={"code": code})
        if code == _AUTHENTICATION_FAILED:
            raise RevokedTokenError(str(code))
        if code in {4013, 4014}:
            raise DisallowedIntentsError
        if code in _RESET_CODES:
            self._forget_place()

    async def _close(self) -> None:
        self.is_connected = False
        connection, self._connection = self._connection, None
        if connection is not None:
            # Any other code than 1000 and 1001 keeps the session.
            await connection.close(4000)

    def _take(self, name: str, data: Any) -> None:  # noqa: ANN401 - of any event
        connection = self._connection
        if connection is None:
            return
        number = connection.received or 0
        session, url = connection.session_id or "", str(connection.gateway)
        if session == self._taken.session and number <= self._taken.sequence:
            # It waits here since before the connection was lost.
            return
        if session != self._taken.session:
            self._first = number
        self._taken = Place(session, number, url)
        self.is_connected = True
        self._notice(name, data)
        self._waiting.append(Dispatch(name, data, self._taken))
        self._changed.set()

    async def _until_changed(self) -> None:
        self._changed.clear()
        await self._changed.wait()
