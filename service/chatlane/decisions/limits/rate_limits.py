"""Dead-letter messages over a rate limit, and notify the chat at most once per interval."""

from __future__ import annotations

from typing import TYPE_CHECKING

from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.ids import derived_id
from chatlane.domain.limits.admission import admit
from chatlane.domain.notices import NoticeId
from chatlane.domain.outbound_builder import Speaking
from chatlane.durations import format_duration
from chatlane.store import admission
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.results import Part
from chatlane_schemas.source import source_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.effects import Effects
    from chatlane.domain.lanes import ResolvedMessage
    from chatlane.domain.limits.admission import Bucket, Counter
    from chatlane.domain.states import Session


class Admission:
    """Apply the rate limits of one batch; without limits it runs no statement."""

    def __init__(self, buckets: Mapping[bytes, Bucket]) -> None:
        self._buckets = buckets

    @classmethod
    async def load(
        cls, connection: PoolConnectionProxy, arrived: Sequence[ResolvedMessage]
    ) -> Admission:
        """Lock the buckets of a batch, after aliases and before sessions."""
        keys = {
            counter.key
            for message in arrived
            if message.counted
            for counter in message.counted.counters
        }
        return cls(await admission.lock(connection, keys) if keys else {})

    def refuses(self, message: ResolvedMessage, session: Session | None, effects: Effects) -> bool:
        """Count a message, or dead-letter it and return True.

        A rejected message leaves no dedupe mark: it may be admitted when it arrives again.

        Args:
            message: A message that is no duplicate.
            session: The session to which its lane points; without one there is no notice.
            effects: Collects the dead letter and the notice.
        """
        if message.counted is None:
            return False
        over = admit(message.counted, self._buckets, message.stored_at)
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
        if not self._buckets[over.key].may_tell(limit, message.stored_at):
            return
        text = message.notices.text(
            NoticeId.RATE_LIMITED, messages=limit.messages, per=format_duration(limit.per)
        )
        speaking = Speaking(
            session,
            message.agent.name,
            source_of(message.event),
            message.stored_at,
            kind=OutboundKind.NOTICE,
        )
        notice_id = derived_id(message.stored_at, message.digests[0], "over a limit")
        speaking.say(Part(text=text), notice_id, effects)

    async def write(self, connection: PoolConnectionProxy) -> None:
        """Write the levels of the buckets."""
        await admission.write(connection, self._buckets.values())
