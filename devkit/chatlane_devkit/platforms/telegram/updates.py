"""The updates that a bot has not confirmed: long polling, or a webhook."""

import asyncio
from collections import defaultdict, deque
from time import monotonic
from typing import Final

from aiohttp import ClientError, ClientSession, ClientTimeout

from chatlane_devkit.platforms.telegram.wire import Json, RefusalError

_SECRET_HEADER: Final = "X-Telegram-Bot-Api-Secret-Token"  # noqa: S105 - name of a header
# A bot gets these only if it asks for them.
_ON_DEMAND: Final = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
_MOST: Final = 100
_CONFLICT: Final = "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running"
_RETRY: Final = 0.2


class UpdateQueue:
    """Updates in order, until they are confirmed or the webhook accepted them.

    Attributes:
        newest: Id of the newest update.
        confirmed: Id of the last update that the bot confirmed.
        polls: How many calls of `getUpdates` there were.
        webhook: Address and options of the webhook, if one is set.
        failures: How many calls of the webhook were not accepted.
    """

    def __init__(self) -> None:
        self.newest = 0
        self.confirmed = 0
        self.polls = 0
        self.webhook: Json | None = None
        self.failures = 0
        self._waiting: deque[Json] = deque()
        self._again: list[Json] = []
        self._last: deque[Json] = deque(maxlen=_MOST)
        self._allowed: frozenset[str] | None = None
        self._has_news = asyncio.Event()
        self._poll: object | None = None
        self._pushing: set[asyncio.Task[None]] = set()
        self._chats: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._session: ClientSession | None = None
        self._room = asyncio.Semaphore(40)

    def add(self, kind: str, content: Json) -> None:
        """Add an update, if the bot gets updates of this kind."""
        if kind in _ON_DEMAND if self._allowed is None else kind not in self._allowed:
            return
        self.newest += 1
        update = {"update_id": self.newest, kind: content}
        self._last.append(update)
        self._waiting.append(update)
        self._has_news.set()
        if self.webhook is not None:
            self._push(update, self.webhook)

    def allow(self, kinds: list[str] | None) -> None:
        """Keep which kinds the bot gets; None keeps the earlier list, an empty list the usual."""
        if kinds is not None:
            self._allowed = frozenset(kinds) or None

    def repeat(self, number: int) -> None:
        """Send the last updates once more, with their ids, although they are confirmed."""
        again = list(self._last)[-number:]
        if self.webhook is not None:
            for update in again:
                self._push(update, self.webhook)
        self._again += again
        self._has_news.set()

    async def poll(self, offset: int, limit: int, seconds: float) -> list[Json]:
        """Confirm what is before an offset, and return what follows, or wait for it.

        Raises:
            RefusalError: Another call began meanwhile, or there is a webhook.
        """
        if self.webhook is not None:
            raise RefusalError(
                409,
                "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook",
            )
        self.polls += 1
        self._poll = mine = object()
        # A call that waits ends now.
        self._has_news.set()
        await asyncio.sleep(0)
        self._confirm(offset)
        until = monotonic() + seconds
        while not self._waiting and not self._again:
            self._has_news.clear()
            try:
                async with asyncio.timeout(until - monotonic()):
                    await self._has_news.wait()
            except TimeoutError:
                return []
            if self._poll is not mine:
                raise RefusalError(409, _CONFLICT)
        taken = (*self._again, *self._waiting)[: min(max(1, limit or _MOST), _MOST)]
        self._again.clear()
        return list(taken)

    def _confirm(self, offset: int) -> None:
        if offset < 0:
            while len(self._waiting) > -offset:
                self._waiting.popleft()
            return
        while self._waiting and self._waiting[0]["update_id"] < offset:
            self._waiting.popleft()
        self.confirmed = max(self.confirmed, offset - 1)

    async def set_webhook(self, webhook: Json | None, *, drops_pending: bool) -> None:
        """Send updates to an address from now on, or wait for `getUpdates` again."""
        await self.close()
        if drops_pending:
            self._waiting.clear()
        self.webhook = webhook
        if webhook is not None:
            self._session = ClientSession(timeout=ClientTimeout(total=10))
            self._room = asyncio.Semaphore(webhook["max_connections"])
            for update in self._waiting:
                self._push(update, webhook)

    @property
    def waiting(self) -> int:
        """Return how many updates are not confirmed."""
        return len(self._waiting)

    async def close(self) -> None:
        """End the calls of a webhook."""
        for task in self._pushing:
            task.cancel()
        await asyncio.gather(*self._pushing, return_exceptions=True)
        if self._session is not None:
            await self._session.close()
            self._session = None

    def _push(self, update: Json, webhook: Json) -> None:
        task = asyncio.create_task(self._post(update, webhook))
        self._pushing.add(task)
        task.add_done_callback(self._pushing.discard)

    async def _post(self, update: Json, webhook: Json) -> None:
        """Call the webhook until it accepts an update; updates of a chat go one after the other."""
        secret = webhook["secret_token"]
        headers = {} if secret is None else {_SECRET_HEADER: secret}
        [content] = (value for name, value in update.items() if name != "update_id")
        lock = self._chats[str(content.get("chat") or content.get("message", {}).get("chat"))]
        async with lock, self._room:
            while self._session is not None:
                try:
                    async with self._session.post(
                        webhook["url"], json=update, headers=headers
                    ) as answer:
                        if answer.ok:
                            break
                except (ClientError, TimeoutError):
                    pass
                self.failures += 1
                await asyncio.sleep(_RETRY)
        if update in self._waiting:
            self._waiting.remove(update)
        self.confirmed = max(self.confirmed, update["update_id"])
