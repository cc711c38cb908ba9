"""A real homeserver of Matrix as a scene."""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from time import monotonic
from typing import Any, ClassVar, Final

from typing_extensions import override

from chatlane_devkit.conform.scenes.scene import Ability, Scene
from chatlane_devkit.platforms.matrix.gate import HomeserverGate
from chatlane_devkit.platforms.matrix.homeserver import Account, open_homeserver
from chatlane_devkit.platforms.matrix.person import Person, open_person, person_of, shown_messages
from chatlane_servers.binaries import server_directory

_WAIT_SECONDS: Final = 20
_TIMELINE: Final = '{"room":{"timeline":{"limit":500}},"presence":{"types":[]}}'


class MatrixScene(Scene):
    """An account of Matrix: direct rooms, and threads in them.

    A person reads the rooms from the homeserver itself. The adapter reaches it through a gate.

    Args:
        gate: On the way of the adapter.
        bot: The account of the adapter.
        writer: Opens rooms and writes in them.
        joiner: Acts with the account of the adapter, so that its rooms are open at once.
    """

    platform: ClassVar[str] = "matrix"
    is_idempotent: ClassVar[bool] = True
    # An event has at most 65,536 bytes, with its HTML and what the server adds.
    long_words: ClassVar[int] = 12_000
    lacks: ClassVar[Mapping[Ability, str]] = {
        Ability.ALBUMS: "a message of Matrix has one file; there are no albums",
        Ability.CHAT_LIMITS: "a homeserver counts the events of an account, not those of a room",
    }

    def __init__(self, gate: HomeserverGate, bot: Account, writer: Person, joiner: Person) -> None:
        self._gate = gate
        self._bot = bot
        self._writer = writer
        self._joiner = joiner
        self._events: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        self.settings = f'own_ids = ["{bot.user_id}"]\n'

    @override
    def variables(self, nats_url: str, account: str) -> dict[str, str]:
        return {
            "CHATLANE_ADAPTER_NATS_URL": nats_url,
            "CHATLANE_ADAPTER_ACCOUNT": account,
            "CHATLANE_ADAPTER_HOMESERVER": self._gate.url,
            "CHATLANE_ADAPTER_ACCESS_TOKEN": self._bot.token,
        }

    @property
    @override
    def has_adapter(self) -> bool:
        return self._gate.syncs > 0

    @override
    async def new_chat(self) -> str:
        room_id = await self._writer.open_room(self._bot.user_id, is_direct=True)
        await self._joiner.join(room_id)
        return room_id

    @override
    async def new_threads(self) -> tuple[str, str, str]:
        room_id = await self.new_chat()
        roots = [await self._writer.say(room_id, f"topic {name}") for name in ("one", "two")]
        return room_id, roots[0], roots[1]

    @override
    async def write(self, chat: str, text: str, thread: str | None = None) -> str:
        if thread is None:
            return await self._writer.say(chat, text)
        relation = {"rel_type": "m.thread", "event_id": thread, "is_falling_back": True}
        relation["m.in_reply_to"] = {"event_id": thread}
        return await self._writer.say(chat, text, **{"m.relates_to": relation})

    @override
    def shown(self, chat: str, thread: str | None = None) -> list[str]:
        return [
            message["body"]
            for message in shown_messages(self._events[chat], self._bot.user_id)
            if thread is None or message.get("m.relates_to", {}).get("event_id") == thread
        ]

    @override
    def calls(self, chat: str) -> int:
        return self._gate.sends[chat]

    @override
    def limit(self, chat: str, seconds: float) -> None:
        self._gate.limits[chat] = monotonic() + seconds

    @override
    def block(self, chat: str, *, is_blocked: bool) -> None:
        if is_blocked:
            self._gate.forbidden.add(chat)
        else:
            self._gate.forbidden.discard(chat)

    @override
    async def rewrite(self, chat: str, message: str, text: str) -> None:
        await self._writer.edit(chat, message, text)

    @override
    async def remove(self, chat: str, message: str) -> None:
        await self._writer.redact(chat, message)

    @override
    async def react(self, chat: str, message: str) -> None:
        await self._writer.react(chat, message, "🎉")

    @override
    async def write_twice(self, chat: str, text: str) -> None:
        self._gate.repeats += 1
        await self.write(chat, text)

    @override
    def lose_answers(self, chat: str) -> None:
        self._gate.unanswered.add(chat)

    @override
    def restore_answers(self, chat: str) -> None:
        self._gate.answer_again(chat)

    async def keep_reading(self) -> None:
        """Read what the rooms of the writer show, until cancelled."""
        since: str | None = None
        while True:
            response = await self._writer.call(
                "GET", "sync", None, since=since, timeout=1000 * _WAIT_SECONDS, filter=_TIMELINE
            )
            since = response["next_batch"]
            for room_id, room in response.get("rooms", {}).get("join", {}).items():
                self._events[room_id] += room["timeline"]["events"]


@asynccontextmanager
async def open_matrix_scene() -> AsyncIterator[MatrixScene]:
    """Run a homeserver for the length of the block."""
    with server_directory() as directory:
        async with (
            open_homeserver(directory / "homeserver") as homeserver,
            open_person(homeserver, "ann") as writer,
        ):
            gate, bot = HomeserverGate(homeserver.url), await homeserver.register("bot")
            async with gate.opened(), person_of(homeserver, bot) as joiner:
                scene = MatrixScene(gate, bot, writer, joiner)
                reading = asyncio.create_task(scene.keep_reading())
                try:
                    yield scene
                finally:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
