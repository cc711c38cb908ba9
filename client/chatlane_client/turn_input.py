"""Take new messages into a running turn, each message once."""

from collections.abc import Awaitable, Callable

from chatlane_client.claims import Grant
from chatlane_client.control import Signals
from chatlane_schemas import TurnMessage
from chatlane_schemas.turns import TakeReply


class Steering:
    """Requests the messages that arrived after the last message of the turn."""

    def __init__(
        self, ask: Callable[[int], Awaitable[TakeReply]], grant: Grant, signals: Signals
    ) -> None:
        """Create it; `ask` requests the messages after a position in the transcript."""
        self._ask = ask
        self._signals = signals
        self._taken_in = grant.taken_in
        self._last_seq = grant.messages[-1].seq

    async def take(self) -> tuple[TurnMessage, ...]:
        """Return the new messages; if the request fails, `has_news` stays set."""
        self._signals.has_news.clear()
        try:
            reply = await self._ask(self._last_seq)
        except BaseException:
            self._signals.has_news.set()
            raise
        if reply.messages:
            self._last_seq = reply.messages[-1].seq
            self._taken_in += reply.messages
        return reply.messages
