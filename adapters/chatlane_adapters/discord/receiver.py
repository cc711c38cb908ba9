"""Publish the events of the gateway, those of a channel in their order."""

import asyncio
import logging
from collections import defaultdict
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Final

from discord import utils
from pydantic import ValidationError

from chatlane_adapters.discord.catch_up import CatchUp, first_missing
from chatlane_adapters.discord.channels import Channels, channels_of_guild
from chatlane_adapters.discord.cursor import Cursor
from chatlane_adapters.discord.decode import Decoder
from chatlane_adapters.discord.gateway import Dispatch
from chatlane_adapters.discord.rest import Json, Rest
from chatlane_adapters.discord.settings import DiscordSettings
from chatlane_client import AdapterClient
from chatlane_client.errors import OversizedMessageError, RefusedPublishError
from chatlane_schemas import InboundEvent

_log: Final = logging.getLogger(__name__)

_IN_CHANNELS: Final = frozenset(
    {
        "INTERACTION_CREATE",
        "MESSAGE_CREATE",
        "MESSAGE_DELETE",
        "MESSAGE_DELETE_BULK",
        "MESSAGE_POLL_VOTE_ADD",
        "MESSAGE_POLL_VOTE_REMOVE",
        "MESSAGE_REACTION_ADD",
        "MESSAGE_REACTION_REMOVE",
        "MESSAGE_UPDATE",
    }
)
_DESCRIBES: Final = frozenset(
    {"CHANNEL_CREATE", "CHANNEL_UPDATE", "THREAD_CREATE", "THREAD_UPDATE"}
)


class Receiver:
    """Takes the events of the bot into chatlane.

    Args:
        adapter: Publishes.
        rest: Makes calls.
        cursor: What earlier processes have saved.
        settings: Of the bot.
        bot_id: Id of the bot.
    """

    def __init__(
        self,
        adapter: AdapterClient,
        rest: Rest,
        cursor: Cursor,
        settings: DiscordSettings,
        bot_id: str,
    ) -> None:
        self._adapter = adapter
        self._cursor = cursor
        self._settings = settings
        self._bot_id = bot_id
        self._channels = Channels(rest)
        self._catch_up = CatchUp(rest, self._store_earlier)
        # Guilds whose next description tells what was missed, and the id after which that came.
        self._gaps: dict[str, int] = {}

    async def store(self, batch: Iterable[Dispatch]) -> None:
        """Return once all events of a batch are stored; channels do not wait for each other."""
        waiting: dict[str, list[Dispatch]] = defaultdict(list)
        for dispatch in batch:
            if dispatch.name in _IN_CHANNELS:
                waiting[dispatch.data.get("channel_id", "")].append(dispatch)
            else:
                await self._store_channels(waiting)
                await self._note(dispatch.name, dispatch.data)
        await self._store_channels(waiting)

    async def _store_channels(self, waiting: dict[str, list[Dispatch]]) -> None:
        async with asyncio.TaskGroup() as tasks:
            for dispatches in waiting.values():
                tasks.create_task(self._store_in_order(dispatches))
        waiting.clear()

    async def _store_in_order(self, dispatches: list[Dispatch]) -> None:
        for name, data, place in dispatches:
            # The same when the gateway repeats the event: reactions have no id.
            key = f"{place.session}:{place.sequence}"
            try:
                chat = await self._channels.find(data)
                events = list(self._decoder().events(name, data, chat, key))
            except (KeyError, TypeError, ValueError, ValidationError) as exc:
                about = {"kind": name, "error": type(exc).__name__}
                _log.error("event_not_understood", extra=about)
                continue
            if chat.kind == "dm" and chat.id is not None:
                self._cursor.note_dm(chat.id)
            for event in events:
                await self._publish(event)
            if name == "MESSAGE_CREATE":
                self._cursor.note_message(int(data["id"]))

    async def _store_earlier(self, channel: Json, message: Json) -> None:
        """Store a message that no session told of."""
        place = {"channel_id": channel["id"], "guild_id": channel.get("guild_id")}
        chat = await self._channels.find(place)
        for event in self._decoder().message(message, chat):
            await self._publish(event)

    async def _publish(self, event: InboundEvent) -> None:
        try:
            await self._adapter.publish(event, waits_for_room=True)
        except (OversizedMessageError, RefusedPublishError) as exc:
            _log.error("event_refused", extra={"error": type(exc).__name__})

    def _decoder(self) -> Decoder:
        return Decoder(
            self._adapter.event,
            self._bot_id,
            frozenset(self._cursor.roles),
            self._settings.unmentioned,
        )

    async def _note(self, name: str, data: Json) -> None:
        """Take in what an event says of guilds and channels."""
        match name:
            case "READY":
                await self._begin_session(data)
            case "GUILD_CREATE":
                await self._note_guild(data)
            case "GUILD_DELETE" if data.get("unavailable"):
                self._gaps[data["id"]] = self._first_missing()
            case name if name in _DESCRIBES:
                self._channels.note(data)
            case "THREAD_LIST_SYNC":
                for thread in data["threads"]:
                    self._channels.note(thread)
            case "CHANNEL_DELETE" | "THREAD_DELETE":
                self._channels.forget(data["id"])
            case _:
                pass

    async def _begin_session(self, ready: Json) -> None:
        """Catch up with direct chats, and with guilds once they are described."""
        if not self._cursor.newest:
            # The first session of this bot begins with what comes next.
            self._cursor.note_message(utils.time_snowflake(datetime.now(UTC)))
            return
        after = self._first_missing()
        self._gaps = {it["id"]: after for it in ready["guilds"]}
        await self._catch_up.run(({"id": it} for it in self._cursor.dms), after)

    async def _note_guild(self, guild: Json) -> None:
        for role in guild.get("roles") or ():
            if (role.get("tags") or {}).get("bot_id") == self._bot_id:
                self._cursor.note_role(role["id"])
        channels = list(channels_of_guild(guild))
        for channel in channels:
            self._channels.note(channel)
        after = self._gaps.pop(guild["id"], None)
        if after is not None:
            await self._catch_up.run(channels, after)

    def _first_missing(self) -> int:
        return first_missing(self._cursor.newest, self._settings.catch_up_within)
