"""One step of an example: what there was, what there is, and what was done in between."""

from dataclasses import dataclass, field
from uuid import UUID

from tests.integration.any_order.people import Decided
from tests.integration.any_order.rules.api_calls import Asked
from tests.integration.any_order.rules.jobs import Taken
from tests.integration.any_order.snapshot import Row, Snapshot


@dataclass(slots=True)
class Step:
    """One step.

    Attributes:
        claimed: Turns that a worker may have been given.
        taken: What a worker asked to take in, and was given.
        asked: A request that may have been carried out.
        may_expire: Whether ends of leases were looked for.
        is_ordered: Whether what was decided was decided in the order it is noted in.
    """

    before: Snapshot
    after: Snapshot
    decided: Decided
    claimed: set[UUID] = field(default_factory=set)
    taken: Taken | None = None
    asked: Asked | None = None
    may_expire: bool = False
    is_ordered: bool = True

    def answers(self) -> list[Row]:
        """Return the messages that have come into transcripts as answers to questions."""
        known = {row.id for row in (*self.before.rows, *self.before.archive)}
        said = {said.id for said in self.decided.accepted}
        return [
            row
            for row in self.after.rows
            if row.id in said - known
            and row.turn_id is None
            and not row.is_closed
            and self.after.sessions[row.session_id].agent != "desk"
        ]

    def asks(self, session_id: UUID, *kinds: str) -> bool:
        """Whether somebody asked for one of these changes of a session."""
        its = self.asked
        return its is not None and its.session_id == session_id and its.kind in kinds

    def is_removed(self, session_id: UUID) -> bool:
        """Whether a session was taken away in this step, as somebody asked for."""
        was_there = session_id in self.before.sessions
        return (
            was_there and session_id not in self.after.sessions and self.asks(session_id, "remove")
        )

    def joined(self) -> list[Row]:
        """Return the messages that have a turn since this step."""
        had = {row.id for row in (*self.before.rows, *self.before.archive) if row.turn_id}
        return [row for row in self.after.rows if row.id and row.turn_id and row.id not in had]
