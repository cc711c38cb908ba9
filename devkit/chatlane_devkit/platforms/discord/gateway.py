"""The gateway of an emulated Discord: sessions that can be resumed, and faults of connections."""

import asyncio
import json
import zlib
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from secrets import token_hex
from typing import Any

from aiohttp import WSMsgType, web

from chatlane_devkit.platforms.discord.world import Json, World

_DISPATCH, _HEARTBEAT, _IDENTIFY, _RESUME = 0, 1, 2, 6
_RECONNECT, _INVALID_SESSION, _HELLO, _ACKNOWLEDGED = 7, 9, 10, 11
_AUTHENTICATION_FAILED, _INVALID_SEQUENCE = 4004, 4007


class Session:
    """A session of a bot: its events, until the bot has said that it got them."""

    def __init__(self) -> None:
        self.id = token_hex(16)
        self.sequence = 0
        self.kept: deque[Json] = deque()
        self.forgotten = 0
        self.connection: Connection | None = None

    def tell(self, name: str, data: Json) -> None:
        """Send an event, or keep it until the bot is back."""
        self.sequence += 1
        event = {"op": _DISPATCH, "t": name, "s": self.sequence, "d": data}
        self.kept.append(event)
        if self.connection is not None:
            self.connection.put(event)

    def forget(self, sequence: int) -> None:
        """Drop the events that the bot has said it got."""
        while self.kept and self.kept[0]["s"] <= sequence:
            self.forgotten = self.kept.popleft()["s"]


class Connection:
    """A WebSocket of a bot, compressed if it asks for that."""

    def __init__(
        self,
        socket: web.WebSocketResponse,
        transport: asyncio.Transport | None,
        *,
        is_compressed: bool,
    ) -> None:
        self._socket = socket
        self._transport = transport
        self._compressor = zlib.compressobj() if is_compressed else None
        self._waiting: asyncio.Queue[Json] = asyncio.Queue()
        self._sending: asyncio.Task[None] | None = None
        self.is_closed_by_us = False

    def put(self, payload: Json) -> None:
        """Send a payload after those before it."""
        self._waiting.put_nowait(payload)

    def start(self) -> None:
        """Begin to send."""
        self._sending = asyncio.create_task(self._send())

    async def close(self, code: int) -> None:
        """Close in order, with a code."""
        self.is_closed_by_us = True
        await self._socket.close(code=code)

    def abort(self) -> None:
        """Cut the connection, without a word."""
        if self._transport is not None:
            self._transport.abort()

    async def end(self) -> None:
        """Stop sending."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)

    async def _send(self) -> None:
        while True:
            text = json.dumps(await self._waiting.get())
            with suppress(ConnectionError):
                if self._compressor is None:
                    await self._socket.send_str(text)
                else:
                    data = self._compressor.compress(text.encode())
                    data += self._compressor.flush(zlib.Z_SYNC_FLUSH)
                    await self._socket.send_bytes(data)


class Gateway:
    """Accepts the connections of the bot and tells them what happens.

    Attributes:
        sessions: Those that can be resumed, by id.
        identified: How often the bot began a session.
        resumed: How often it resumed a session.
        heartbeats: Sequences that the bot has said it got.
        heartbeat_ms: How often it has to say so, in new connections.
    """

    def __init__(self, is_token: Callable[[str], bool]) -> None:
        self._is_token = is_token
        self._connections: set[Connection] = set()
        self.sessions: dict[str, Session] = {}
        self.identified = 0
        self.resumed = 0
        self.heartbeats: list[int | None] = []
        self.heartbeat_ms = 2_000
        self.url = ""
        self.world: World

    def tell(self, name: str, data: Json) -> None:
        """Tell the bot of an event, in all its sessions."""
        for session in self.sessions.values():
            session.tell(name, json.loads(json.dumps(data)))

    @property
    def is_connected(self) -> bool:
        """Return whether a session of the bot has a connection."""
        return any(it.connection is not None for it in self.sessions.values())

    # Faults.

    def drop(self) -> None:
        """Cut all connections; their sessions can be resumed."""
        for connection in self._connections:
            connection.abort()

    async def close(self, code: int) -> None:
        """Close all connections with a code."""
        for connection in list(self._connections):
            await connection.close(code)

    def ask_to_reconnect(self) -> None:
        """Ask the bot to connect again."""
        for connection in self._connections:
            connection.put({"op": _RECONNECT, "d": None})

    def forget_sessions(self) -> None:
        """Let no session be resumed, as after a gap that is too long; connections end."""
        self.sessions.clear()
        self.drop()

    # The protocol.

    async def serve(self, request: web.Request) -> web.WebSocketResponse:
        """Serve a connection."""
        socket = web.WebSocketResponse(max_msg_size=0)
        await socket.prepare(request)
        is_compressed = request.query.get("compress") == "zlib-stream"
        connection = Connection(socket, request.transport, is_compressed=is_compressed)
        self._connections.add(connection)
        connection.start()
        connection.put({"op": _HELLO, "d": {"heartbeat_interval": self.heartbeat_ms}})
        session: Session | None = None
        try:
            async for message in socket:
                if message.type in {WSMsgType.TEXT, WSMsgType.BINARY}:
                    session = await self._take(connection, session, json.loads(message.data))
        finally:
            self._connections.discard(connection)
            if session is not None and session.connection is connection:
                session.connection = None
                if socket.close_code in {1000, 1001} and not connection.is_closed_by_us:
                    # The bot has ended its session.
                    self.sessions.pop(session.id, None)
            await connection.end()
        return socket

    async def _take(
        self, connection: Connection, session: Session | None, payload: Json
    ) -> Session | None:
        data = payload.get("d")
        match payload["op"]:
            case op if op == _HEARTBEAT:
                self.heartbeats.append(data)
                if session is not None and data is not None:
                    session.forget(data)
                connection.put({"op": _ACKNOWLEDGED})
            case op if op == _IDENTIFY:
                return await self._identify(connection, data)
            case op if op == _RESUME:
                return await self._resume(connection, data)
            case _:
                pass
        return session

    async def _identify(self, connection: Connection, data: Any) -> Session | None:  # noqa: ANN401
        if not self._is_token(data["token"]):
            await connection.close(_AUTHENTICATION_FAILED)
            return None
        self.identified += 1
        session = Session()
        self.sessions[session.id] = session
        session.connection = connection
        ready = {
            "v": 10,
            "user": {
                **self.world.bot.as_user(),
                "verified": True,
                "mfa_enabled": False,
                "flags": 0,
            },
            "guilds": [{"id": it, "unavailable": True} for it in self.world.guild_ids],
            "session_id": session.id,
            "session_type": "normal",
            "resume_gateway_url": self.url,
            "shard": [0, 1],
            "application": {"id": self.world.application_id, "flags": 1 << 18},
            "private_channels": [],
            "relationships": [],
        }
        session.tell("READY", ready)
        for guild_id in self.world.guild_ids:
            session.tell("GUILD_CREATE", self.world.as_guild(guild_id))
        return session

    async def _resume(self, connection: Connection, data: Any) -> Session | None:  # noqa: ANN401
        if not self._is_token(data["token"]):
            await connection.close(_AUTHENTICATION_FAILED)
            return None
        session = self.sessions.get(data["session_id"])
        if session is None or data["seq"] < session.forgotten:
            connection.put({"op": _INVALID_SESSION, "d": False})
            return None
        if data["seq"] > session.sequence:
            await connection.close(_INVALID_SEQUENCE)
            return None
        self.resumed += 1
        if session.connection is not None:
            session.connection.abort()
        for event in session.kept:
            if event["s"] > data["seq"]:
                connection.put(event)
        session.connection = connection
        session.tell("RESUMED", {"_trace": []})
        return session
