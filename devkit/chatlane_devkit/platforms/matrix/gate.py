"""A way to a homeserver on which sent events can be refused, and syncs told twice."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import monotonic
from typing import Any, Final
from urllib.parse import unquote

from aiohttp import ClientError, ClientSession, ClientTimeout, web

_SENDS: Final = re.compile(r"/_matrix/client/[^/]+/rooms/([^/]+)/send/")
_SYNC: Final = re.compile(r"/_matrix/client/[^/]+/sync$")
_MAX_BODY: Final = 2**26
_PASSED_ON: Final = ("Authorization", "Content-Type")


class HomeserverGate:
    """Passes requests on to a homeserver.

    Attributes:
        url: Where clients connect.
        sends: By room, how many events clients tried to send, refused ones included.
        syncs: How many syncs the homeserver has answered.
        forbidden: Rooms in which the homeserver allows no events.
        unanswered: Rooms in which events are sent and the answers are withheld.
        lost_answers: By room, how many of the next events are sent and their callers cut off.
        limits: By room, the monotonic time until which events are refused with 429.
        repeats: How many syncs with events are sent twice from now on.
    """

    def __init__(self, homeserver_url: str) -> None:
        self._homeserver_url = homeserver_url
        self._session: ClientSession
        self._is_answered = asyncio.Event()
        self.url = ""
        self.sends: Counter[str] = Counter()
        self.syncs = 0
        self.forbidden: set[str] = set()
        self.unanswered: set[str] = set()
        self.lost_answers: Counter[str] = Counter()
        self.limits: dict[str, float] = {}
        self.repeats = 0
        self._sync_again: str | None = None

    def answer_again(self, room_id: str) -> None:
        """Answer the events of a room again, also those that wait for their answers."""
        self.unanswered.discard(room_id)
        self._is_answered.set()
        self._is_answered = asyncio.Event()

    async def _serve(self, request: web.Request) -> web.Response:
        sends = _SENDS.match(request.rel_url.raw_path)
        room_id = None if sends is None else unquote(sends[1])
        if room_id is not None and (refusal := self._refusal(room_id)) is not None:
            return refusal
        try:
            if _SYNC.match(request.path):
                return await self._sync(request)
            answer = await self._pass(request, dict(request.query))
        except (ClientError, TimeoutError):
            return web.Response(status=HTTPStatus.BAD_GATEWAY)
        if room_id is not None and self.lost_answers[room_id] > 0 and request.transport is not None:
            self.lost_answers[room_id] -= 1
            request.transport.abort()
        while room_id in self.unanswered:
            await self._is_answered.wait()
        return answer

    def _refusal(self, room_id: str) -> web.Response | None:
        """Count an event, and return how it is refused."""
        self.sends[room_id] += 1
        if room_id in self.forbidden:
            return _refused(HTTPStatus.FORBIDDEN, "M_FORBIDDEN")
        if (seconds := self.limits.get(room_id, 0.0) - monotonic()) > 0:
            milliseconds = round(1000 * seconds)
            return _refused(
                HTTPStatus.TOO_MANY_REQUESTS, "M_LIMIT_EXCEEDED", retry_after_ms=milliseconds
            )
        return None

    async def _sync(self, request: web.Request) -> web.Response:
        """Answer a sync; after one with events, answer the next from the same position."""
        query = dict(request.query)
        if self._sync_again is not None:
            query["since"], self._sync_again = self._sync_again, None
        answer = await self._pass(request, query)
        self.syncs += 1
        has_events = isinstance(answer.body, bytes) and b'"timeline"' in answer.body
        if self.repeats and "since" in query and has_events:
            self.repeats -= 1
            self._sync_again = query["since"]
        return answer

    async def _pass(self, request: web.Request, query: dict[str, str]) -> web.Response:
        url = self._homeserver_url + request.rel_url.raw_path
        headers = {name: request.headers[name] for name in _PASSED_ON if name in request.headers}
        async with self._session.request(
            request.method, url, params=query, headers=headers, data=await request.read()
        ) as answer:
            headers = {"Content-Type": answer.headers.get("Content-Type", "application/json")}
            return web.Response(status=answer.status, body=await answer.read(), headers=headers)

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Listen for the length of the block."""
        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_route("*", "/{path:.*}", self._serve)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        async with ClientSession(timeout=ClientTimeout(total=None)) as self._session:
            try:
                await web.TCPSite(runner, "127.0.0.1", 0).start()
                self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
                yield
            finally:
                await runner.cleanup()


def _refused(status: HTTPStatus, code: str, **more: Any) -> web.Response:  # noqa: ANN401 - JSON
    return web.json_response({"errcode": code, "error": code, **more}, status=status)
