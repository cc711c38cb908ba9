"""The platform of the naive bot: it keeps messages until the bot confirms them, as Telegram does."""

import asyncio
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from time import monotonic
from typing import Any, Final

from chatlane_devkit.demo import naive_bot
from chatlane_devkit.scenario.feed import Publication
from chatlane_servers.conditions import until
from chatlane_servers.programs import Program

_MOST_AT_ONCE: Final = 100
# A supervisor starts the bot again; a killed server is away for about as long.
_AWAY: Final = timedelta(milliseconds=500)
_PATIENCE: Final = timedelta(seconds=30)
# Seconds without a request after which the bot has nothing more to say.
_QUIET: Final = 1.5


@dataclass(frozen=True, slots=True)
class BotOutcome:
    """The result of a run of the naive bot.

    Attributes:
        messages: Different messages that people wrote.
        lost: Messages without an answer.
        doubled: Messages with more than one answer.
        forgotten: Conversations whose earlier messages the bot no longer knew in a later answer.
        kills: How often it was killed.
    """

    messages: int
    lost: int
    doubled: int
    forgotten: int
    kills: int


@dataclass(slots=True)
class BotPlatform:
    """Hands messages to the bot and records its answers.

    Attributes:
        updates: Everything that people wrote, repeats by the platform included.
        answers: Ids of the updates that were answered, in order, each with the number of messages
            that the bot then knew of the conversation.
        kills: How often the bot was killed.
        confirmed: How many updates the bot has confirmed, from the first one on.
    """

    updates: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[int, int]] = field(default_factory=list)
    kills: int = 0
    confirmed: int = 0
    program: Program | None = None
    _keys: list[tuple[str, str]] = field(default_factory=list)
    _originals: dict[tuple[str, str, str], tuple[str, str]] = field(default_factory=dict)
    _envelopes: set[str] = field(default_factory=set)
    _grown: asyncio.Event = field(default_factory=asyncio.Event)
    _last_request_at: float = 0.0

    def write(self, publication: Publication) -> None:
        """Let a person write what the feed has; only messages that must be answered count.

        A repeat of the same envelope is an adapter's repeated publish, which no bot sees.
        """
        is_message = publication.expect in {"accepted", "duplicate"}
        if not is_message or publication.nats_id in self._envelopes:
            return
        self._envelopes.add(publication.nats_id)
        address = publication.address
        place = f"{address.platform}/{address.account}/{address.scope}/{address.chat}"
        chat = f"{place}/{address.thread}/{address.sender}"
        same = address.platform, publication.message_id or publication.nats_id, publication.text
        if publication.expect == "accepted":
            self._originals[same] = place, same[1]
        elif same not in self._originals:
            # A repeat in another form, such as another spelling of an id: it is left out.
            return
        # A chat that moved repeats a message under its new id.
        self._keys.append(self._originals[same])
        self.updates.append({"id": len(self.updates), "chat": chat, "text": publication.text})
        self._grown.set()

    async def kill_bot(self) -> None:
        """Kill the bot with SIGKILL and start it again."""
        if self.program is not None:
            self.kills += 1
            await self.program.kill()
            await asyncio.sleep(_AWAY.total_seconds())
            self.program.start()

    async def until_quiet(self) -> None:
        """Wait until the bot has fetched everything and says nothing more.

        Raises:
            TimeoutError: It did not fetch everything in time.
        """

        async def is_quiet() -> bool:
            has_fetched = self.confirmed >= len(self.updates)
            return has_fetched and monotonic() - self._last_request_at > _QUIET

        await until(is_quiet, _PATIENCE)

    def outcome(self) -> BotOutcome:
        """Count what the bot lost, doubled and forgot."""
        answered = Counter(self._keys[update_id] for update_id, _ in self.answers)
        known: dict[str, int] = defaultdict(int)
        forgotten: set[str] = set()
        for update_id, known_messages in self.answers:
            chat = self.updates[update_id]["chat"]
            if known_messages <= known[chat]:
                forgotten.add(chat)
            known[chat] = known_messages
        return BotOutcome(
            messages=len(set(self._keys)),
            lost=len(set(self._keys) - answered.keys()),
            doubled=sum(count > 1 for count in answered.values()),
            forgotten=len(forgotten),
            kills=self.kills,
        )

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection of the bot."""
        pending: asyncio.Task[None] | None = None
        try:
            while line := await reader.readline():
                request = json.loads(line)
                self._last_request_at = monotonic()
                if request["method"] == "send_message":
                    self.answers.append((request["reply_to"], request["known_messages"]))
                    continue
                self.confirmed = max(self.confirmed, request.get("after", -1) + 1)
                pending = asyncio.create_task(self._send_updates(writer))
        except ConnectionError:
            # The bot was killed.
            pass
        finally:
            if pending is not None:
                pending.cancel()
            writer.close()

    async def _send_updates(self, writer: asyncio.StreamWriter) -> None:
        while len(self.updates) <= self.confirmed:
            self._grown.clear()
            await self._grown.wait()
        found = self.updates[self.confirmed : self.confirmed + _MOST_AT_ONCE]
        writer.write(json.dumps(found).encode() + b"\n")


@asynccontextmanager
async def open_bot_platform(directory: Path, think: timedelta) -> AsyncIterator[BotPlatform]:
    """Run the platform and the naive bot during the block."""
    platform = BotPlatform()
    server = await asyncio.start_server(platform.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    arguments = [naive_bot.__file__, str(port), str(think.total_seconds())]
    platform.program = Program("naive bot", arguments, directory)
    platform.program.start()
    try:
        yield platform
    finally:
        await platform.program.stop()
        server.close()
