"""One Discord bot: its events, and the messages that it sends."""

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, ClassVar, Final, Self

import aiohttp
from typing_extensions import override

from chatlane_adapters.discord.cursor import Cursor
from chatlane_adapters.discord.decode import is_waiting
from chatlane_adapters.discord.gateway import DisallowedIntentsError, Gateway
from chatlane_adapters.discord.receiver import Receiver
from chatlane_adapters.discord.render import LIMIT, RENDERER, content, new_message
from chatlane_adapters.discord.rest import (
    File,
    Json,
    Rest,
    RevokedTokenError,
)
from chatlane_adapters.discord.settings import DiscordSettings
from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.markdown import Renderer
from chatlane_adapters.kit.platform import Platform
from chatlane_client import AdapterClient, Piece, RetryAfter, UndeliverableError
from chatlane_schemas import Attachment, InboundEvent, Source

_log: Final = logging.getLogger(__name__)

CAPABILITIES: Final = Capabilities(
    platform="discord",
    text_limit=LIMIT,
    has_idempotent_sends=True,
    has_readable_files=True,
    # 50 calls of a bot in a second, typing and commands included; 5 messages of a channel in 5 s.
    per_second=45,
    per_chat_per_second=1,
)
_LOOKS_AGAIN_AFTER: Final = 60.0
_LOGS_IN_AGAIN_AFTER: Final = 5.0
_SLASH_COMMAND, _COMPONENT = 2, 3
# The answer is to come; for a press, the message with the button stays as it is.
_CALLBACKS: Final = {_SLASH_COMMAND: 5, _COMPONENT: 6}
_TEXT_OPTION: Final = 3
# What the owner has to allow, so that the bot reads the content of messages.
_INTENT: Final = "message_content"
_CHUNK: Final = 2**16
_MOST_KNOWN: Final = 10_000


class DiscordAdapter(Platform):
    """The account of a bot."""

    capabilities: ClassVar[Capabilities] = CAPABILITIES
    renderer: ClassVar[Renderer[Any] | None] = RENDERER

    def __init__(self, settings: DiscordSettings) -> None:
        self._settings = settings
        self._token = settings.token.get_secret_value().strip()
        self._session: aiohttp.ClientSession
        self._rest: Rest
        self._application_id: str | None = None
        self._acknowledging: set[asyncio.Task[None]] = set()
        self._dms: dict[str, str] = {}
        self._gateway: Gateway | None = None

    @property
    @override
    def is_connected(self) -> bool:
        # A process that does not receive has no connection, and needs none.
        return self._gateway is None or self._gateway.is_connected

    @override
    async def __aenter__(self) -> Self:
        self._session = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar())
        self._rest = Rest(self._session, self._settings.api_url, self._token)
        return self

    @override
    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    # Receiving.

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        while True:
            try:
                await self._receive(adapter)
            except* RevokedTokenError:
                self.note_account(is_refused=True)
            except* DisallowedIntentsError:
                self.note_account(is_refused=True, credential=_INTENT)
            await asyncio.sleep(_LOOKS_AGAIN_AFTER)

    async def _receive(self, adapter: AdapterClient) -> None:
        bot_id, url = await self._log_in()
        cursor = Cursor(adapter)
        await cursor.load()
        self._gateway = gateway = Gateway(
            self._session, self._token, url, cursor.place, notice=self._notice
        )
        receiver = Receiver(adapter, self._rest, cursor, self._settings, bot_id)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(gateway.run())
                tasks.create_task(cursor.keep_saving(gateway.note_saved))
                async for batch in gateway.batches():
                    self._note_accepted()
                    await receiver.store(batch)
                    cursor.move(batch[-1].place)
                    if cursor.has_news:
                        await cursor.save()
        finally:
            self._gateway = None
            await cursor.save()

    def _note_accepted(self) -> None:
        for credential in self.refused:
            self.note_account(is_refused=False, credential=credential)

    async def _log_in(self) -> tuple[str, str]:
        """Return the id of the bot and the address of the gateway."""
        while True:
            try:
                me = await self._rest.call("GET", "/users/@me")
                application = await self._rest.call("GET", "/applications/@me")
                await self._register_commands(application["id"])
                gateway = await self._rest.call("GET", "/gateway/bot")
            except RetryAfter as exc:
                await asyncio.sleep(exc.after.total_seconds())
            except (aiohttp.ClientError, TimeoutError, UndeliverableError) as exc:
                _log.warning("login_failed", extra={"error": type(exc).__name__})
                await asyncio.sleep(_LOGS_IN_AGAIN_AFTER)
            else:
                self._application_id = application["id"]
                return me["id"], gateway["url"]

    async def _register_commands(self, application_id: str) -> None:
        """Put our commands into the menu, if it has others."""
        path = f"/applications/{application_id}/commands"
        known = {it["name"] for it in await self._rest.call("GET", path)}
        if known == set(self._settings.commands):
            return
        option = {"type": _TEXT_OPTION, "name": "text", "description": "Text", "required": False}
        commands = [
            {"name": it, "type": 1, "description": f"/{it}", "options": [option]}
            for it in self._settings.commands
        ]
        await self._rest.call("PUT", path, commands)

    def _notice(self, name: str, data: Json) -> None:
        """Acknowledge an interaction within the three seconds that Discord allows."""
        if name == "INTERACTION_CREATE" and data.get("type") in _CALLBACKS:
            task = asyncio.create_task(self._acknowledge(data))
            self._acknowledging.add(task)
            task.add_done_callback(self._acknowledging.discard)

    async def _acknowledge(self, interaction: Json) -> None:
        path = f"/interactions/{interaction['id']}/{interaction['token']}/callback"
        try:
            await self._rest.call("POST", path, {"type": _CALLBACKS[interaction["type"]]})
        except Exception as exc:  # noqa: BLE001 - the event itself is stored anyway
            # Also an interaction that the gateway repeats, and that is acknowledged.
            _log.info("interaction_not_acknowledged", extra={"error": type(exc).__name__})

    # Sending.

    @override
    async def deliver(self, piece: Piece) -> str | None:
        target = piece.message.target
        async with self._calls():
            if piece.edits is not None:
                await self._edit(target, piece.edits, content(piece.rendered, piece.buttons))
                return piece.edits
            files, links = await self._files(piece.attachments)
            text = "\n".join(filter(None, (piece.rendered, *links)))
            body = new_message(text, piece.buttons, key=piece.key, reply_to=piece.reply_to)
            return await self._send(
                target, body, files, is_first=piece.number == 0, may_be_sent=piece.may_be_sent
            )

    @override
    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        async with self._calls():
            body = new_message(RENDERER.first(text), (), key=key)
            return await self._send(target, body, may_be_sent=may_be_sent)

    @override
    async def edit(self, target: Source, message_id: str, text: str) -> None:
        async with self._calls():
            await self._edit(target, message_id, content(RENDERER.first(text)))

    @override
    async def delete(self, target: Source, message_id: str) -> None:
        async with self._calls():
            channel = await self._channel_of(target)
            await self._rest.call("DELETE", f"/channels/{channel}/messages/{message_id}")

    @override
    async def show_typing(self, target: Source) -> None:
        async with self._calls():
            await self._rest.call("POST", f"/channels/{await self._channel_of(target)}/typing")

    @asynccontextmanager
    async def _calls(self) -> AsyncIterator[None]:
        """Let the whole account wait while Discord does not accept its token."""
        if self.refused:
            raise RetryAfter(_LOOKS_AGAIN_AFTER, whole_account=True)
        try:
            yield
        except RevokedTokenError as exc:
            self.note_account(is_refused=True)
            raise RetryAfter(_LOOKS_AGAIN_AFTER, whole_account=True) from exc

    async def _send(
        self,
        target: Source,
        body: Json,
        files: tuple[File, ...] = (),
        *,
        is_first: bool = True,
        may_be_sent: bool = False,
    ) -> str:
        if target.return_address is not None and is_first:
            sent = await self._fill(target.return_address.value, body, may_be_sent=may_be_sent)
            if sent is not None:
                return sent
        channel = await self._channel_of(target)
        sent_message = await self._rest.call(
            "POST", f"/channels/{channel}/messages", body, files=files, bucket=f"send {channel}"
        )
        return str(sent_message["id"])

    async def _fill(self, token: str, body: Json, *, may_be_sent: bool) -> str | None:
        """Put an answer where the acknowledged command waits for it, if it still does."""
        path = f"/webhooks/{self._application_id}/{token}/messages/@original"
        try:
            original = await self._rest.call("GET", path)
            if not is_waiting(original):
                # A draft grows.
                shown = original["content"]
                is_sent = may_be_sent and shown and body["content"].startswith(shown)
                return str(original["id"]) if is_sent else None
            fields = ("content", "components", "allowed_mentions")
            await self._rest.call("PATCH", path, {name: body[name] for name in fields})
        except UndeliverableError:
            # It has expired, or was never acknowledged.
            return None
        return str(original["id"])

    async def _edit(self, target: Source, message_id: str, body: Json) -> None:
        channel = await self._channel_of(target)
        await self._rest.call(
            "PATCH", f"/channels/{channel}/messages/{message_id}", body, bucket=f"edit {channel}"
        )

    async def _channel_of(self, target: Source) -> str:
        if target.chat is not None and target.chat.id is not None:
            return target.chat.id
        person = target.sender.id if target.sender is not None else None
        if person is None:
            raise UndeliverableError("the address names no chat and no person")
        if person not in self._dms:
            if len(self._dms) >= _MOST_KNOWN:
                self._dms.clear()
            channel = await self._rest.call("POST", "/users/@me/channels", {"recipient_id": person})
            self._dms[person] = channel["id"]
        return self._dms[person]

    async def _files(
        self, attachments: tuple[Attachment, ...]
    ) -> tuple[tuple[File, ...], list[str]]:
        """Return files to upload, and links to those that cannot be uploaded."""
        files, links = [], []
        for attachment in attachments:
            file = await self._fetch(attachment)
            if file is not None:
                files.append(file)
            else:
                links.append(attachment.url or f"[{attachment.name or attachment.media_type}]")
        return tuple(files), links

    @override
    async def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        async with self._session.get(file.url or "", allow_redirects=False) as response:
            response.raise_for_status()
            async for chunk in response.content.iter_chunked(_CHUNK):
                yield chunk

    async def _fetch(self, attachment: Attachment) -> File | None:
        limit = self._settings.max_upload_bytes
        if attachment.url is None or (attachment.size_bytes or 0) > limit:
            return None
        try:
            async with self._session.get(attachment.url) as response:
                response.raise_for_status()
                data = await response.content.read(limit + 1)
                while len(data) <= limit and (more := await response.content.read(limit)):
                    data += more
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None
        if len(data) > limit:
            return None
        name = attachment.name or attachment.url.partition("?")[0].rpartition("/")[2] or "file"
        return File(name, data, attachment.media_type)
