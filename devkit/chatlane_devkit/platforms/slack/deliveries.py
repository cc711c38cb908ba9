"""Deliver the events of a Slack for tests to its app: signed requests, or envelopes of a socket."""

import asyncio
import hashlib
import hmac
import json
from collections import defaultdict, deque
from contextlib import suppress
from time import time
from typing import Final, Literal, TypeAlias
from urllib.parse import urlencode
from uuid import uuid4

import aiohttp
from aiohttp import web

from chatlane_devkit.platforms.slack.workspaces import Json

DeliveryKind: TypeAlias = Literal["events_api", "slash_commands", "interactive"]

_PATIENCE: Final = 3.0
_PAUSES: Final = (0.05, 0.2, 0.5)


class Deliveries:
    """Passes events on, those of one channel one after the other.

    Slack repeats an event three times, or each hour if the app asks for delayed events; here an
    event is repeated until the app confirms it, because a test does not wait for hours. A command
    or a press of a button is not repeated, as in Slack.

    Attributes:
        url: Where requests go; without it, envelopes go to the newest socket.
        duplicates: How many confirmed events are delivered a second time.
        attempts: What was sent, with the number of the attempt and whether it was confirmed.
        refused: Commands and presses that were not confirmed in time.
    """

    def __init__(self, signing_secret: str, client: aiohttp.ClientSession) -> None:
        self.url: str | None = None
        self.duplicates = 0
        self.attempts: list[tuple[DeliveryKind, int, bool]] = []
        self.refused: list[Json] = []
        self._secret = signing_secret.encode()
        self._client = client
        self._lanes: dict[str, deque[tuple[DeliveryKind, Json]]] = defaultdict(deque)
        self._working: dict[str, asyncio.Task[None]] = {}
        self._sockets: list[web.WebSocketResponse] = []
        self._unconfirmed: dict[str, asyncio.Event] = {}

    @property
    def waiting(self) -> int:
        """Return how many events are not confirmed."""
        return sum(map(len, self._lanes.values()))

    @property
    def sockets(self) -> int:
        """Return how many sockets are open."""
        return len(self._sockets)

    def add(self, lane: str, kind: DeliveryKind, payload: Json) -> None:
        """Deliver a payload after the earlier ones of its lane."""
        self._lanes[lane].append((kind, payload))
        if lane not in self._working:
            self._working[lane] = asyncio.create_task(self._work(lane))

    async def close(self) -> None:
        """Deliver nothing more, and close the sockets."""
        for task in self._working.values():
            task.cancel()
        await asyncio.gather(*self._working.values(), return_exceptions=True)
        for socket in list(self._sockets):
            await socket.close()

    async def serve_socket(self, request: web.Request) -> web.StreamResponse:
        """Keep a socket open, and take its confirmations."""
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json({"type": "hello", "num_connections": len(self._sockets) + 1})
        self._sockets.append(socket)
        try:
            async for message in socket:
                confirmed = json.loads(message.data).get("envelope_id")
                if confirmed in self._unconfirmed:
                    self._unconfirmed[confirmed].set()
        finally:
            self._sockets.remove(socket)
        return socket

    async def refresh_sockets(self) -> None:
        """Announce the end of each socket and close it, as Slack does every few hours."""
        for socket in list(self._sockets):
            await socket.send_json({"type": "disconnect", "reason": "refresh_requested"})
            await socket.close()

    async def cut_sockets(self) -> None:
        """Close each socket without a word."""
        for socket in list(self._sockets):
            await socket.close()

    async def _work(self, lane: str) -> None:
        waiting = self._lanes[lane]
        try:
            while waiting:
                kind, payload = waiting[0]
                await self._deliver(kind, payload)
                waiting.popleft()
        finally:
            del self._working[lane]

    async def _deliver(self, kind: DeliveryKind, payload: Json) -> None:
        number = 0
        while not await self._attempt(kind, payload, number):
            if kind != "events_api":
                self.refused.append(payload)
                return
            await asyncio.sleep(_PAUSES[min(number, len(_PAUSES) - 1)])
            number += 1
        if kind == "events_api" and self.duplicates > 0:
            self.duplicates -= 1
            await self._attempt(kind, payload, number + 1)

    async def _attempt(self, kind: DeliveryKind, payload: Json, number: int) -> bool:
        is_confirmed = False
        with suppress(aiohttp.ClientError, TimeoutError, ConnectionError):
            async with asyncio.timeout(_PATIENCE):
                send = self._post if self.url is not None else self._pass_to_socket
                is_confirmed = await send(kind, payload, number)
        self.attempts.append((kind, number, is_confirmed))
        return is_confirmed

    async def _post(self, kind: DeliveryKind, payload: Json, number: int) -> bool:
        if kind == "events_api":
            body, content_type = json.dumps(payload), "application/json"
        else:
            fields = payload if kind == "slash_commands" else {"payload": json.dumps(payload)}
            body, content_type = urlencode(fields), "application/x-www-form-urlencoded"
        headers = {"Content-Type": content_type, **self.signature_of(body)}
        if number:
            headers |= {"X-Slack-Retry-Num": str(number), "X-Slack-Retry-Reason": "http_error"}
        assert self.url is not None  # noqa: S101 - the caller asked
        async with self._client.post(self.url, data=body, headers=headers) as response:
            return response.ok

    def signature_of(self, body: str) -> dict[str, str]:
        """Return the headers that sign a body."""
        at = str(round(time()))
        digest = hmac.new(self._secret, f"v0:{at}:{body}".encode(), hashlib.sha256).hexdigest()
        return {"X-Slack-Request-Timestamp": at, "X-Slack-Signature": f"v0={digest}"}

    async def _pass_to_socket(self, kind: DeliveryKind, payload: Json, number: int) -> bool:
        if not self._sockets:
            return False
        envelope_id = str(uuid4())
        confirmed = self._unconfirmed[envelope_id] = asyncio.Event()
        envelope: Json = {"envelope_id": envelope_id, "type": kind, "payload": payload}
        if kind == "events_api":
            envelope |= {"retry_attempt": number, "retry_reason": "timeout" if number else ""}
        try:
            await self._sockets[-1].send_json(envelope)
            await confirmed.wait()
        finally:
            del self._unconfirmed[envelope_id]
        return True
