"""A number of WhatsApp Cloud as a platform of chatlane."""

import asyncio
import hashlib
import hmac
import json
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import ClassVar, Final, Self, TypeVar

import httpx
from aiohttp import web
from pydantic import ValidationError
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.markdown import Renderer
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.kit.webhook import Webhook
from chatlane_adapters.whatsapp.client import (
    GraphClient,
    RefusedAccountError,
    UncertainCallError,
    WindowClosedError,
)
from chatlane_adapters.whatsapp.decode import (
    WINDOW_CLOSED,
    Item,
    Json,
    event_of,
    failure_code,
    failure_words,
    items_of,
)
from chatlane_adapters.whatsapp.render import LIMIT, RENDERER, messages_of, template_of
from chatlane_adapters.whatsapp.settings import WhatsAppSettings
from chatlane_client import (
    AdapterClient,
    ChatGone,
    OversizedMessageError,
    Piece,
    RefusedPublishError,
    RetryAfter,
    Undeliverable,
    chat_of,
)
from chatlane_schemas import Attachment, InboundEvent, Kind, Source

_log: Final = logging.getLogger(__name__)

_STORED_WITHIN: Final = timedelta(seconds=2)
_KEPT_TEMPLATES: Final = 1000
T = TypeVar("T")
CAPABILITIES: Final = Capabilities(
    platform="whatsapp",
    text_limit=LIMIT,
    has_drafts=False,
    has_edits=False,
    has_readable_files=True,
    per_second=80,
)


class WhatsAppPlatform(Platform):
    """One number; requests come to each process."""

    capabilities: ClassVar[Capabilities] = CAPABILITIES
    renderer: ClassVar[Renderer[str] | None] = RENDERER

    def __init__(self, settings: WhatsAppSettings) -> None:
        self._settings = settings
        self._stack = AsyncExitStack()
        self._graph: GraphClient
        self._adapter: AdapterClient | None = None
        # By the id of the message that was sent first; the oldest go.
        self._templates: dict[str, Json] = {}
        self._sent_again: dict[str, asyncio.Task[bool]] = {}
        self._secret = settings.app_secret.get_secret_value().encode()

    @property
    @override
    def receives_in_every_process(self) -> bool:
        return True

    @override
    async def __aenter__(self) -> Self:
        http = await self._stack.enter_async_context(
            httpx.AsyncClient(base_url=self._settings.api_url)
        )
        token = self._settings.access_token.get_secret_value()
        self._graph = GraphClient(http, self._settings.phone_number_id, token)
        return self

    @override
    async def __aexit__(self, *_: object) -> None:
        for task in self._sent_again.values():
            task.cancel()
        await asyncio.gather(*self._sent_again.values(), return_exceptions=True)
        await self._stack.aclose()

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        self._adapter = adapter
        webhook = Webhook()

        async def take(request: web.Request) -> web.Response:
            body = await request.read()
            if not self._is_signed(request, body):
                return web.Response(status=401)
            return await webhook.stored(self._store(adapter, body))

        routes = [web.get("/whatsapp", self._verify), web.post("/whatsapp", take)]
        await webhook.run(self._settings.listen_host, self._settings.listen_port, routes)

    async def _verify(self, request: web.Request) -> web.Response:
        expected = self._settings.verify_token.get_secret_value()
        given = request.query.get("hub.verify_token", "")
        if not hmac.compare_digest(_bytes(given), expected.encode()):
            return web.Response(status=403)
        return web.Response(text=request.query.get("hub.challenge", ""))

    def _is_signed(self, request: web.Request, body: bytes) -> bool:
        given = request.headers.get("X-Hub-Signature-256", "")
        digest = hmac.new(self._secret, body, hashlib.sha256).hexdigest()
        return hmac.compare_digest(_bytes(given), f"sha256={digest}".encode())

    async def _store(self, adapter: AdapterClient, body: bytes) -> None:
        try:
            items = list(items_of(json.loads(body), self._settings.phone_number_id))
        except (AttributeError, TypeError, ValueError) as error:
            _log.error("payload_not_understood", extra={"error": type(error).__name__})
            return
        for item in items:
            try:
                if await self._is_sent_again(item):
                    continue
                event = event_of(adapter.event, item, self._settings.api_url)
            except (AttributeError, KeyError, TypeError, ValidationError, ValueError) as error:
                # It would not be understood the next time either; others are stored.
                _log.error("message_not_understood", extra={"error": type(error).__name__})
                continue
            if event is not None:
                await _publish(adapter, event)

    @override
    def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        return self._graph.file(file.url or "")

    @override
    async def deliver(self, piece: Piece) -> str | None:
        target = piece.message.target
        first: str | None = None
        try:
            for message in messages_of(piece):
                answer = await self._send_in_window(message, target, piece.reply_to)
                first = first or str(answer["messages"][0]["id"])
        except WindowClosedError:
            await self._tell_window(target, piece.key)
            raise
        return first

    async def _send_in_window(self, message: Json, target: Source, reply_to: str | None) -> Json:
        """Send a message, or a template with its text if the person has not written for 24 hours.

        WhatsApp says so at once, or later in a status; for that the template is kept.
        """
        name, language = self._settings.template, self._settings.template_language
        shown = None if name is None else template_of(message, name, language)
        template = shown and self._addressed(shown, target, None)
        try:
            answer = await self._send(self._addressed(message, target, reply_to))
        except WindowClosedError:
            if template is None:
                raise
            return await self._send(template)
        if template is not None:
            _put(self._templates, str(answer["messages"][0]["id"]), template)
        return answer

    async def _is_sent_again(self, item: Item) -> bool:
        """Send the template of a message that a status refuses; return whether WhatsApp took it.

        A status is repeated if the call takes long, and the repeat waits for the same call.
        """
        if not item.is_status or failure_code(item.content) != WINDOW_CLOSED:
            return False
        message_id = str(item.content.get("id"))
        sending = self._sent_again.get(message_id)
        if sending is None:
            template = self._templates.pop(message_id, None)
            if template is None:
                return False
            sending = asyncio.create_task(self._is_taken(template))
            _put(self._sent_again, message_id, sending)
        return await asyncio.shield(sending)

    async def _is_taken(self, template: Json) -> bool:
        try:
            await self._send(template)
        except (ChatGone, RetryAfter, UncertainCallError, Undeliverable) as error:
            # Then the agent reads why the message was not delivered.
            _log.warning("template_not_sent", extra={"error": type(error).__name__})
            return False
        return True

    def _addressed(self, message: Json, target: Source, reply_to: str | None) -> Json:
        addressed = {"to": chat_of(target), **message}
        if reply_to is not None:
            addressed["context"] = {"message_id": reply_to}
        return addressed

    async def _tell_window(self, target: Source, key: str) -> None:
        """Let the agent know why its message was not delivered."""
        if self._adapter is None:
            return
        event = self._adapter.event(
            kind=Kind.SERVICE,
            chat=target.chat,
            sender=target.sender,
            event_id=f"{key}-window",
            service="delivery_failed",
            text=failure_words(WINDOW_CLOSED, "the window is closed"),
        )
        await self._adapter.publish(event, waits_for_room=True)

    @override
    async def show_typing(self, target: Source) -> None:
        if target.message_id is not None:
            # It also marks the message as read; the indicator lasts for 25 s.
            state = {"status": "read", "message_id": target.message_id}
            await self._send({**state, "typing_indicator": {"type": "text"}})

    async def _send(self, message: Json) -> Json:
        try:
            answer = await self._graph.send(message)
        except RefusedAccountError:
            self.note_account(is_refused=True)
            raise
        self.note_account(is_refused=False)
        return answer


def _put(kept: dict[str, T], key: str, value: T) -> None:
    kept[key] = value
    if len(kept) > _KEPT_TEMPLATES:
        del kept[next(iter(kept))]


def _bytes(given: str) -> bytes:
    """Return the body of a request from anybody as JSON."""
    return given.encode("utf-8", "surrogatepass")


async def _publish(adapter: AdapterClient, event: InboundEvent) -> None:
    try:
        await adapter.publish(event, give_up_after=_STORED_WITHIN)
    except (OversizedMessageError, RefusedPublishError) as error:
        _log.error("event_refused", extra={"kind": event.kind, "error": type(error).__name__})
