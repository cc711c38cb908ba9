"""Look up what events of Slack do not tell: names, and the threads that the bot takes part in."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Coroutine
from time import monotonic
from typing import Any, Final, Generic, TypeVar

from slack_sdk.web.async_client import AsyncWebClient
from slack_sdk.web.async_slack_response import AsyncSlackResponse

from chatlane_adapters.slack.calls import UncertainCallError, done
from chatlane_adapters.slack.decode import Bot
from chatlane_adapters.slack.render import payload_of
from chatlane_adapters.slack.text import Json, mentions
from chatlane_client import RetryAfter, Undeliverable

_log: Final = logging.getLogger(__name__)

_MOST: Final = 10_000
_NAMES_FOR: Final = 3600.0
# Another process may take part in a thread without the knowledge of this one.
_STRANGE_FOR: Final = 60.0

# Slack waits three seconds until an event is stored.
_PATIENCE: Final = 1.0

V = TypeVar("V")


class Recent(Generic[V]):
    """The values that were set last, each for some time."""

    def __init__(self) -> None:
        self._values: OrderedDict[tuple[str, ...], tuple[float, V]] = OrderedDict()

    def get(self, *key: str) -> tuple[V] | None:
        """Return the value of a key in a tuple; None if there is none any more."""
        found = self._values.get(key)
        if found is None or found[0] < monotonic():
            return None
        return (found[1],)

    def set(self, value: V, *key: str, seconds: float = float("inf")) -> None:
        """Set the value of a key for so long."""
        self._values[key] = (monotonic() + seconds, value)
        self._values.move_to_end(key)
        while len(self._values) > _MOST:
            self._values.popitem(last=False)


class Lookups:
    """Answers of Slack about one workspace, kept for a while.

    A name that Slack does not tell in a second is unknown: no event waits for it.
    """

    def __init__(self, web: AsyncWebClient, bot: Bot) -> None:
        self._web = web
        self._bot = bot
        self._people: Recent[str | None] = Recent()
        self._channels: Recent[str | None] = Recent()
        self._ours: Recent[bool] = Recent()
        self._threads: Recent[str | None] = Recent()
        self._noted: Recent[None] = Recent()

    async def person(self, user: str) -> str | None:
        """Return the name of a person."""
        if (known := self._people.get(user)) is not None:
            return known[0]
        try:
            found = (await self._asked(self._web.users_info(user=user)))["user"]
        except (RetryAfter, Undeliverable, UncertainCallError):
            name, seconds = None, _STRANGE_FOR
        else:
            profile = found.get("profile") or {}
            names = (profile.get("display_name"), profile.get("real_name"), found.get("name"))
            name, seconds = next(filter(None, names), None), _NAMES_FOR
        self._people.set(name, user, seconds=seconds)
        return name

    async def channel(self, channel: str) -> str | None:
        """Return the name of a channel; a direct conversation has none."""
        if (known := self._channels.get(channel)) is not None:
            return known[0]
        try:
            found = (await self._asked(self._web.conversations_info(channel=channel)))["channel"]
        except (RetryAfter, Undeliverable, UncertainCallError):
            name, seconds = None, _STRANGE_FOR
        else:
            name, seconds = None if found.get("is_im") else found.get("name"), _NAMES_FOR
        self._channels.set(name, channel, seconds=seconds)
        return name

    def note(self, channel: str, ts: str | None, thread_ts: str | None) -> None:
        """Remember that the bot takes part in a thread, and that a message is in it."""
        if thread_ts is not None:
            self._ours.set(True, channel, thread_ts)  # noqa: FBT003 - a value, not an option
            self._noted.set(None, channel, thread_ts)
        if ts is not None:
            self._threads.set(thread_ts, channel, ts)

    def knows(self, channel: str, thread_ts: str) -> bool:
        """Return whether a message of a thread was noted before."""
        return self._noted.get(channel, thread_ts) is not None

    async def takes_part(self, channel: str, thread_ts: str) -> bool:
        """Return whether the bot was mentioned in the first message of a thread, or wrote in it.

        Raises:
            RetryAfter: Slack does not tell now.
            UncertainCallError: The same.
        """
        if (known := self._ours.get(channel, thread_ts)) is not None:
            return known[0]
        root = await self._first_of(channel, thread_ts)
        user = self._bot.user
        is_ours = root is not None and (
            user in {root.get("user"), *root.get("reply_users", ())}
            or mentions(root.get("text"), user)
        )
        seconds = float("inf") if is_ours else _STRANGE_FOR
        self._ours.set(is_ours, channel, thread_ts, seconds=seconds)
        return is_ours

    async def thread_of(self, channel: str, ts: str) -> str | None:
        """Return the thread that a message is in; None for a message of the channel."""
        if (known := self._threads.get(channel, ts)) is not None:
            return known[0]
        try:
            first = await self._first_of(channel, ts)
        except (RetryAfter, UncertainCallError):
            return None
        thread_ts = None if first is None else first.get("thread_ts")
        self._threads.set(thread_ts, channel, ts, seconds=_NAMES_FOR)
        return thread_ts

    async def asked_in(self, channel: str, thread_ts: str) -> str:
        """Return the message whose conversation a thread continues.

        It is the first message of the thread, or the one that this first message answers.

        Raises:
            RetryAfter: Slack does not tell now.
            UncertainCallError: The same.
        """
        first = await self._first_of(channel, thread_ts)
        answered: str | None = payload_of(first or {}).get("answers")
        return answered or thread_ts

    async def _first_of(self, channel: str, ts: str) -> Json | None:
        """Return the first message of a thread, or a single message."""
        call = self._web.conversations_replies(
            channel=channel, ts=ts, limit=1, include_all_metadata=True
        )
        try:
            messages: list[Json] = (await self._asked(call)).get("messages") or []
        except Undeliverable as refusal:
            _log.warning("thread_not_read", extra={"error": refusal.reason})
            return None
        return messages[0] if messages else None

    async def _asked(self, call: Coroutine[Any, Any, AsyncSlackResponse]) -> Json:
        return await done(asyncio.wait_for(call, _PATIENCE))
