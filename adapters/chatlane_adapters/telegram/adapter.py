"""Serve a bot of Telegram."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from hashlib import sha256
from typing import Any, ClassVar, Final, Self

from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.exceptions import TelegramAPIError, TelegramBadRequest, TelegramMigrateToChat
from aiogram.methods import (
    AnswerCallbackQuery,
    DeleteBusinessMessages,
    DeleteMessage,
    DeleteWebhook,
    EditMessageCaption,
    EditMessageText,
    GetMe,
    GetMyCommands,
    SendChatAction,
    SetMyCommands,
    SetWebhook,
)
from aiogram.types import BotCommand, InputFile, Message
from typing_extensions import override

from chatlane_adapters.kit.capabilities import Capabilities
from chatlane_adapters.kit.markdown import Renderer
from chatlane_adapters.kit.platform import Platform
from chatlane_adapters.telegram.contents import FILE_KEY
from chatlane_adapters.telegram.decode import ALLOWED_UPDATES, Decoder
from chatlane_adapters.telegram.receiver import Receiver
from chatlane_adapters.telegram.refusals import (
    REVOKED_PAUSE,
    FloodGate,
    has_bad_entities,
    has_no_text,
    is_revoked,
    is_unchanged,
    refusal_of,
)
from chatlane_adapters.telegram.render import (
    MAX_TEXT,
    RENDERER,
    Call,
    calls_of,
    draft_id_of,
    draft_of,
    edit_of,
    is_draft,
    number_of,
    send_of,
    where_of,
)
from chatlane_adapters.telegram.settings import TelegramSettings
from chatlane_client import AdapterClient, Piece, RateBudget, Undeliverable
from chatlane_client.transport.retry import Backoff
from chatlane_schemas import Attachment, InboundEvent, Kind, Source

_log: Final = logging.getLogger(__name__)

_POLL: Final = 25
# Telegram shows a typing state for five seconds: a later one is of no use.
_CALL: Final = 30
_FILE_SECONDS: Final = 60
_MOST_MOVED: Final = 10_000
_LARGEST_DRAFT_ID: Final = 2**31 - 1


class TelegramPlatform(Platform):
    """A bot: receives by long polls or a webhook, and sends what chatlane says."""

    capabilities: ClassVar[Capabilities] = Capabilities(
        platform="telegram",
        text_limit=MAX_TEXT,
        has_readable_files=True,
        per_second=30,
        per_chat_per_second=1,
    )
    renderer: ClassVar[Renderer[Any] | None] = RENDERER

    def __init__(self, settings: TelegramSettings) -> None:
        self._settings = settings
        self._open = AsyncExitStack()
        self._bot: Bot
        self._gate = FloodGate()
        # Groups that became supergroups, until the service has moved their conversations.
        self._moved: dict[int, int] = {}
        self._tell_moved: Callable[[int, int], Awaitable[None]] | None = None
        self._has_drafts = settings.drafts == "native"
        self._beside: set[asyncio.Task[None]] = set()

    @override
    async def __aenter__(self) -> Self:
        api = TelegramAPIServer.from_base(self._settings.api_url)
        session = AiohttpSession(api=api, timeout=_CALL)
        self._bot = Bot(self._settings.read_token(), session=session)
        return self

    @override
    async def __aexit__(self, *_: object) -> None:
        for task in self._beside:
            task.cancel()
        await asyncio.gather(*self._beside, return_exceptions=True)
        await self._bot.session.close()
        await self._open.aclose()

    @override
    def budget(self) -> RateBudget:
        settings = self._settings
        return RateBudget(
            per_second=settings.per_second,
            per_chat_per_second=settings.per_chat_per_second,
            in_minute=lambda chat: settings.per_group_in_minute if chat.startswith("-") else None,
        )

    @property
    @override
    def receives_in_every_process(self) -> bool:
        return self._settings.webhook is not None

    @override
    async def receive(self, adapter: AdapterClient) -> None:
        me = await self._repeat(GetMe())
        await self._set_commands()
        decoder = Decoder(me, adapter.event, answers_all=self._settings.groups == "all")

        async def publish(event: InboundEvent, waits_for_room: bool) -> None:  # noqa: FBT001
            await adapter.publish(event, waits_for_room=waits_for_room)
            if event.kind is Kind.ACTION and event.event_id is not None:
                # The button shows that it works until the press is answered.
                self._run_beside(self._answer(event.event_id))

        async def tell_moved(old: int, new: int) -> None:
            await adapter.publish(decoder.migration(old, new), waits_for_room=True)

        self._tell_moved = tell_moved
        receiver = Receiver(self._bot, decoder, publish, self._note_refused)
        webhook = self._settings.webhook
        if webhook is None:
            await self._repeat(DeleteWebhook())
            await receiver.poll(_POLL)
        else:
            async with receiver.accepting(webhook) as port:
                _log.info("webhook_served", extra={"port": port})
                await self._repeat(
                    SetWebhook(
                        url=webhook.url,
                        secret_token=webhook.secret,
                        allowed_updates=list(ALLOWED_UPDATES),
                    )
                )
                await asyncio.Event().wait()

    @override
    async def content(self, event: InboundEvent, file: Attachment) -> AsyncIterator[bytes]:
        found = await self._bot.get_file((file.key or "").removeprefix(FILE_KEY))
        session = self._bot.session
        url = session.api.file_url(self._bot.token, found.file_path or "")
        async for chunk in session.stream_content(url, timeout=_FILE_SECONDS):
            yield chunk

    async def _set_commands(self) -> None:
        """Bring the menu of commands up to date."""
        commands = [
            BotCommand(command=name, description=about)
            for name, about in self._settings.commands.items()
        ]
        if commands and await self._repeat(GetMyCommands()) != commands:
            await self._repeat(SetMyCommands(commands=commands))

    async def _repeat(self, call: Call) -> Any:  # noqa: ANN401 - result of the call
        """Make a call until Telegram accepts it."""
        for pause in Backoff().pauses():
            try:
                result = await self._bot(call)
            except TelegramAPIError as error:
                if is_revoked(error):
                    self.note_account(is_refused=True)
                _log.warning("telegram_not_ready", extra={"error": type(error).__name__})
                await asyncio.sleep(REVOKED_PAUSE if is_revoked(error) else pause)
            else:
                self.note_account(is_refused=False)
                return result
        raise AssertionError

    def _note_refused(self, is_refused: bool) -> None:  # noqa: FBT001 - a state
        self.note_account(is_refused=is_refused)

    async def _answer(self, query_id: str) -> None:
        try:
            await self._bot(AnswerCallbackQuery(callback_query_id=query_id))
        except TelegramAPIError as error:
            _log.info("press_not_answered", extra={"error": type(error).__name__})

    def _run_beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._beside.add(task)
        task.add_done_callback(self._beside.discard)

    @override
    async def deliver(self, piece: Piece) -> str | None:
        if piece.may_be_sent:
            # Telegram has no idempotency key.
            _log.warning(
                "piece_may_be_repeated",
                extra={"outbound_id": piece.message.id, "piece": piece.number},
            )
        files = [await self._file(attachment) for attachment in piece.attachments]
        first, *others = calls_of(piece, files)
        shown = await self._call(first)
        for call in others:
            await self._call(call)
        if isinstance(first, EditMessageText):
            return piece.edits
        return _id_of(shown)

    async def _file(self, attachment: Attachment) -> str | InputFile:
        """Return a file in the form that Telegram takes.

        Raises:
            Undeliverable: It has no address that Telegram could fetch.
        """
        if attachment.url is not None:
            return attachment.url
        key = attachment.key or ""
        if key.startswith(FILE_KEY):
            return key.removeprefix(FILE_KEY)
        if key and self.media is not None:
            return await self.media.link(key)
        raise Undeliverable("the file has no address")

    @override
    async def send(self, target: Source, text: str, *, key: str, may_be_sent: bool) -> str:
        is_private = target.chat is not None and target.chat.kind == "dm"
        rendered = RENDERER.first(text)
        if rendered is None:
            raise Undeliverable("nothing is to see")
        if self._has_drafts and is_private and target.scope is None:
            number = int.from_bytes(sha256(key.encode()).digest()[:8])
            draft_id = draft_id_of(1 + number % _LARGEST_DRAFT_ID)
            try:
                await self._call(draft_of(target, draft_id, rendered))
            except Undeliverable:
                # Not for this bot, or not on this server.
                self._has_drafts = False
                _log.warning("drafts_not_available")
            else:
                return draft_id
        if may_be_sent:
            # Telegram has no idempotency key, and a bot cannot read what it has sent.
            raise Undeliverable("the message of the draft is not known")
        sent = await self._call(send_of(target, rendered))
        return str(_id_of(sent))

    @override
    async def edit(self, target: Source, message_id: str, text: str) -> None:
        rendered = RENDERER.first(text)
        if rendered is None:
            return
        if is_draft(message_id):
            await self._call(draft_of(target, message_id, rendered))
        else:
            await self._call(edit_of(target, message_id, rendered))

    @override
    async def delete(self, target: Source, message_id: str) -> None:
        if is_draft(message_id):
            # It disappears by itself, with the next message or after half a minute.
            return
        number, chat_id = number_of(message_id), where_of(target)["chat_id"]
        if target.scope is None:
            await self._call(DeleteMessage(chat_id=chat_id, message_id=number))
        else:
            await self._call(
                DeleteBusinessMessages(business_connection_id=target.scope, message_ids=[number])
            )

    @override
    async def show_typing(self, target: Source) -> None:
        where = where_of(target)
        where.pop("direct_messages_topic_id", None)
        await self._call(SendChatAction(**where, action="typing"))

    async def _call(self, call: Call) -> Any:  # noqa: ANN401 - result of the call
        """Make a call, and raise its refusal in the terms of chatlane.

        Raises:
            RetryAfter: Telegram asks to wait, or does not know the token.
            ChatGone: The person blocked the bot, or the chat is gone.
            Undeliverable: Telegram will never accept the call.
        """
        chat_id = getattr(call, "chat_id", None)
        if chat_id in self._moved:
            call = _moved_to(self._moved[chat_id], call)
        try:
            result = await self._bot(call)
        except TelegramMigrateToChat as error:
            await self._move(chat_id, error.migrate_to_chat_id)
            return await self._call(_moved_to(error.migrate_to_chat_id, call))
        except TelegramAPIError as error:
            if is_unchanged(error):
                return True
            if (other := _other_form(call, error)) is not None:
                return await self._call(other)
            if is_revoked(error):
                self.note_account(is_refused=True)
            raise refusal_of(error, self._gate, chat_id) from None
        self.note_account(is_refused=False)
        return result

    async def _move(self, old: Any, new: int) -> None:  # noqa: ANN401 - a chat id of the library
        """Tell the service that a group became a supergroup."""
        if len(self._moved) >= _MOST_MOVED:
            self._moved.clear()
        self._moved[int(old)] = new
        if self._tell_moved is not None:
            await self._tell_moved(int(old), new)


def _moved_to(chat_id: int, call: Call) -> Call:
    """Return a call for the supergroup that a group became, where messages have other ids."""
    update: dict[str, Any] = {"chat_id": chat_id}
    if hasattr(call, "reply_parameters"):
        update["reply_parameters"] = None
    return call.model_copy(update=update)


def _other_form(call: Call, error: TelegramAPIError) -> Call | None:
    """Return a call that shows the same in a plainer way, if that may help."""
    if isinstance(call, EditMessageText) and has_no_text(error):
        return EditMessageCaption(
            chat_id=call.chat_id,
            message_id=call.message_id,
            business_connection_id=call.business_connection_id,
            caption=call.text,
            caption_entities=call.entities,
            reply_markup=call.reply_markup,
        )
    if isinstance(error, TelegramBadRequest) and has_bad_entities(error):
        for name in ("entities", "caption_entities"):
            if getattr(call, name, None):
                return call.model_copy(update={name: None})
    return None


def _id_of(sent: Message | Sequence[Message] | bool) -> str | None:  # noqa: FBT001 - of the library
    if isinstance(sent, bool):
        return None
    message = sent if isinstance(sent, Message) else sent[0]
    return str(message.message_id)
