"""Publish the updates of a bot: from long polls, or from a webhook."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from hmac import compare_digest
from math import ceil
from typing import Any, Final

from aiogram import Bot
from aiogram.exceptions import TelegramAPIError, TelegramRetryAfter
from aiogram.methods import GetUpdates
from aiogram.types import Update
from aiohttp import web
from pydantic import ValidationError

from chatlane_adapters.telegram.decode import ALLOWED_UPDATES, Decoder
from chatlane_adapters.telegram.refusals import REVOKED_PAUSE, is_revoked
from chatlane_adapters.telegram.settings import Webhook
from chatlane_client.errors import (
    OversizedMessageError,
    RefusedPublishError,
    RetryLaterError,
    UnconfirmedPublishError,
)
from chatlane_client.transport.retry import Backoff
from chatlane_schemas import InboundEvent

_log: Final = logging.getLogger(__name__)

_SECRET_HEADER: Final = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - name of a header
_MAX_BODY: Final = 4 * 2**20
_CONFIRM_LATER: Final = 5

Json = dict[str, Any]
Publish = Callable[[InboundEvent, bool], Awaitable[None]]
"""Publishes an event; the second argument says whether to wait while the log is full."""


class _GetRawUpdates(GetUpdates):
    """`getUpdates` without types: an update that they do not know must not hold up the others."""

    __returning__ = list[Json]


class Receiver:
    """Turns updates into events and publishes them, those of a chat in order.

    Args:
        bot: The bot.
        decoder: Makes events.
        publish: Publishes an event and returns once it is stored.
        note_refused: Called with whether the token is refused.
    """

    def __init__(
        self,
        bot: Bot,
        decoder: Decoder,
        publish: Publish,
        note_refused: Callable[[bool], None],
    ) -> None:
        self._bot = bot
        self._decoder = decoder
        self._publish = publish
        self._note_refused = note_refused

    async def poll(self, seconds: int) -> None:
        """Publish updates until cancelled; each is confirmed by the call after it is stored.

        Args:
            seconds: How long a call waits for an update.
        """
        offset: int | None = None
        pauses = Backoff().pauses()
        while True:
            call = _GetRawUpdates(
                offset=offset, timeout=seconds, allowed_updates=list(ALLOWED_UPDATES)
            )
            try:
                # Longer than the poll itself, or each of them would end as an error.
                updates: Any = await self._bot(call, request_timeout=seconds + 10)
            except TelegramAPIError as error:
                await asyncio.sleep(self._pause_after(error, next(pauses)))
                continue
            self._note_refused(False)  # noqa: FBT003 - a state
            pauses = Backoff().pauses()
            await self.publish_all(updates)
            if updates:
                offset = updates[-1]["update_id"] + 1

    def _pause_after(self, error: TelegramAPIError, pause: float) -> float:
        """Return for how many seconds to wait after a refused poll."""
        if is_revoked(error):
            self._note_refused(True)  # noqa: FBT003 - a state
            return REVOKED_PAUSE
        # Without its text, which may contain the address with the token.
        _log.warning("updates_not_received", extra={"error": type(error).__name__})
        return float(error.retry_after) if isinstance(error, TelegramRetryAfter) else pause

    async def publish_all(self, updates: Sequence[Json]) -> None:
        """Publish the events of updates and return once all are stored.

        Chats do not wait for each other.
        """
        by_chat: defaultdict[str, list[InboundEvent]] = defaultdict(list)
        for raw in updates:
            for event in self._events(raw):
                by_chat[(event.chat and event.chat.id) or ""].append(event)
        await asyncio.gather(*map(self._publish_in_order, by_chat.values()))

    async def _publish_in_order(
        self, events: Sequence[InboundEvent], *, waits_for_room: bool = True
    ) -> None:
        for event in events:
            try:
                await self._publish(event, waits_for_room)
            except (OversizedMessageError, RefusedPublishError) as error:
                # It will never be accepted, and must not hold up what follows.
                _log.error("update_not_published", extra={"error": type(error).__name__})

    def _events(self, raw: Json) -> Sequence[InboundEvent]:
        """Return the events of an update, none if it cannot be read."""
        kind = next((name for name in raw if name != "update_id"), "none")
        try:
            events = self._decoder.events(Update.model_validate(raw, context={"bot": self._bot}))
        except ValidationError as error:
            fields = [".".join(map(str, it["loc"])) for it in error.errors()[:3]]
            _log.error("update_not_decoded", extra={"kind": kind, "fields": fields})
            return ()
        if not events:
            _log.info("update_dropped", extra={"kind": kind})
        return events

    @asynccontextmanager
    async def accepting(self, webhook: Webhook) -> AsyncIterator[int]:
        """Accept updates over HTTP for the length of the block, and yield the port.

        An update is answered with 200 once it is stored, and with 503 while the log is full.
        """
        secret = webhook.secret.encode()

        async def accept(request: web.Request) -> web.Response:
            if not compare_digest(request.headers.get(_SECRET_HEADER, "").encode(), secret):
                return web.Response(status=401)
            try:
                update = await request.json()
                await self._publish_in_order(self._events(update), waits_for_room=False)
            except RetryLaterError as error:
                seconds = error.after.total_seconds()
            except UnconfirmedPublishError:
                seconds = _CONFIRM_LATER
            except (ValueError, AttributeError):
                return web.Response(status=400)
            else:
                return web.Response()
            return web.Response(status=503, headers={"Retry-After": str(ceil(seconds))})

        application = web.Application(client_max_size=_MAX_BODY)
        application.router.add_post("/{path:.*}", accept)
        runner = web.AppRunner(application, access_log=None)
        await runner.setup()
        try:
            await web.TCPSite(runner, webhook.host, webhook.port).start()
            yield runner.addresses[0][1]
        finally:
            await runner.cleanup()
