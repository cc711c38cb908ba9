"""Limit the messages of chats, people and other bots in a batch.

A batch without limits and without bots runs no statement.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.ids import derived_id
from chatlane.domain.limits.message_limits import Bots, admit, chats_to_ask_for, range_of
from chatlane.domain.notices import NoticeId
from chatlane.durations import format_duration
from chatlane.store import message_limits
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.results import Part

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Effects
    from chatlane.domain.limits.message_limits import Bucket, Counter
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Session


# Most lanes of a chat that are read to find when a person last wrote. In a larger chat the person
# may be missed, and a bot may have to pause before its messages are accepted again.
_MOST_LANES: Final = 1000


@dataclass(slots=True)
class MessageLimits:
    """Apply the limits of one batch.

    Attributes:
        bots: Budgets of the other bots that write in the batch; None without such messages.
    """

    buckets: Mapping[bytes, Bucket]
    bots: Bots | None

    @classmethod
    async def load(
        cls, connection: PoolConnectionProxy, arrived: Sequence[ResolvedMessage]
    ) -> MessageLimits:
        """Lock the buckets and budgets of a batch, after aliases and before sessions."""
        keys = {
            counter.key
            for message in arrived
            if message.counted
            for counter in message.counted.counters
        }
        buckets = await message_limits.lock_buckets(connection, keys) if keys else {}
        return cls(buckets, await _load_bots(connection, arrived))

    def refuses(self, message: ResolvedMessage, session: Session | None, effects: Effects) -> bool:
        """Count a message, or dead-letter it and return True.

        A rejected message leaves no dedupe mark: it may be admitted when it arrives again.

        Args:
            message: A message that is no duplicate.
            session: The session to which its lane points; without one there is no notice.
        """
        if message.counted is None:
            return False
        over = admit(message.counted, self.buckets, message.stored_at)
        if over is None:
            return False
        detail = f"limit per {over.scope}"
        RejectedMessage(message.counted.message, DeadReason.RATE_LIMITED, detail).add_dead_letter(
            effects
        )
        if session is not None and session.ended_at is None:
            self._tell(message, over, session, effects)
        return True

    def _tell(
        self, message: ResolvedMessage, over: Counter, session: Session, effects: Effects
    ) -> None:
        limit = over.limit
        if not self.buckets[over.key].may_tell(limit, message.stored_at):
            return
        text = message.notices.text(
            NoticeId.RATE_LIMITED, messages=limit.messages, per=format_duration(limit.per)
        )
        notice_id = derived_id(message.stored_at, message.digests[0], "over a limit")
        message.notice_in(session).say(Part(text=text), notice_id, effects)

    async def write(self, connection: PoolConnectionProxy) -> None:
        """Write what is used up."""
        await message_limits.write_buckets(connection, self.buckets.values())
        if self.bots is not None:
            await message_limits.write_budgets(connection, self.bots.spent.values())


async def _load_bots(
    connection: PoolConnectionProxy, arrived: Sequence[ResolvedMessage]
) -> Bots | None:
    pairs = [(message.pair, message.session_key) for message in arrived if message.pair is not None]
    if not pairs:
        return None
    spent = await message_limits.lock_budgets(connection, {pair.key for pair, _ in pairs})
    chats = chats_to_ask_for(pairs, spent)
    if not chats:
        return Bots(spent)
    ranges = [(chat, range_of(chat)) for chat in sorted(chats)]
    return Bots(spent, await message_limits.find_people(connection, ranges, _MOST_LANES))
