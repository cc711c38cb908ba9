"""Read the socket of Slack: store an envelope first, then confirm it."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractContextManager, suppress
from typing import Final, get_args

import aiohttp
from slack_sdk.web.async_client import AsyncWebClient

from chatlane_adapters.slack.calls import UncertainCallError, done
from chatlane_adapters.slack.intake import PayloadKind
from chatlane_adapters.slack.text import Json
from chatlane_client import ConnectionClosedError, RetryAfter, UndeclaredAccountError

_log: Final = logging.getLogger(__name__)

_HEARTBEAT: Final = 10.0
_FIRST_PAUSE: Final = 0.2
_LONGEST_PAUSE: Final = 30.0
_MOST_AT_ONCE: Final = 100
_KINDS: Final = frozenset(get_args(PayloadKind))

Take = Callable[[PayloadKind, Json], Awaitable[None]]


class SocketReader:
    """Keeps a socket to Slack open, and passes on what comes.

    Args:
        session: Opens the socket.
        web: A client with the token of the app.
        take: Stores a payload.
        watched: Notes whether Slack refuses the token in a block.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        web: AsyncWebClient,
        take: Take,
        watched: Callable[[], AbstractContextManager[None]],
    ) -> None:
        self._session = session
        self._web = web
        self._take = take
        self._watched = watched
        self._room = asyncio.Semaphore(_MOST_AT_ONCE)
        self.is_open = False

    async def run(self) -> None:
        """Read until cancelled.

        Raises:
            ExceptionGroup: The connection to NATS is closed for good, or chatlane.toml does not
                declare the account.
        """
        pause = _FIRST_PAUSE
        while True:
            try:
                await self._read_socket()
                pause = _FIRST_PAUSE
                continue
            except RetryAfter as refusal:
                pause = max(pause, refusal.after.total_seconds())
            except (aiohttp.ClientError, OSError, TimeoutError, UncertainCallError) as error:
                _log.warning("socket_lost", extra={"error": type(error).__name__})
            await asyncio.sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    async def _read_socket(self) -> None:
        """Read a socket until Slack ends it."""
        with self._watched():
            token = self._web.token or ""
            opened = await done(self._web.apps_connections_open(app_token=token))
        async with self._session.ws_connect(opened["url"], heartbeat=_HEARTBEAT) as socket:
            try:
                async with asyncio.TaskGroup() as tasks:
                    async for message in socket:
                        envelope = json.loads(message.data)
                        match envelope.get("type"):
                            case "hello":
                                self.is_open = True
                                _log.info("socket_opened")
                            case "disconnect":
                                _log.info("socket_ended", extra={"reason": envelope.get("reason")})
                                return
                            case kind if kind in _KINDS:
                                await self._room.acquire()
                                tasks.create_task(self._store(socket, envelope))
                            case _:
                                pass
            finally:
                self.is_open = False

    async def _store(self, socket: aiohttp.ClientWebSocketResponse, envelope: Json) -> None:
        try:
            await self._take(envelope["type"], envelope["payload"])
        except (ConnectionClosedError, UndeclaredAccountError):
            raise
        except Exception as error:  # noqa: BLE001 - Slack sends it again
            _log.warning("event_not_stored", extra={"error": type(error).__name__})
            return
        finally:
            self._room.release()
        with suppress(ConnectionError):
            # On a lost socket Slack sends the envelope again, and the copy is dropped.
            await socket.send_json({"envelope_id": envelope["envelope_id"]})
