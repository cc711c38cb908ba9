"""Act as people on the emulated platform: write, edit, react, press, block, upgrade groups."""

from itertools import count
from time import time
from typing import Any, Final

from chatlane_devkit.platforms.telegram.chats import Chat, Person, World, text_or_caption
from chatlane_devkit.platforms.telegram.entities import commands, found_entities, text_of
from chatlane_devkit.platforms.telegram.wire import Json, Upload, bad_request

_ANONYMOUS: Final[Json] = {
    "id": 1087968824,
    "is_bot": True,
    "first_name": "Group",
    "username": "GroupAnonymousBot",
}
_KICKED: Final = "Forbidden: bot was kicked from the {} chat"
_PICTURE: Final = Upload("photo.jpg", "image/jpeg", b"\xff\xd8\xff\xe0 picture")
_SOUND: Final = Upload("voice.oga", "audio/ogg", b"OggS sound")
_STICKER: Final = Upload("sticker.webp", "image/webp", b"RIFF sticker")


class People:
    """Acts for test persons; chats, people and messages are named by their ids."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._ids = count(1)

    def person(self, name: str, username: str | None = None) -> Person:
        """Return a person; they exist from now on."""
        person = Person(1_000_000 + next(self._ids), name, username)
        self._world.people[person.id] = person
        return person

    def private_chat(self, name: str, *, has_topics: bool = False) -> Chat:
        """Return the private chat of the bot with another person; both have the same id."""
        person = self.person(name)
        return self._world.add_chat("private", name, id=person.id, is_forum=has_topics)

    def group(self, title: str, *, kind: str = "supergroup", is_forum: bool = False) -> Chat:
        """Return another group, or supergroup."""
        return self._world.add_chat(kind, title, is_forum=is_forum)

    def channel(self, title: str, username: str | None = None) -> Chat:
        """Return another channel."""
        return self._world.add_chat("channel", title, username=username)

    def write(self, chat_id: int, text: str, person_id: int | None = None, **more: Any) -> Json:  # noqa: ANN401
        """Write a message.

        Args:
            chat_id: The chat.
            text: What is written; commands, mentions and addresses in it become entities.
            person_id: Who writes; in a private chat its person.
            more: `reply_to` and `topic` (ids), `entities`, `is_anonymous`, or any field of a message.
        """
        entities = [*found_entities(text), *more.pop("entities", ())]
        return self.post(chat_id, person_id, text=text, entities=entities or None, **more)

    def post(
        self,
        chat_id: int,
        person_id: int | None = None,
        *,
        reply_to: int | None = None,
        topic: int | None = None,
        is_anonymous: bool = False,
        **content: Any,  # noqa: ANN401 - of a message
    ) -> Json:
        """Write a message with any content, in the form of the Bot API."""
        chat = self._world.chats[chat_id]
        if reply_to is not None:
            replied = chat.messages[reply_to]
            content["reply_to_message"] = {
                name: value for name, value in replied.items() if name != "reply_to_message"
            }
        if topic is not None:
            if topic not in chat.topics:
                raise bad_request("message thread not found")
            content |= {"message_thread_id": topic, "is_topic_message": True}
        author: Json | None = None
        if is_anonymous or chat.type == "channel":
            author = _ANONYMOUS if is_anonymous else None
            content["sender_chat"] = chat.shown
        else:
            author = self._author(chat, person_id)
        message = self._world.new_message(chat, author, **content)
        chat.refusal = None if chat.type == "private" else chat.refusal
        self._tell(chat, "message", message)
        return message

    def photo(self, chat_id: int, caption: str | None = None, **more: Any) -> Json:  # noqa: ANN401
        """Send a photo."""
        return self.post(chat_id, photo=self._photo(), caption=caption, **more)

    def album(
        self,
        chat_id: int,
        number: int,
        caption: str | None = None,
        **more: Any,  # noqa: ANN401 - of a message
    ) -> list[Json]:
        """Send photos that are shown as one message; the first has the caption."""
        group = f"album-{next(self._ids)}"
        return [
            self.photo(chat_id, None if place else caption, media_group_id=group, **more)
            for place in range(number)
        ]

    def voice(self, chat_id: int, seconds: int = 3, **more: Any) -> Json:  # noqa: ANN401
        """Send a voice message."""
        file = self._world.files.add(_SOUND).reference
        voice = {**file, "duration": seconds, "mime_type": "audio/ogg"}
        return self.post(chat_id, voice=voice, **more)

    def document(
        self,
        chat_id: int,
        name: str = "plan.txt",
        media_type: str = "text/plain",
        text: str = "the plan",
        size: int | None = None,
        **more: Any,  # noqa: ANN401 - of a message
    ) -> Json:
        """Send a document; `size` claims another size than it has."""
        stored = self._world.files.add(Upload(name, media_type, text.encode()), size=size)
        document = {**stored.reference, "file_name": name, "mime_type": media_type}
        return self.post(chat_id, document=document, **more)

    def sticker(self, chat_id: int, emoji: str = "👍", **more: Any) -> Json:  # noqa: ANN401
        """Send a sticker."""
        sticker = {
            **self._world.files.add(_STICKER).reference,
            "type": "regular",
            "width": 512,
            "height": 512,
            "is_animated": False,
            "is_video": False,
            "emoji": emoji,
            "set_name": "Test",
        }
        return self.post(chat_id, sticker=sticker, **more)

    def location(self, chat_id: int, latitude: float, longitude: float, **more: Any) -> Json:  # noqa: ANN401
        """Send a place."""
        return self.post(chat_id, location={"latitude": latitude, "longitude": longitude}, **more)

    def contact(self, chat_id: int, phone: str, name: str, **more: Any) -> Json:  # noqa: ANN401
        """Send a contact."""
        return self.post(chat_id, contact={"phone_number": phone, "first_name": name}, **more)

    def poll(self, chat_id: int, question: str, options: list[str], **more: Any) -> Json:  # noqa: ANN401
        """Ask a poll."""
        return self.post(
            chat_id, poll=poll_of(f"poll-{next(self._ids)}", question, options), **more
        )

    def edit(self, chat_id: int, message_id: int, text: str) -> Json:
        """Change the words of a message."""
        chat = self._world.chats[chat_id]
        message = chat.messages[message_id]
        is_caption = "text" not in message
        message["caption" if is_caption else "text"] = text
        entities = "caption_entities" if is_caption else "entities"
        message.pop(entities, None)
        if found := found_entities(text):
            message[entities] = found
        message["edit_date"] = int(time())
        self._tell(chat, "edited_message", message)
        return message

    def react(
        self, chat_id: int, message_id: int, emojis: list[str], person_id: int | None = None
    ) -> None:
        """Set the reactions of a person to a message; an empty list takes them back."""
        chat = self._world.chats[chat_id]
        author = self._author(chat, person_id)
        of_people = chat.messages[message_id].setdefault("_reactions", {})
        old = of_people.get(author["id"], [])
        new = [{"type": "emoji", "emoji": emoji} for emoji in emojis]
        of_people[author["id"]] = new
        reaction = {"chat": chat.shown, "message_id": message_id, "user": author}
        reaction |= {"date": int(time()), "old_reaction": old, "new_reaction": new}
        self._world.updates.add("message_reaction", reaction)

    def press(self, chat_id: int, message_id: int, label: str, person_id: int | None = None) -> str:
        """Press a button under a message, and return the id of the callback query.

        Raises:
            LookupError: There is no such button.
        """
        chat = self._world.chats[chat_id]
        message = chat.messages[message_id]
        rows = message.get("reply_markup", {}).get("inline_keyboard", [])
        found = [it for row in rows for it in row if it["text"] == label and "callback_data" in it]
        if not found:
            raise LookupError(label)
        query_id = f"query-{next(self._ids)}"
        self._world.presses[query_id] = None
        query = {"id": query_id, "from": self._author(chat, person_id), "message": plain(message)}
        query |= {"chat_instance": str(chat_id), "data": found[0]["callback_data"]}
        self._world.updates.add("callback_query", query)
        return query_id

    def stop_draft(self, chat_id: int, draft_id: int) -> None:
        """Press the button that stops a draft."""
        stop = {"chat": self._world.chats[chat_id].shown, "draft_id": draft_id}
        self._world.updates.add("stopped_message_generation", stop)

    def vote(
        self, chat_id: int, message_id: int, options: list[int], person_id: int | None = None
    ) -> None:
        """Answer a poll of the bot; the options by their places."""
        chat = self._world.chats[chat_id]
        poll = chat.messages[message_id]["poll"]
        answer: Json = {"poll_id": poll["id"], "user": self._author(chat, person_id)}
        answer |= {"option_ids": options, "option_persistent_ids": list(map(str, options))}
        self._world.updates.add("poll_answer", answer)

    def open_topic(self, chat_id: int, name: str, person_id: int | None = None) -> int:
        """Open a topic of a forum, and return its id."""
        chat = self._world.chats[chat_id]
        created = {"name": name, "icon_color": 7322096}
        author = self._author(chat, person_id)
        message = self._world.new_message(
            chat, author, forum_topic_created=created, is_topic_message=True
        )
        topic: int = message["message_id"]
        message["message_thread_id"] = topic
        chat.topics[topic] = name
        self._tell(chat, "message", message)
        return topic

    def delete_topic(self, chat_id: int, topic: int) -> None:
        """Delete a topic with its messages; a bot gets no update."""
        chat = self._world.chats[chat_id]
        del chat.topics[topic]
        for number, message in list(chat.messages.items()):
            if message.get("message_thread_id") == topic:
                del chat.messages[number]

    def delete(self, chat_id: int, message_id: int) -> None:
        """Delete a message; a bot gets an update in a business chat only."""
        chat = self._world.chats[chat_id]
        del chat.messages[message_id]
        if chat.business is not None:
            deletion = {"business_connection_id": chat.business, "chat": chat.shown}
            self._world.updates.add(
                "deleted_business_messages", {**deletion, "message_ids": [message_id]}
            )

    def block(self, chat_id: int, *, is_deactivated: bool = False) -> None:
        """Let the person of a private chat block the bot, or delete their account."""
        chat = self._world.chats[chat_id]
        chat.refusal = "Forbidden: bot was blocked by the user"
        if is_deactivated:
            chat.refusal = "Forbidden: user is deactivated"
        else:
            self._tell_membership(chat, "kicked", chat_id)

    def remove_bot(self, chat_id: int, person_id: int) -> None:
        """Remove the bot from a group."""
        chat = self._world.chats[chat_id]
        chat.refusal = _KICKED.format(chat.type)
        self._tell_membership(chat, "kicked", person_id)

    def migrate(self, chat_id: int) -> Chat:
        """Upgrade a group to a supergroup, and return that."""
        old = self._world.chats[chat_id]
        new = self._world.add_chat("supergroup", old.title)
        old.migrated_to = new.id
        message = self._world.new_message(old, _ANONYMOUS, migrate_to_chat_id=new.id)
        self._tell(old, "message", message)
        message = self._world.new_message(new, _ANONYMOUS, migrate_from_chat_id=old.id)
        self._tell(new, "message", message)
        return new

    def connect_business(self, owner_id: int) -> str:
        """Connect the bot to the account of a person, and return the id of the connection."""
        connection_id = f"business-{next(self._ids)}"
        connection = {
            "id": connection_id,
            "user": self._world.people[owner_id].user,
            "user_chat_id": owner_id,
            "date": int(time()),
            "is_enabled": True,
            "rights": {"can_reply": True},
        }
        self._world.connections[connection_id] = connection
        self._world.updates.add("business_connection", connection)
        return connection_id

    def business_chat(self, connection_id: str, name: str) -> Chat:
        """Return a chat of the owner of a business connection with another customer."""
        customer = self.person(name)
        return self._world.add_chat("private", name, id=customer.id, business=connection_id)

    def service(self, chat_id: int, person_id: int, **content: Any) -> Json:  # noqa: ANN401
        """Let a chat show a service message, such as `new_chat_title="..."`."""
        return self.post(chat_id, person_id, **content)

    def _author(self, chat: Chat, person_id: int | None) -> Json:
        return self._world.people[chat.id if person_id is None else person_id].user

    def _photo(self) -> list[Json]:
        files = self._world.files
        return [
            {**files.add(_PICTURE).reference, "width": width, "height": width}
            for width in (90, 800)
        ]

    def _tell_membership(self, chat: Chat, status: str, person_id: int) -> None:
        change: Json = {
            "chat": chat.shown,
            "from": self._world.people[person_id].user,
            "date": int(time()),
            "old_chat_member": {"status": "member", "user": self._world.bot},
            "new_chat_member": {"status": status, "user": self._world.bot, "until_date": 0},
        }
        self._world.updates.add("my_chat_member", change)

    def _tell(self, chat: Chat, kind: str, message: Json) -> None:
        """Add the update of a message, if the bot may see it."""
        self._world.tell("written", chat, message=plain(message))
        if chat.type in {"group", "supergroup"} and not self._sees(message):
            return
        if chat.business is not None:
            kind = kind.replace("message", "business_message")
        elif chat.type == "channel":
            kind = kind.replace("message", "channel_post")
        self._world.updates.add(kind, plain(message))

    def _sees(self, message: Json) -> bool:
        """Return whether a bot with privacy mode gets a message of a group."""
        bot = self._world.bot
        text = text_or_caption(message)
        if bot["can_read_all_group_messages"] or (text is None and not _has_file(message)):
            return True
        replied = message.get("reply_to_message", {})
        if replied.get("from", {}).get("id") == bot["id"]:
            return True
        entities = message.get("entities") or message.get("caption_entities") or []
        name = f"@{bot['username']}".lower()
        for command in commands(text or "", entities):
            if "@" not in command or command.lower().endswith(name):
                return True
        return any(
            it["type"] == "mention" and text_of(text or "", it).lower() == name for it in entities
        )


def plain(message: Json) -> Json:
    """Return a copy of a message without what only the emulator knows."""
    return {name: value for name, value in message.items() if not name.startswith("_")}


def poll_of(poll_id: str, question: str, options: list[str]) -> Json:
    """Return a poll without an answer."""
    return {
        "id": poll_id,
        "question": question,
        "options": [
            {"persistent_id": str(place), "text": option, "voter_count": 0}
            for place, option in enumerate(options)
        ],
        "total_voter_count": 0,
        "is_closed": False,
        "is_anonymous": False,
        "type": "regular",
        "allows_multiple_answers": False,
        "allows_revoting": True,
        "members_only": False,
    }


def _has_file(message: Json) -> bool:
    return not message.keys().isdisjoint({"photo", "voice", "document", "sticker", "location"})
