"""Return the events of an update of Telegram."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from aiogram.enums import ContentType
from aiogram.types import (
    BusinessMessagesDeleted,
    CallbackQuery,
    Chat,
    ChatMemberUpdated,
    InaccessibleMessage,
    Message,
    MessageEntity,
    MessageGenerationStopped,
    MessageReactionUpdated,
    Update,
    User,
)

from chatlane_adapters.telegram.contents import (
    as_time,
    attachments_of,
    elements_of,
    forward_of,
    reply_of,
    text_of,
)
from chatlane_client import deleted, edited, pressed, reacted
from chatlane_schemas import Chat as EventChat
from chatlane_schemas import InboundEvent, Kind, Sender
from chatlane_schemas.content.elements import Press

# What the bot asks Telegram for; docs/platforms/telegram.md says why the others are missing.
ALLOWED_UPDATES: Final = (
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "business_connection",
    "business_message",
    "edited_business_message",
    "deleted_business_messages",
    "message_reaction",
    "callback_query",
    "my_chat_member",
    "stopped_message_generation",
)
_COMMAND: Final = re.compile(
    r"(?:@(?P<mentioned>\w+)[:,]?\s+)?(?P<name>/\w+)(?:@(?P<called>\w+))?(?!\S)", re.ASCII
)
_KINDS: Final = {
    "private": "dm",
    "group": "group",
    "supergroup": "supergroup",
    "channel": "channel",
}
# Contents of a message that people write; everything else tells of a change of the chat.
_WRITTEN: Final = frozenset(
    {
        "text",
        "animation",
        "audio",
        "document",
        "live_photo",
        "paid_media",
        "photo",
        "sticker",
        "story",
        "video",
        "video_note",
        "voice",
        "checklist",
        "contact",
        "dice",
        "game",
        "poll",
        "venue",
        "location",
        "invoice",
        "web_app_data",
    }
)
_SERVICES: Final = {
    "new_chat_members": "joined",
    "left_chat_member": "left",
    "pinned_message": "pinned",
    "new_chat_title": "title_changed",
    "new_chat_photo": "photo_changed",
    "delete_chat_photo": "photo_removed",
    "forum_topic_created": "topic_created",
    "forum_topic_edited": "topic_edited",
    "forum_topic_closed": "topic_closed",
    "forum_topic_reopened": "topic_reopened",
    "successful_payment": "paid",
    "refunded_payment": "refunded",
}
_IN_CHANNEL: Final = "direct:"


@dataclass(frozen=True, slots=True)
class Decoder:
    """Makes events of updates.

    Attributes:
        me: The bot.
        event: Makes an event of the account, such as `AdapterClient.event`.
        answers_all: Whether every message of a group is meant for the bot, or only those that
            mention it, reply to it or are commands.
    """

    me: User
    event: Callable[..., InboundEvent]
    answers_all: bool = False

    def events(self, update: Update) -> tuple[InboundEvent, ...]:
        """Return the events of an update, none for one that says nothing to agents."""
        return tuple(self._events(update, str(update.update_id)))

    def _events(self, update: Update, update_id: str) -> Iterator[InboundEvent]:
        message = update.message or update.channel_post or update.business_message
        changed = (
            update.edited_message or update.edited_channel_post or update.edited_business_message
        )
        if message is not None:
            yield from self._of_message(message, update_id)
        if changed is not None:
            yield from self._of_edit(changed, update_id)
        if update.callback_query is not None:
            yield from self._of_press(update.callback_query)
        if update.message_reaction is not None:
            yield from self._of_reaction(update.message_reaction, update_id)
        if update.deleted_business_messages is not None:
            yield from self._of_deletion(update.deleted_business_messages, update_id)
        if update.my_chat_member is not None:
            yield self._of_membership(update.my_chat_member, update_id)
        if update.stopped_message_generation is not None:
            yield self._of_stop(update.stopped_message_generation, update_id)

    def _of_message(self, message: Message, update_id: str) -> Iterator[InboundEvent]:
        if message.migrate_to_chat_id is not None:
            yield self.migration(message.chat.id, message.migrate_to_chat_id)
            return
        content = ContentType(message.content_type).value
        if content in _WRITTEN:
            if not self._is_ours(message):
                yield self._written(message)
        elif content not in {"unknown", "migrate_from_chat_id"}:
            yield self.event(
                **_address(message),
                kind=Kind.SERVICE,
                event_id=update_id,
                sent_at=as_time(message.date),
                service=_SERVICES.get(content, content),
                text=_news(message),
            )

    def migration(self, old: int, new: int) -> InboundEvent:
        """Return the event of a group that became a supergroup."""
        return self.event(
            kind=Kind.MIGRATION,
            chat=EventChat(id=str(old), kind="group"),
            event_id=f"migrated:{new}",
            migrate_to=str(new),
        )

    def _of_edit(self, message: Message, update_id: str) -> Iterator[InboundEvent]:
        if ContentType(message.content_type).value not in _WRITTEN or self._is_ours(message):
            return
        # Two edits of a second have the same `edit_date`, so the update tells them apart.
        yield edited(
            self._written(message),
            version=message.edit_date,
            event_id=update_id,
            counts_as_new=_is_group(message.chat) and self._is_meant(message),
        )

    def _written(self, message: Message) -> InboundEvent:
        is_overheard = not self._is_meant(message)
        return self.event(
            **_address(message),
            **reply_of(message, self.me),
            **elements_of(message),
            sent_at=as_time(message.date),
            text=self._words(message),
            attachments=attachments_of(message),
            forward=forward_of(message),
            album_id=message.media_group_id,
            observed=True if is_overheard else None,
        )

    def _words(self, message: Message) -> str | None:
        """Return the words of a message; a command for this bot does not name it.

        Clients of Telegram add the name of the bot to a command that is chosen in a group, and
        people write it before a command. The service knows this name only where the account
        declares it.
        """
        text = text_of(message)
        command = _COMMAND.match(text or "")
        if text is None or command is None:
            return text
        names = {name.lower() for name in command.group("mentioned", "called") if name}
        is_ours = names <= {(self.me.username or "").lower()}
        return command["name"] + text[command.end() :] if is_ours else text

    def _of_press(self, query: CallbackQuery) -> Iterator[InboundEvent]:
        message = query.message
        if message is None:
            # Of a message that was sent in inline mode: it has no chat.
            return
        card = self.event(
            chat=_chat(message.chat, is_topic=_is_topic(message)),
            thread_id=_thread(message),
            scope=getattr(message, "business_connection_id", None),
            message_id=str(message.message_id),
            sender=_person(query.from_user),
        )
        label = None if isinstance(message, InaccessibleMessage) else _label(message, query.data)
        press = Press(value=query.data, label=label)
        yield pressed(card, press, event_id=query.id)

    def _of_reaction(
        self, change: MessageReactionUpdated, update_id: str
    ) -> Iterator[InboundEvent]:
        sender = Sender() if change.user is None else _person(change.user)
        if change.actor_chat is not None:
            chat = change.actor_chat
            sender = Sender(sender_chat_id=str(chat.id), name=chat.title)
        message = self.event(
            chat=_chat(change.chat), message_id=str(change.message_id), sender=sender
        )
        old, new = map(_reaction, change.old_reaction), map(_reaction, change.new_reaction)
        before, now = list(old), list(new)
        changes = [(it, True) for it in before if it not in now]
        changes += [(it, False) for it in now if it not in before]
        for place, (reaction, is_removed) in enumerate(changes):
            event_id = f"{update_id}.{place}" if place else update_id
            yield reacted(message, reaction, event_id=event_id, removed=is_removed)

    def _of_deletion(
        self, deletion: BusinessMessagesDeleted, update_id: str
    ) -> Iterator[InboundEvent]:
        for message_id in deletion.message_ids:
            message = self.event(
                chat=_chat(deletion.chat),
                scope=deletion.business_connection_id,
                message_id=str(message_id),
            )
            yield deleted(message, event_id=update_id)

    def _of_membership(self, change: ChatMemberUpdated, update_id: str) -> InboundEvent:
        is_gone = change.new_chat_member.status in {"kicked", "left"}
        if change.chat.type == "private":
            service = "blocked" if is_gone else "unblocked"
        else:
            service = "bot_removed" if is_gone else "bot_changed"
        return self.event(
            kind=Kind.SERVICE,
            chat=_chat(change.chat),
            sender=_person(change.from_user),
            event_id=update_id,
            sent_at=as_time(change.date),
            service=service,
        )

    def _of_stop(self, stop: MessageGenerationStopped, update_id: str) -> InboundEvent:
        """Return the press of the stop button of a draft, as the command that it stands for."""
        thread = stop.message_thread_id
        return self.event(
            chat=_chat(stop.chat, is_topic=thread is not None),
            thread_id=None if thread is None else str(thread),
            sender=Sender(id=str(stop.chat.id), name=stop.chat.full_name),
            event_id=update_id,
            text="/stop",
        )

    def _is_ours(self, message: Message) -> bool:
        """Return whether this bot wrote a message, also in the name of a business account."""
        authors = (message.from_user, message.sender_business_bot)
        return any(author is not None and author.id == self.me.id for author in authors)

    def _is_meant(self, message: Message) -> bool:
        """Return whether a message is meant for the bot."""
        if message.chat.type == "private" or self.answers_all:
            return True
        replied = message.reply_to_message
        if (
            replied is not None
            and replied.from_user is not None
            and _is(replied.from_user, self.me)
        ):
            return True
        text = message.text if message.text is not None else message.caption
        entities = message.entities or message.caption_entities or []
        return any(self._calls_us(text or "", entity) for entity in entities)

    def _calls_us(self, text: str, entity: MessageEntity) -> bool:
        if entity.type == "text_mention":
            return entity.user is not None and _is(entity.user, self.me)
        if entity.type not in {"mention", "bot_command"}:
            return False
        word = entity.extract_from(text).lower()
        ours = f"@{self.me.username}".lower()
        if entity.type == "mention":
            return word == ours
        return word.endswith(ours) or "@" not in word


def _is(user: User, me: User) -> bool:
    return user.id == me.id


def _is_group(chat: Chat) -> bool:
    return chat.type in {"group", "supergroup"}


def _address(message: Message) -> dict[str, Any]:
    """Return where a message was written and by whom, as fields of an event."""
    return {
        "chat": _chat(message.chat, is_topic=_is_topic(message)),
        "thread_id": _thread(message),
        "scope": message.business_connection_id,
        "message_id": str(message.message_id),
        "sender": _sender(message),
    }


def _chat(chat: Chat, *, is_topic: bool = False) -> EventChat:
    is_group = _is_group(chat)
    kind = _KINDS.get(chat.type, "group")
    is_forum = True if chat.is_forum or is_topic else (False if is_group else None)
    return EventChat(
        id=str(chat.id),
        kind="forum" if is_group and is_forum else kind,
        name=chat.title or chat.full_name or None,
        is_forum=is_forum,
    )


def _is_topic(message: Message | InaccessibleMessage) -> bool:
    return isinstance(message, Message) and (
        bool(message.is_topic_message) or message.direct_messages_topic is not None
    )


def _thread(message: Message | InaccessibleMessage) -> str | None:
    """Return the topic of a message; a chain of replies outside of a forum is none."""
    if not isinstance(message, Message):
        return None
    if message.direct_messages_topic is not None:
        return f"{_IN_CHANNEL}{message.direct_messages_topic.topic_id}"
    return str(message.message_thread_id) if message.is_topic_message else None


def topic_of(thread_id: str | None) -> dict[str, int]:
    """Return the parameters that send to a thread."""
    if thread_id is None or not thread_id.removeprefix(_IN_CHANNEL).isdecimal():
        return {}
    number = int(thread_id.removeprefix(_IN_CHANNEL))
    if thread_id.startswith(_IN_CHANNEL):
        return {"direct_messages_topic_id": number}
    return {"message_thread_id": number}


def _person(user: User) -> Sender:
    return Sender(id=str(user.id), name=user.full_name, is_bot=user.is_bot)


def _sender(message: Message) -> Sender:
    user, chat = message.from_user, message.sender_chat
    if chat is not None:
        name = chat.title or message.author_signature
        return Sender(
            id=None if user is None else str(user.id),
            name=name,
            is_bot=user is not None and user.is_bot,
            sender_chat_id=str(chat.id),
        )
    if user is None:
        return Sender()
    is_owner = message.business_connection_id is not None and user.id != message.chat.id
    sender = _person(user)
    return sender.model_copy(update={"is_staff": True}) if is_owner else sender


def _label(card: Message, value: str | None) -> str | None:
    if card.reply_markup is None or value is None:
        return None
    buttons = (button for row in card.reply_markup.inline_keyboard for button in row)
    return next((button.text for button in buttons if button.callback_data == value), None)


def _reaction(reaction: Any) -> str:  # noqa: ANN401 - a union of the library
    if reaction.type == "emoji":
        return str(reaction.emoji)
    return f"custom:{reaction.custom_emoji_id}" if reaction.type == "custom_emoji" else "⭐"


def _news(message: Message) -> str | None:
    """Return the new value that a service message tells."""
    return next(filter(None, _values(message)), None)


def _values(message: Message) -> Iterator[str | None]:
    yield ", ".join(user.full_name for user in message.new_chat_members or ())
    if message.left_chat_member is not None:
        yield message.left_chat_member.full_name
    if isinstance(message.pinned_message, Message):
        yield text_of(message.pinned_message)
    for topic in (message.forum_topic_created, message.forum_topic_edited):
        yield None if topic is None else topic.name
    if (payment := message.successful_payment or message.refunded_payment) is not None:
        yield f"{payment.total_amount} {payment.currency}"
    yield message.new_chat_title
