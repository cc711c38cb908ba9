"""Events of the gateway as events of chatlane."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, Literal, TypeAlias

from discord import utils

from chatlane_adapters.discord.rest import Json
from chatlane_client import deleted, edited, pressed, reacted
from chatlane_schemas import Attachment, Chat, InboundEvent, Kind, Sender
from chatlane_schemas.content.elements import Forward, Poll, Press, Quote, Sticker, Vote
from chatlane_schemas.inbound import ReturnAddress

Unmentioned: TypeAlias = Literal["observed", "answered", "dropped"]

_THREADS: Final = frozenset({10, 11, 12})
_DM, _GROUP_DM = 1, 3
_DEFAULT, _REPLY = 0, 19
# The last two are answers of other bots to commands.
_WRITTEN: Final = frozenset({_DEFAULT, _REPLY, 20, 23})
_FORWARD: Final = 1
_VOICE_MESSAGE: Final = 1 << 13
_LOADING: Final = 1 << 7
_SLASH_COMMAND, _COMPONENT = 2, 3
_TOKEN_LIFE: Final = timedelta(minutes=15)
# Messages that tell of a change, by their type.
_SERVICES: Final = {
    4: "title_changed",
    6: "pinned",
    7: "joined",
    18: "thread_created",
}
_STICKER_FORMATS: Final = {1: "png", 2: "png", 3: "json", 4: "gif"}
_STICKER_TYPES: Final = {"png": "image/png", "json": "application/json", "gif": "image/gif"}
_MARKUP: Final = re.compile(r"<(?:@!?(\d+)|@&(\d+)|#(\d+)|a?:(\w+):\d+|/([^:<>]+):\d+)>")


@dataclass(frozen=True, slots=True)
class Decoder:
    """Decodes the events of the gateway for one account.

    Attributes:
        event: Makes an event of the account from its fields.
        bot_id: Id of the bot.
        bot_roles: Ids of the roles that stand for the bot.
        unmentioned: What becomes of messages in guilds that do not mention the bot.
    """

    event: Callable[..., InboundEvent]
    bot_id: str
    bot_roles: frozenset[str] = frozenset()
    unmentioned: Unmentioned = "observed"

    def events(self, name: str, data: Json, chat: Chat, key: str) -> Iterator[InboundEvent]:
        """Yield the events of chatlane for an event of the gateway; none if it is not of interest.

        Args:
            name: Name of the event.
            data: Its data.
            chat: The channel of the event.
            key: Names the event, the same when the gateway repeats it.
        """
        match name:
            case "MESSAGE_CREATE":
                yield from self.message(data, chat)
            case "MESSAGE_UPDATE":
                yield from self._edit(data, chat)
            case "MESSAGE_DELETE":
                yield deleted(self.event(message_id=data["id"], chat=chat))
            case "MESSAGE_DELETE_BULK":
                for message_id in data["ids"]:
                    yield deleted(self.event(message_id=message_id, chat=chat))
            case "MESSAGE_REACTION_ADD" | "MESSAGE_REACTION_REMOVE":
                yield from self._reaction(data, chat, key, removed=name.endswith("REMOVE"))
            case "MESSAGE_POLL_VOTE_ADD" | "MESSAGE_POLL_VOTE_REMOVE":
                yield from self._vote(data, chat, key, removed=name.endswith("REMOVE"))
            case "INTERACTION_CREATE":
                yield from self._interaction(data, chat)
            case _:
                pass

    def message(self, data: Json, chat: Chat) -> Iterator[InboundEvent]:
        """Yield the event of a message; nothing for our own and those without content."""
        kind = data.get("type", _DEFAULT)
        if data["author"]["id"] == self.bot_id:
            return
        if kind in _SERVICES:
            yield self._service(data, chat, _SERVICES[kind])
        elif kind in _WRITTEN:
            is_meant = chat.kind == "dm" or self._is_to_bot(data) or self.unmentioned == "answered"
            if is_meant or self.unmentioned == "observed":
                event = self._content(data, chat)
                yield event if is_meant else event.model_copy(update={"observed": True})

    def _edit(self, data: Json, chat: Chat) -> Iterator[InboundEvent]:
        # Without a time of the edit, Discord has added a preview of a link.
        if not data.get("edited_timestamp") or "content" not in data or "author" not in data:
            return
        for event in self.message(data, chat):
            if event.kind is Kind.MESSAGE:
                # An edit that adds the mention is the first that is published of its message.
                is_new = self.unmentioned == "dropped" and chat.kind != "dm"
                edit = edited(event, version=data["edited_timestamp"], counts_as_new=is_new)
                kept = {name: getattr(event, name) for name in ("poll", "sticker", "observed")}
                yield edit.model_copy(update=kept)

    def _is_to_bot(self, data: Json) -> bool:
        if any(it["id"] == self.bot_id for it in data.get("mentions") or ()):
            return True
        if not self.bot_roles.isdisjoint(data.get("mention_roles") or ()):
            return True
        answered = data.get("referenced_message") or {}
        return bool((answered.get("author") or {}).get("id") == self.bot_id)

    def _content(self, data: Json, chat: Chat) -> InboundEvent:
        content, forward = _forwarded(data)
        stickers = content.get("sticker_items") or ()
        answered = _answered(data)
        return self.event(
            message_id=data["id"],
            chat=chat,
            sender=sender_of(data["author"], data.get("member"), data.get("webhook_id")),
            sent_at=utils.parse_time(data.get("timestamp")),
            text=self._text(content),
            attachments=(*_files(content), *map(_sticker_file, stickers)),
            sticker=Sticker(name=stickers[0].get("name")) if stickers else None,
            poll=_poll(content, data["id"]),
            reply_to=None if answered is None else data["message_reference"]["message_id"],
            quote=self._quote(answered),
            forward=forward,
        )

    def _text(self, data: Json) -> str:
        text = self.readable(data.get("content") or "", data.get("mentions") or ())
        # Other bots and webhooks often say all in embeds.
        return text or "\n\n".join(filter(None, map(_embed_text, data.get("embeds") or ())))

    def readable(self, text: str, mentions: Sequence[Json]) -> str:
        """Return a text with names in place of ids; a mention of the bot that begins it is left out."""
        text = re.sub(rf"^\s*<@!?{self.bot_id}>\s*", "", text)
        names = {it["id"]: _name(it, it.get("member")) for it in mentions}

        def shown(found: re.Match[str]) -> str:
            person, role, _, emoji, command = found.groups()
            if person is not None:
                return f"@{names.get(person) or person}"
            if role in self.bot_roles:
                return ""
            if emoji is not None:
                return f":{emoji}:"
            return f"/{command}" if command is not None else found[0]

        return _MARKUP.sub(shown, text).strip() if "<" in text else text

    def _quote(self, answered: Json | None) -> Quote | None:
        author = (answered or {}).get("author")
        if answered is None or author is None:
            return None
        return Quote(
            text=self._text(answered) or None,
            sender_id=author["id"],
            sender_name=_name(author, None),
            is_ours=author["id"] == self.bot_id,
        )

    def _service(self, data: Json, chat: Chat, what: str) -> InboundEvent:
        return self.event(
            kind=Kind.SERVICE,
            event_id=data["id"],
            chat=chat,
            sender=sender_of(data["author"], data.get("member")),
            sent_at=utils.parse_time(data.get("timestamp")),
            service=what,
            text=data.get("content") or None,
        )

    def _reaction(
        self, data: Json, chat: Chat, key: str, *, removed: bool
    ) -> Iterator[InboundEvent]:
        if data["user_id"] == self.bot_id:
            return
        emoji = data["emoji"]
        name = f":{emoji['name']}:" if emoji.get("id") else emoji.get("name") or ""
        place = self.event(message_id=data["message_id"], chat=chat, sender=_actor(data))
        if name:
            yield reacted(place, name, event_id=key, removed=removed)

    def _vote(self, data: Json, chat: Chat, key: str, *, removed: bool) -> Iterator[InboundEvent]:
        yield self.event(
            kind=Kind.REACTION,
            message_id=data["message_id"],
            event_id=key,
            chat=chat,
            sender=_actor(data),
            vote=Vote(poll_id=data["message_id"], options=(str(data["answer_id"]),)),
            removed=removed or None,
        )

    def _interaction(self, data: Json, chat: Chat) -> Iterator[InboundEvent]:
        member = data.get("member")
        user = data.get("user") or (member or {}).get("user")
        if user is None:
            return
        sender, fields = sender_of(user, member), data.get("data") or {}
        sent_at = utils.snowflake_time(int(data["id"]))
        match data["type"]:
            case kind if kind == _SLASH_COMMAND and fields.get("type", 1) == 1:
                yield self.event(
                    event_id=data["id"],
                    chat=chat,
                    sender=sender,
                    sent_at=sent_at,
                    text=_command_text(fields),
                    return_address=_return_address(data, sent_at),
                )
            case kind if kind == _COMPONENT and "message" in data:
                message_id = data["message"]["id"]
                place = self.event(message_id=message_id, chat=chat, sender=sender)
                yield pressed(place, _press(fields, data["message"]), event_id=data["id"])
            case _:
                pass


def chat_of_channel(channel: Mapping[str, Any]) -> Chat:
    """Return a channel object of the API as a chat."""
    kind = channel.get("type")
    if kind in {_DM, _GROUP_DM}:
        return Chat(
            id=channel["id"], kind="dm" if kind == _DM else "group", name=channel.get("name")
        )
    is_thread = kind in _THREADS
    return Chat(
        id=channel["id"],
        kind="thread" if is_thread else "channel",
        name=channel.get("name"),
        parent_id=channel.get("parent_id") if is_thread else None,
    )


def sender_of(user: Json, member: Json | None, webhook_id: str | None = None) -> Sender:
    """Return a user object of the API as a sender."""
    is_bot = bool(user.get("bot")) or webhook_id is not None
    return Sender(id=user["id"], name=_name(user, member), is_bot=is_bot)


def is_waiting(message: Json) -> bool:
    """Return whether a message still waits for the answer that its command was promised."""
    return bool(message.get("flags", 0) & _LOADING)


def custom_id_of(number: int, value: str, label: str) -> str:
    """Return the id of a button; what is too long for it is found by the label."""
    text = f"{number}:{value}"
    return text if len(text) <= 100 else f"{number}:{label}"[:100]  # noqa: PLR2004


def _actor(data: Json) -> Sender:
    """Return the author of an event; outside of guilds only the id is known."""
    member = data.get("member") or {}
    user = member.get("user")
    return sender_of(user, member) if user else Sender(id=data["user_id"])


def _name(user: Json, member: Json | None) -> str | None:
    return (member or {}).get("nick") or user.get("global_name") or user.get("username")


def _forwarded(data: Json) -> tuple[Json, Forward | None]:
    """Return the content of a message; that of a forwarded message is a copy."""
    snapshots = data.get("message_snapshots") or ()
    if not snapshots or (data.get("message_reference") or {}).get("type") != _FORWARD:
        return data, None
    copy = snapshots[0]["message"]
    return copy, Forward(sent_at=utils.parse_time(copy.get("timestamp")))


def _answered(data: Json) -> Json | None:
    """Return the message that a reply answers; an empty one if it is deleted."""
    reference = data.get("message_reference") or {}
    if data.get("type") != _REPLY or not reference.get("message_id"):
        return None
    return data.get("referenced_message") or {}


def _files(data: Json) -> Iterator[Attachment]:
    is_voice = bool(data.get("flags", 0) & _VOICE_MESSAGE)
    for file in data.get("attachments") or ():
        seconds = file.get("duration_secs")
        yield Attachment(
            url=file["url"],
            media_type=file.get("content_type") or "application/octet-stream",
            size_bytes=file.get("size"),
            name=file.get("title") or file.get("filename"),
            kind="voice" if is_voice else None,
            duration_ms=None if seconds is None else int(seconds * 1000),
        )


def _sticker_file(sticker: Json) -> Attachment:
    suffix = _STICKER_FORMATS.get(sticker.get("format_type", 1), "png")
    return Attachment(
        url=f"https://media.discordapp.net/stickers/{sticker['id']}.{suffix}",
        media_type=_STICKER_TYPES[suffix],
        name=sticker.get("name"),
        kind="sticker",
    )


def _poll(data: Json, message_id: str) -> Poll | None:
    poll = data.get("poll")
    if not poll:
        return None
    options = tuple(_media_text(it["poll_media"]) for it in poll.get("answers") or ())
    return Poll(id=message_id, question=_media_text(poll["question"]), options=options)


def _media_text(media: Json) -> str:
    return media.get("text") or (media.get("emoji") or {}).get("name") or ""


def _embed_text(embed: Json) -> str:
    fields = [f"{it.get('name')}: {it.get('value')}" for it in embed.get("fields") or ()]
    parts = [embed.get("title"), embed.get("description"), *fields, embed.get("url")]
    return "\n".join(filter(None, parts))


def _command_text(command: Json) -> str:
    """Return a slash command as a person would type it."""
    words = [f"/{command['name']}"]
    options = list(command.get("options") or ())
    while options:
        option = options.pop(0)
        if "value" in option:
            words.append(str(option["value"]))
        else:
            # A subcommand has a name and further options.
            words.append(option["name"])
            options = [*(option.get("options") or ()), *options]
    return " ".join(words)


def _return_address(data: Json, sent_at: datetime) -> ReturnAddress:
    return ReturnAddress(value=data["token"], expires_at=sent_at + _TOKEN_LIFE)


def _press(pressed_control: Json, message: Json) -> Press:
    custom_id = pressed_control.get("custom_id") or ""
    rows = message.get("components") or ()
    controls = [it for row in rows for it in row.get("components") or ()]
    label = next((it.get("label") for it in controls if it.get("custom_id") == custom_id), None)
    value = custom_id.partition(":")[2] if custom_id[:1].isdigit() else custom_id
    values = pressed_control.get("values")
    return Press(id=custom_id, value=values[0] if values else value, label=label)
