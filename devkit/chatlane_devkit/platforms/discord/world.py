"""Keep the state of an emulated Discord, and act as its people."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from secrets import token_hex
from time import monotonic, time
from typing import Any, Final, TypeAlias

Json: TypeAlias = dict[str, Any]

DM: Final = 1
TEXT: Final = 0
FORUM: Final = 15
PUBLIC_THREAD: Final = 11

LOADING: Final = 1 << 7
_EPOCH_MS: Final = 1_420_070_400_000
_MOST_MESSAGES: Final = 100
_BOT_NAME: Final = "chatlane"


@dataclass(slots=True)
class Person:
    """A person, or a bot."""

    id: str
    name: str
    is_bot: bool = False

    def as_user(self) -> Json:
        """Return the user object of the API."""
        return {
            "id": self.id,
            "username": self.name.lower(),
            "global_name": self.name,
            "discriminator": "0",
            "avatar": None,
            "bot": self.is_bot,
            "public_flags": 0,
        }

    def as_member(self) -> Json:
        """Return the member object of the API, without its user."""
        return {
            "nick": None,
            "roles": [],
            "joined_at": "2026-01-01T00:00:00+00:00",
            "deaf": False,
            "mute": False,
            "flags": 0,
            "pending": False,
        }


@dataclass(slots=True)
class Channel:
    """A channel, a thread or the direct messages of a person.

    Attributes:
        kind: Type number of the API.
        messages: Its messages by id, in order, as objects of the API.
        texts: Every text that a message of the bot ever had, in order.
        called_at: Monotonic times of the calls that send or edit, refused ones included.
        typing: How often the bot showed typing.
        refusal: Status and error code that calls get, if any.
        limited_until: Monotonic time until which calls are refused with 429.
        answers: Set while calls that take effect are answered.
        stops_after: Number of texts after which calls take effect and are not answered.
    """

    id: str
    name: str
    kind: int = TEXT
    guild_id: str | None = None
    parent_id: str | None = None
    people: tuple[Person, ...] = ()
    messages: dict[str, Json] = field(default_factory=dict)
    texts: list[str] = field(default_factory=list)
    called_at: list[float] = field(default_factory=list)
    typing: int = 0
    refusal: tuple[int, int] | None = None
    limited_until: float = 0.0
    limited_calls: int = 0
    answers: asyncio.Event = field(default_factory=asyncio.Event)
    stops_after: int | None = None
    nonces: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.answers.set()

    @property
    def is_thread(self) -> bool:
        """Return whether it is a thread of another channel."""
        return self.kind == PUBLIC_THREAD

    @property
    def said(self) -> list[str]:
        """Return the texts of the bot that the channel shows, in order."""
        return [it["content"] for it in self.messages.values() if it["author"]["bot"]]

    def as_channel(self) -> Json:
        """Return the channel object of the API."""
        fields: Json = {
            "id": self.id,
            "type": self.kind,
            "flags": 0,
            "last_message_id": next(reversed(self.messages), None),
        }
        if self.kind == DM:
            return {**fields, "recipients": [it.as_user() for it in self.people]}
        fields |= {
            "guild_id": self.guild_id,
            "name": self.name,
            "parent_id": self.parent_id,
            "topic": None,
            "position": 0,
            "nsfw": False,
            "rate_limit_per_user": 0,
            "permission_overwrites": [],
            "available_tags": [],
        }
        if self.is_thread:
            fields |= {
                "owner_id": self.people[0].id if self.people else "1",
                "message_count": len(self.messages),
                "total_message_sent": len(self.messages),
                "member_count": 1,
                "thread_metadata": {
                    "archived": False,
                    "auto_archive_duration": 1440,
                    "archive_timestamp": "2026-01-01T00:00:00+00:00",
                    "locked": False,
                },
            }
        return fields


@dataclass(slots=True)
class Interaction:
    """A slash command or a press that a person made.

    Attributes:
        callback: What the bot acknowledged it with; None until then.
        acknowledged_after: Seconds until it did.
        original: Message that the bot's answer fills, once it deferred.
    """

    id: str
    token: str
    channel: Channel
    began: float = field(default_factory=monotonic)
    callback: int | None = None
    acknowledged_after: float | None = None
    original: str | None = None


class World:
    """Guilds, channels, people and messages of an emulated Discord.

    Args:
        tell: Called with the name and the data of each event for the bot.
    """

    def __init__(self, tell: Callable[[str, Json], None]) -> None:
        self._tell = tell
        self._numbers = count(1)
        self.bot = Person(self.new_id(), _BOT_NAME, is_bot=True)
        self.application_id = self.new_id()
        self.channels: dict[str, Channel] = {}
        self.guild_ids: list[str] = []
        self.interactions: dict[str, Interaction] = {}
        self.commands: list[Json] = []
        self._people: dict[str, Person] = {self.bot.id: self.bot}

    def new_id(self) -> str:
        """Return a snowflake, greater than all before."""
        return str((int(time() * 1000) - _EPOCH_MS << 22) + next(self._numbers) % (1 << 22))

    # People and places.

    def person(self, name: str, *, is_bot: bool = False) -> Person:
        """Return another person."""
        person = Person(self.new_id(), name, is_bot)
        self._people[person.id] = person
        return person

    def guild(self) -> str:
        """Return the id of another guild; the bot is in it from now on."""
        guild_id = self.new_id()
        self.guild_ids.append(guild_id)
        self._tell("GUILD_CREATE", self.as_guild(guild_id))
        return guild_id

    def channel(self, guild_id: str, name: str, *, kind: int = TEXT) -> Channel:
        """Return another channel of a guild."""
        channel = Channel(self.new_id(), name, kind, guild_id)
        self.channels[channel.id] = channel
        self._tell("CHANNEL_CREATE", channel.as_channel())
        return channel

    def thread(self, parent: Channel, name: str, person: Person) -> Channel:
        """Return another thread of a channel, or another post of a forum."""
        channel = Channel(self.new_id(), name, PUBLIC_THREAD, parent.guild_id, parent.id, (person,))
        self.channels[channel.id] = channel
        self._tell("THREAD_CREATE", {**channel.as_channel(), "newly_created": True})
        return channel

    def dm(self, person: Person) -> Channel:
        """Return the direct messages of a person."""
        for channel in self.channels.values():
            if channel.kind == DM and channel.people == (person,):
                return channel
        channel = Channel(self.new_id(), person.name, DM, people=(person,))
        self.channels[channel.id] = channel
        return channel

    def person_of(self, user_id: str) -> Person:
        """Return a person by id."""
        return self._people[user_id]

    def as_guild(self, guild_id: str) -> Json:
        """Return the guild object that the gateway sends."""
        channels = [it for it in self.channels.values() if it.guild_id == guild_id]
        bot_role = {"id": str(int(guild_id) + 1), "tags": {"bot_id": self.bot.id}}
        role = {"name": "@everyone", "color": 0, "hoist": False, "position": 0, "permissions": "0"}
        role |= {"managed": False, "mentionable": False, "flags": 0}
        role |= {"colors": {"primary_color": 0, "secondary_color": None, "tertiary_color": None}}
        person = next(iter(self._people.values()))
        return {
            "id": guild_id,
            "name": "guild",
            "icon": None,
            "splash": None,
            "discovery_splash": None,
            "owner_id": person.id,
            "region": "",
            "afk_channel_id": None,
            "afk_timeout": 60,
            "verification_level": 0,
            "default_message_notifications": 0,
            "explicit_content_filter": 0,
            "roles": [{**role, "id": guild_id}, {**role, **bot_role, "name": "chatlane"}],
            "emojis": [],
            "stickers": [],
            "features": [],
            "mfa_level": 0,
            "application_id": None,
            "system_channel_id": None,
            "system_channel_flags": 0,
            "rules_channel_id": None,
            "public_updates_channel_id": None,
            "vanity_url_code": None,
            "description": None,
            "banner": None,
            "premium_tier": 0,
            "premium_subscription_count": 0,
            "preferred_locale": "en-US",
            "nsfw_level": 0,
            "premium_progress_bar_enabled": False,
            "safety_alerts_channel_id": None,
            "max_members": 1000,
            "joined_at": "2026-01-01T00:00:00+00:00",
            "large": False,
            "unavailable": False,
            "member_count": len(self._people),
            "members": [{**self.bot.as_member(), "user": self.bot.as_user()}],
            "channels": [it.as_channel() for it in channels if not it.is_thread],
            "threads": [it.as_channel() for it in channels if it.is_thread],
            "presences": [],
            "voice_states": [],
            "stage_instances": [],
            "guild_scheduled_events": [],
            "soundboard_sounds": [],
        }

    # What people do.

    def write(
        self, channel: Channel, person: Person, text: str, *, to_bot: bool = False, **more: object
    ) -> Json:
        """Let a person write a message.

        Args:
            channel: Where.
            person: Who.
            text: What; a mention is written as the API has it.
            to_bot: Whether it begins with a mention of the bot.
            more: Further fields of the message object; `reply_to` is the id of an earlier message.
        """
        text = f"<@{self.bot.id}> {text}" if to_bot else text
        return self.add(channel, person, text, **more)  # type: ignore[arg-type]

    def tell_again(self, channel: Channel, message: Json) -> None:
        """Tell the bot once more of a message; Discord may tell an event several times."""
        author = self.person_of(message["author"]["id"])
        self._tell_about("MESSAGE_CREATE", channel, {**message, **_member(channel, author)})

    def rewrite(self, channel: Channel, message: Json, text: str) -> None:
        """Let the author of a message edit it."""
        self.change(channel, message["id"], {"content": text})

    def remove(self, channel: Channel, message: Json) -> None:
        """Delete a message as a person."""
        del channel.messages[message["id"]]
        self._tell_about("MESSAGE_DELETE", channel, {"id": message["id"]})

    def react(
        self, channel: Channel, message: Json, person: Person, emoji: str, *, removed: bool = False
    ) -> None:
        """Let a person react to a message, or take the reaction back."""
        name = "MESSAGE_REACTION_REMOVE" if removed else "MESSAGE_REACTION_ADD"
        about = {"user_id": person.id, "message_id": message["id"], "type": 0, "burst": False}
        if channel.guild_id and not removed:
            about["member"] = {**person.as_member(), "user": person.as_user()}
        emoji_json = {"id": None, "name": emoji, "animated": False}
        self._tell_about(name, channel, {**about, "emoji": emoji_json})

    def press(self, channel: Channel, message: Json, person: Person, label: str) -> Interaction:
        """Let a person press a button."""
        [button] = [
            it
            for row in message["components"]
            for it in row["components"]
            if it.get("label") == label
        ]
        data = {"component_type": button["type"], "custom_id": button["custom_id"]}
        return self._interact(3, channel, person, data, message=message)

    def slash(
        self, channel: Channel, person: Person, name: str, argument: str | None = None
    ) -> Interaction:
        """Let a person use a slash command that the bot registered."""
        [command] = [it for it in self.commands if it["name"] == name]
        options = []
        if argument is not None:
            option = command["options"][0]
            options = [{"name": option["name"], "type": option["type"], "value": argument}]
        data = {"id": self.new_id(), "name": name, "type": 1, "options": options}
        return self._interact(2, channel, person, data)

    def _interact(
        self, kind: int, channel: Channel, person: Person, data: Json, **more: object
    ) -> Interaction:
        interaction = Interaction(self.new_id(), token_hex(20), channel)
        self.interactions[interaction.token] = interaction
        who: Json = {"user": person.as_user()}
        if channel.guild_id:
            member = {**person.as_member(), **who, "permissions": "0"}
            who = {"member": member, "guild_id": channel.guild_id}
        event = {
            "id": interaction.id,
            "application_id": self.application_id,
            "type": kind,
            "token": interaction.token,
            "version": 1,
            "data": data,
            "channel_id": channel.id,
            "channel": channel.as_channel(),
            "locale": "en-US",
            "entitlements": [],
            "authorizing_integration_owners": {},
            "attachment_size_limit": 10_485_760,
            **who,
            **more,
        }
        self._tell("INTERACTION_CREATE", event)
        return interaction

    # What happens to messages, by people and by the bot.

    def add(
        self,
        channel: Channel,
        author: Person,
        text: str,
        *,
        reply_to: str | None = None,
        **more: object,
    ) -> Json:
        """Add a message to a channel, and tell the bot."""
        message_id = self.new_id()
        answered = channel.messages.get(reply_to or "")
        mentioned = [it for it in self._people.values() if f"<@{it.id}>" in text]
        message: Json = {
            "id": message_id,
            "channel_id": channel.id,
            "author": author.as_user(),
            "content": text,
            "timestamp": datetime.now(UTC).isoformat(),
            "edited_timestamp": None,
            "tts": False,
            "mention_everyone": False,
            "mentions": [it.as_user() for it in mentioned],
            "mention_roles": [],
            "attachments": [],
            "embeds": [],
            "components": [],
            "pinned": False,
            "type": 0 if answered is None else 19,
            "flags": 0,
            **({} if answered is None else _reply(channel, answered)),
            **more,
        }
        channel.messages[message_id] = message
        if author is self.bot:
            channel.texts.append(text)
        self.tell_again(channel, message)
        return message

    def change(self, channel: Channel, message_id: str, fields: Mapping[str, Any]) -> Json:
        """Change a message, and tell the bot."""
        message = channel.messages[message_id]
        message.update(fields)
        mentioned = [it for it in self._people.values() if f"<@{it.id}>" in message["content"]]
        message["mentions"] = [it.as_user() for it in mentioned]
        message["edited_timestamp"] = datetime.now(UTC).isoformat()
        author = self.person_of(message["author"]["id"])
        if author is self.bot:
            channel.texts.append(message["content"])
        self._tell_about("MESSAGE_UPDATE", channel, {**message, **_member(channel, author)})
        return message

    def messages_of(
        self, channel: Channel, *, after: int = 0, limit: int = _MOST_MESSAGES
    ) -> Sequence[Json]:
        """Return the oldest messages after an id, newest first as the API does."""
        found = [it for it in channel.messages.values() if int(it["id"]) > after]
        return found[: min(limit, _MOST_MESSAGES)][::-1]

    def _tell_about(self, name: str, channel: Channel, data: Json) -> None:
        guild = {} if channel.guild_id is None else {"guild_id": channel.guild_id}
        self._tell(name, {**data, **guild, "channel_id": channel.id})


def _member(channel: Channel, author: Person) -> Json:
    return {"member": author.as_member()} if channel.guild_id else {}


def _reply(channel: Channel, answered: Json) -> Json:
    reference = {"type": 0, "message_id": answered["id"], "channel_id": channel.id}
    return {"message_reference": reference, "referenced_message": answered}
