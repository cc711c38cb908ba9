"""Translate events, commands and presses of Slack into events of chatlane."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from chatlane_adapters.slack.text import Json, mentions, plain_text, text_of
from chatlane_client import deleted, edited, pressed, reacted
from chatlane_schemas import Attachment, Chat, InboundEvent, Kind, Sender
from chatlane_schemas.content.elements import Press, Quote
from chatlane_schemas.inbound import ReturnAddress

# Slack takes answers at a response address for half an hour.
_REPLY_TIME: Final = timedelta(minutes=29)
_KINDS: Final = {"im": "dm", "mpim": "group"}
_SPOKEN: Final = frozenset(
    {None, "file_share", "me_message", "thread_broadcast", "bot_message", "document_mention"}
)
_CHANGES_OF_CHAT: Final = {
    "channel_join": "joined",
    "channel_leave": "left",
    "channel_topic": "topic_changed",
    "channel_purpose": "purpose_changed",
    "channel_name": "title_changed",
    "group_join": "joined",
    "group_leave": "left",
    "group_topic": "topic_changed",
    "group_purpose": "purpose_changed",
    "group_name": "title_changed",
    "pinned_item": "pinned",
}
_NO_FILE: Final = frozenset({"tombstone", "hidden_by_limit"})
_FILE_KINDS: Final = {"slack_audio": "voice", "slack_video": "video"}
URL_BUTTON: Final = "chatlane-url-"


class Bot(NamedTuple):
    """The bot in one workspace, as `auth.test` names it."""

    team: str
    user: str
    bot_id: str


class Decoded(NamedTuple):
    """An event of chatlane.

    Attributes:
        is_addressed: Whether it is for the bot, as far as it tells itself; a thread may tell as well.
        lacks_thread: Whether its thread has to be looked up: reactions do not name it.
    """

    event: InboundEvent
    is_addressed: bool = True
    lacks_thread: bool = False


class Decoder:
    """Decodes what Slack sends for one bot.

    Args:
        make: Returns an event of the account with some fields, as `AdapterClient.event`.
        bot: The bot in the workspace that the events are of.
    """

    def __init__(self, make: Callable[..., InboundEvent], bot: Bot) -> None:
        self._make = make
        self._bot = bot

    def event(self, event: Json) -> Decoded | None:
        """Return an event of the Events API; None if it is of no use here.

        Raises:
            KeyError: It lacks a field that it needs.
            ValidationError: A field does not follow the contract.
        """
        match event["type"]:
            case "message" | "app_mention":
                return self._message(event)
            case "reaction_added" | "reaction_removed":
                return self._reaction(event)
            case _:
                fields = _fields_of_other(event)
        return None if fields is None else Decoded(self._of(event["event_ts"], **fields))

    def command(self, form: Mapping[str, str], *, is_message: bool) -> Decoded:
        """Return a slash command.

        Args:
            form: Its fields.
            is_message: Whether its text alone is a message to the agent.
        """
        words = form.get("text", "").strip()
        return Decoded(
            self._of(
                form["trigger_id"],
                chat=_chat(form["channel_id"]),
                sender=Sender(id=form["user_id"], name=form.get("user_name")),
                text=words if is_message else f"{form['command']} {words}".strip(),
                return_address=_return_address(form.get("response_url")),
            )
        )

    def presses(self, payload: Json) -> list[Decoded]:
        """Return the presses of buttons and choices from menus of a payload."""
        if payload["type"] != "block_actions" or payload["container"]["type"] != "message":
            return []
        card = payload.get("message") or {}
        ts = payload["container"]["message_ts"]
        message = self._make(
            scope=self._bot.team,
            chat=_chat(payload["channel"]["id"]),
            thread_id=card.get("thread_ts") or payload["container"].get("thread_ts"),
            sender=Sender(id=payload["user"]["id"], name=payload["user"].get("username")),
            message_id=ts,
        )
        return [
            Decoded(
                pressed(
                    message,
                    Press(id=action["action_id"], value=_value_of(action), label=_label_of(action)),
                    event_id=action["action_ts"],
                    return_address=_return_address(payload.get("response_url")),
                )
            )
            for action in payload["actions"]
            if not action["action_id"].startswith(URL_BUTTON)
        ]

    def _of(self, event_id: str, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field
        return self._make(scope=self._bot.team, event_id=event_id, **fields)

    def _message(self, event: Json) -> Decoded | None:
        match event.get("subtype"):
            case "message_changed":
                return self._change(event)
            case "message_deleted":
                return self._delete(event)
            case subtype if subtype in _CHANGES_OF_CHAT:
                return self._change_of_chat(event, _CHANGES_OF_CHAT[subtype])
            case subtype if subtype in _SPOKEN:
                return None if self._is_ours(event) else self._spoken(event, event)
            case _:
                return None

    def _spoken(self, event: Json, message: Json) -> Decoded:
        chat, text = _chat(event["channel"], event.get("channel_type")), text_of(message)
        ts, thread_ts = message["ts"], message.get("thread_ts")
        is_addressed = chat.kind == "dm" or mentions(text, self._bot.user)
        # In a channel each message begins a thread, so its answers leave the channel readable.
        thread = thread_ts if chat.kind == "dm" else thread_ts or ts
        return Decoded(
            self._make(
                scope=self._bot.team,
                chat=chat,
                message_id=ts,
                thread_id=thread,
                sender=self._sender(message),
                text=None if text is None else plain_text(text, self._bot.user),
                attachments=_files(message),
                quote=_quote(message),
                sent_at=_time_of(ts),
            ),
            is_addressed,
        )

    def _change(self, event: Json) -> Decoded | None:
        message, before = event["message"], event.get("previous_message") or {}
        if self._is_ours(message) or message.get("subtype") == "tombstone":
            is_deleted = message.get("subtype") == "tombstone" and not self._is_ours(before)
            return self._delete({**event, "deleted_ts": message["ts"]}) if is_deleted else None
        if message.get("subtype") not in _SPOKEN:
            return None
        same = ("text", "files")
        if "edited" not in message or all(message.get(it) == before.get(it) for it in same):
            # Slack added the preview of a link, or counted a reply.
            return None
        decoded = self._spoken(event, message)
        is_dm = _chat(event["channel"]).kind == "dm"
        is_first_mention = decoded.is_addressed and not mentions(text_of(before), self._bot.user)
        return decoded._replace(
            event=edited(
                decoded.event,
                version=message["edited"]["ts"],
                event_id=event["event_ts"],
                counts_as_new=is_first_mention and not is_dm,
            )
        )

    def _delete(self, event: Json) -> Decoded | None:
        before = event.get("previous_message") or {}
        if self._is_ours(before):
            return None
        message = {**before, "ts": event["deleted_ts"]}
        decoded = self._spoken(event, message)
        return decoded._replace(event=deleted(decoded.event, event_id=event["event_ts"]))

    def _change_of_chat(self, event: Json, change: str) -> Decoded:
        values = (event.get(it) for it in ("topic", "purpose", "name"))
        return Decoded(
            self._of(
                event["ts"],
                kind=Kind.SERVICE,
                chat=_chat(event["channel"], event.get("channel_type")),
                sender=self._sender(event),
                service=change,
                text=next(filter(None, values), None),
            )
        )

    def _reaction(self, event: Json) -> Decoded | None:
        item = event["item"]
        if item["type"] != "message" or event["user"] == self._bot.user:
            return None
        message = self._make(
            scope=self._bot.team,
            chat=_chat(item["channel"]),
            message_id=item["ts"],
            sender=Sender(id=event["user"]),
        )
        reaction = reacted(
            message,
            f":{event['reaction']}:",
            event_id=event["event_ts"],
            removed=event["type"] == "reaction_removed",
        )
        is_ours = event.get("item_user") == self._bot.user
        is_dm = message.chat is not None and message.chat.kind == "dm"
        return Decoded(reaction, is_addressed=is_ours or is_dm, lacks_thread=True)

    def _is_ours(self, message: Json) -> bool:
        return self._bot.user == message.get("user") or self._bot.bot_id == message.get("bot_id")

    def _sender(self, message: Json) -> Sender:
        bot_id = message.get("bot_id")
        return Sender(
            id=message.get("user") or bot_id,
            name=message.get("username"),
            is_bot=bot_id is not None,
        )


def _fields_of_other(event: Json) -> Json | None:
    """Return the fields of an event that is about no message; None if it is of no use here."""
    match event["type"]:
        case "channel_id_changed":
            chat = Chat(id=event["old_channel_id"], kind="channel")
            return {
                "kind": Kind.MIGRATION,
                "chat": chat,
                "migrate_to": event["new_channel_id"],
            }
        case "app_home_opened":
            person = Sender(id=event["user"])
            return {"kind": Kind.SERVICE, "chat": _chat(event["channel"]), "sender": person}
        case "assistant_thread_started":
            thread = event["assistant_thread"]
            return {
                "kind": Kind.SERVICE,
                "chat": _chat(thread["channel_id"]),
                "thread_id": thread["thread_ts"],
                "sender": Sender(id=thread["user_id"]),
            }
        case "agent_session_stopped":
            return {
                "chat": _chat(event["channel"]),
                "thread_id": event["thread_ts"],
                "sender": Sender(id=event["user"]),
                "text": "/stop",
            }
        case _:
            return None


def _chat(channel: str, channel_type: str | None = None) -> Chat:
    kind = _KINDS.get(channel_type or "", "channel")
    return Chat(id=channel, kind="dm" if channel.startswith("D") else kind)


def _files(message: Json) -> tuple[Attachment, ...]:
    files = (it for it in message.get("files") or () if it.get("mode") not in _NO_FILE)
    return tuple(
        Attachment(
            url=file.get("url_private_download") or file["url_private"],
            media_type=file.get("mimetype") or "application/octet-stream",
            size_bytes=file.get("size"),
            name=file.get("name") or file.get("title"),
            kind=_FILE_KINDS.get(file.get("subtype", "")),
            duration_ms=file.get("duration_ms"),
        )
        for file in files
        if file.get("url_private")
    )


def _quote(message: Json) -> Quote | None:
    """Return the message that is shared with this one."""
    for shared in message.get("attachments") or ():
        if shared.get("is_share") or shared.get("is_msg_unfurl"):
            return Quote(
                text=plain_text(shared["text"], "") if shared.get("text") else None,
                sender_id=shared.get("author_id"),
                sender_name=shared.get("author_name"),
            )
    return None


def _value_of(action: Json) -> str | None:
    chosen = action.get("selected_option") or {}
    for name in ("value", "selected_user", "selected_channel", "selected_date", "selected_time"):
        if action.get(name) is not None:
            return str(action[name])
    return chosen.get("value")


def _label_of(action: Json) -> str | None:
    shown = (action.get("selected_option") or {}).get("text") or action.get("text") or {}
    return shown.get("text")


def _return_address(url: str | None) -> ReturnAddress | None:
    if url is None:
        return None
    return ReturnAddress(value=url, expires_at=datetime.now(UTC) + _REPLY_TIME)


def _time_of(ts: str) -> datetime:
    return datetime.fromtimestamp(float(ts), UTC)
