"""The methods of the Bot API, as far as bots of chatlane and tests use them."""

from itertools import count
from time import monotonic, time
from typing import TYPE_CHECKING, Any, Final

from chatlane_devkit.platforms.telegram.chats import Chat, World
from chatlane_devkit.platforms.telegram.entities import (
    MAX_CAPTION,
    MAX_TEXT,
    checked,
    found_entities,
    parsed_html,
)
from chatlane_devkit.platforms.telegram.people import plain, poll_of
from chatlane_devkit.platforms.telegram.uploads import MAX_DOWNLOAD, StoredFile
from chatlane_devkit.platforms.telegram.wire import Call, Json, RefusalError, bad_request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_MAX_BUTTON: Final = 64
_ALBUM: Final = range(2, 11)
_NOT_MODIFIED: Final = (
    "message is not modified: specified new message content and reply markup are exactly the same "
    "as a current content and reply markup of the message"
)


class BotMethods:
    """Carries out calls; `table` has the methods by their name in lower case."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._polls = count(1)
        self.table: Mapping[str, Callable[[Call], Any]] = {
            "getme": lambda _: self._world.bot,
            "getmycommands": lambda _: self._world.commands,
            "setmycommands": self._set_commands,
            "getfile": self._get_file,
            "getchat": lambda call: self.chat(call).shown | {"accent_color_id": 0},
            "getbusinessconnection": self._business_connection,
            "sendmessage": self._send_message,
            "sendmessagedraft": self._send_draft,
            "sendphoto": lambda call: self._send_file(call, "photo"),
            "senddocument": lambda call: self._send_file(call, "document"),
            "sendvoice": lambda call: self._send_file(call, "voice"),
            "sendaudio": lambda call: self._send_file(call, "audio"),
            "sendvideo": lambda call: self._send_file(call, "video"),
            "sendanimation": lambda call: self._send_file(call, "animation"),
            "sendsticker": lambda call: self._send_file(call, "sticker"),
            "sendmediagroup": self._send_album,
            "sendpoll": self._send_poll,
            "sendchataction": self._send_action,
            "editmessagetext": self._edit_text,
            "editmessagecaption": self._edit_caption,
            "editmessagereplymarkup": self._edit_markup,
            "deletemessage": self._delete,
            "deletebusinessmessages": self._delete_business,
            "answercallbackquery": self._answer_press,
            "setmessagereaction": self._react,
            "createforumtopic": self._create_topic,
            "closeforumtopic": self._close_topic,
        }

    def chat(self, call: Call) -> Chat:
        """Return the chat of a call.

        Raises:
            RefusalError: There is none, or the bot may not write there.
        """
        chat = self._world.chat(call.fields.get("chat_id"))
        if chat.migrated_to is not None:
            raise RefusalError(
                400,
                "Bad Request: group chat was upgraded to a supergroup chat",
                migrate_to_chat_id=chat.migrated_to,
            )
        if chat.refusal is not None:
            raise RefusalError(403, chat.refusal)
        connection = call.text("business_connection_id")
        if chat.business != connection:
            raise bad_request("business connection not found" if connection else "chat not found")
        return chat

    def _set_commands(self, call: Call) -> bool:
        self._world.commands = call.value("commands")
        return True

    def _get_file(self, call: Call) -> Json:
        stored = self._world.files.get(call.text("file_id") or "")
        if stored.size > MAX_DOWNLOAD:
            raise bad_request("file is too big")
        return {**stored.reference, "file_path": f"documents/{stored.id}"}

    def _business_connection(self, call: Call) -> Json:
        found = self._world.connections.get(call.text("business_connection_id") or "")
        if found is None:
            raise bad_request("business connection not found")
        return found

    def _send_message(self, call: Call) -> Json:
        chat = self.chat(call)
        text, entities = self._words(call, "text", "entities", MAX_TEXT)
        return self._sent(call, chat, text=text, entities=entities or None)

    def _send_draft(self, call: Call) -> bool:
        chat = self.chat(call)
        if chat.type != "private":
            raise bad_request("drafts can be sent to private chats only")
        number = call.number("draft_id")
        if not number:
            raise bad_request("draft_id must be non-zero")
        self._topic(call, chat)
        text = call.text("text") or ""
        if text:
            text, _ = self._words(call, "text", "entities", MAX_TEXT)
        chat.drafts.setdefault(number, []).append(text)
        self._world.tell("draft", chat, text=text)
        return True

    def _send_file(self, call: Call, kind: str) -> Json:
        chat = self.chat(call)
        stored = self._world.files.sent(call, call.text(kind), kind)
        caption, entities = self._caption(call)
        content = {kind: _shown_file(kind, stored), "caption": caption}
        if kind == "animation":
            content["document"] = _shown_file("document", stored)
        return self._sent(call, chat, **content, caption_entities=entities or None)

    def _send_album(self, call: Call) -> list[Json]:
        chat = self.chat(call)
        media = call.value("media") or []
        if len(media) not in _ALBUM:
            raise bad_request("group send failed: 2 to 10 files are needed")
        if len({_album_class(it["type"]) for it in media}) > 1:
            raise bad_request("group send failed: documents and audio can't be mixed with others")
        group = f"group-{next(self._polls)}"
        sent = []
        for item in media:
            kind, caption = item["type"], item.get("caption")
            entities: list[Json] = []
            if caption:
                caption, entities = checked(
                    caption, item.get("caption_entities") or [], MAX_CAPTION
                )
            stored = self._world.files.sent(call, item["media"], item["media"])
            content = {kind: _shown_file(kind, stored), "caption": caption or None}
            message = self._sent(
                call, chat, **content, caption_entities=entities or None, media_group_id=group
            )
            sent.append(message)
        return sent

    def _send_poll(self, call: Call) -> Json:
        chat = self.chat(call)
        options = [it if isinstance(it, str) else it["text"] for it in call.value("options")]
        poll = poll_of(f"bot-poll-{next(self._polls)}", call.text("question") or "", options)
        return self._sent(call, chat, poll=poll)

    def _send_action(self, call: Call) -> bool:
        chat = self.chat(call)
        chat.actions.append((call.text("action") or "", self._topic(call, chat)))
        self._world.tell("action", chat, action=call.text("action"))
        return True

    def _edit_text(self, call: Call) -> Json:
        chat, message = self._own_message(call, "edit")
        if "text" not in message:
            raise bad_request("there is no text in the message to edit")
        text, entities = self._words(call, "text", "entities", MAX_TEXT)
        return self._edited(call, chat, message, text=text, entities=entities or None)

    def _edit_caption(self, call: Call) -> Json:
        chat, message = self._own_message(call, "edit")
        if "text" in message:
            raise bad_request("there is no caption in the message to edit")
        caption, entities = self._caption(call)
        return self._edited(call, chat, message, caption=caption, caption_entities=entities or None)

    def _edit_markup(self, call: Call) -> Json:
        chat, message = self._own_message(call, "edit")
        return self._edited(call, chat, message)

    def _edited(self, call: Call, chat: Chat, message: Json, **content: Any) -> Json:  # noqa: ANN401
        content["reply_markup"] = _keyboard(call)
        if all(message.get(name) == value for name, value in content.items()):
            raise bad_request(_NOT_MODIFIED)
        for name, value in content.items():
            if value is None:
                message.pop(name, None)
            else:
                message[name] = value
        message["edit_date"] = int(time())
        if "text" in content or "caption" in content:
            chat.texts.append(content.get("text", content.get("caption")))
        self._world.tell("edited", chat, message=plain(message))
        return plain(message)

    def _delete(self, call: Call) -> bool:
        chat, message = self._own_message(call, "delete")
        del chat.messages[message["message_id"]]
        self._world.tell("deleted", chat, message_id=message["message_id"])
        return True

    def _delete_business(self, call: Call) -> bool:
        connection = call.text("business_connection_id")
        for chat in self._world.chats.values():
            if chat.business == connection:
                for number in call.value("message_ids"):
                    chat.messages.pop(number, None)
        return True

    def _answer_press(self, call: Call) -> bool:
        query_id = call.text("callback_query_id") or ""
        if query_id not in self._world.presses:
            raise bad_request(
                "query is too old and response timeout expired or query ID is invalid"
            )
        self._world.presses[query_id] = {"text": call.text("text")}
        return True

    def _react(self, call: Call) -> bool:
        chat = self.chat(call)
        message = chat.messages.get(call.number("message_id") or 0)
        if message is None:
            raise bad_request("message to react not found")
        message.setdefault("_reactions", {})[self._world.bot["id"]] = call.value("reaction") or []
        return True

    def _create_topic(self, call: Call) -> Json:
        chat = self.chat(call)
        if not chat.is_forum:
            raise bad_request("the chat is not a forum")
        name = call.text("name") or ""
        message = self._world.new_message(
            chat,
            self._world.bot,
            forum_topic_created={"name": name, "icon_color": 7322096},
            is_topic_message=True,
        )
        message["message_thread_id"] = message["message_id"]
        chat.topics[message["message_id"]] = name
        return {"message_thread_id": message["message_id"], "name": name, "icon_color": 7322096}

    def _close_topic(self, call: Call) -> bool:
        self.chat(call).closed_topics.add(call.number("message_thread_id") or 0)
        return True

    def _own_message(self, call: Call, verb: str) -> tuple[Chat, Json]:
        chat = self.chat(call)
        message = chat.messages.get(call.number("message_id") or 0)
        if message is None:
            raise bad_request(f"message to {verb} not found")
        if message["message_id"] not in chat.own:
            raise bad_request(f"message can't be {verb.removesuffix('e')}ed")
        return chat, message

    def _words(self, call: Call, name: str, entities: str, limit: int) -> tuple[str, list[Json]]:
        """Return a text and its entities, those that Telegram finds included."""
        text = call.text(name) or ""
        given = call.value(entities) or []
        mode = call.text("parse_mode")
        if mode is not None:
            if mode.upper() != "HTML":
                raise bad_request(f"unsupported parse_mode {mode}: the emulator has HTML")
            text, given = parsed_html(text)
        if not text:
            raise bad_request("message text is empty")
        text, kept = checked(text, given, limit)
        return text, [*kept, *(it for it in found_entities(text) if it not in kept)]

    def _caption(self, call: Call) -> tuple[str | None, list[Json]]:
        if not call.text("caption"):
            return None, []
        return self._words(call, "caption", "caption_entities", MAX_CAPTION)

    def _topic(self, call: Call, chat: Chat) -> int | None:
        topic = call.number("message_thread_id")
        if topic is not None and topic not in chat.topics:
            raise bad_request("message thread not found")
        if topic in chat.closed_topics:
            raise bad_request("TOPIC_CLOSED")
        return topic

    def _sent(self, call: Call, chat: Chat, **content: Any) -> Json:  # noqa: ANN401 - of a message
        topic = self._topic(call, chat)
        if topic is not None:
            content |= {"message_thread_id": topic, "is_topic_message": True}
        reply = call.value("reply_parameters") or {}
        replied = call.number("reply_to_message_id") or reply.get("message_id")
        if replied is not None:
            found = chat.messages.get(int(replied))
            if found is not None:
                content["reply_to_message"] = {
                    name: value
                    for name, value in plain(found).items()
                    if name != "reply_to_message"
                }
            elif not reply.get("allow_sending_without_reply"):
                raise bad_request("message to be replied not found")
        content["reply_markup"] = _keyboard(call)
        author: Json | None = self._world.bot
        if chat.type == "channel":
            author, content["sender_chat"] = None, chat.shown
        message = self._world.new_message(chat, author, **content)
        chat.own.add(message["message_id"])
        chat.texts.append(message.get("text", message.get("caption")))
        chat.drafts.clear()
        self._world.tell("sent", chat, message=plain(message))
        return plain(message)

    def note_call(self, call: Call) -> int | None:
        """Record a call for a chat, and return the id of the chat."""
        wanted = call.fields.get("chat_id")
        if wanted is None:
            return None
        chat = self._world.chat(wanted)
        chat.called_at.append(monotonic())
        return chat.id


def _keyboard(call: Call) -> Json | None:
    """Return the buttons under a message.

    Raises:
        RefusalError: A button has no text, or more data than 64 bytes.
    """
    markup = call.value("reply_markup")
    if not markup or "inline_keyboard" not in markup:
        return None
    for row in markup["inline_keyboard"]:
        for button in row:
            if not button.get("text"):
                raise bad_request("can't parse inline keyboard button: text must be non-empty")
            data = button.get("callback_data")
            if data is not None and not 0 < len(data.encode()) <= _MAX_BUTTON:
                raise bad_request("BUTTON_DATA_INVALID")
            if data is None and not button.get("url"):
                raise bad_request("can't parse inline keyboard button: it does nothing")
    found: Json | None = markup if any(markup["inline_keyboard"]) else None
    return found


def _album_class(kind: str) -> str:
    return "picture" if kind in {"photo", "video"} else kind


def _shown_file(kind: str, stored: StoredFile) -> Any:  # noqa: ANN401 - a list for a photo
    """Return a file as a message shows it."""
    shown = stored.reference
    if kind == "photo":
        return [{**shown, "width": 800, "height": 600}]
    if kind == "sticker":
        size = {"width": 512, "height": 512, "is_animated": False, "is_video": False}
        return {**shown, "type": "regular", **size}
    if kind in {"video", "animation"}:
        shown |= {"width": 800, "height": 600}
    if kind != "document":
        shown["duration"] = 3
    return {**shown, "file_name": stored.name, "mime_type": stored.media_type}
