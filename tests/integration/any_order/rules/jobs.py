"""What workers were given, and what they said of it."""

from dataclasses import dataclass
from typing import Any, NamedTuple
from uuid import UUID

from chatlane_schemas.turns import ClaimReply, TakeReply, TurnTake


@dataclass(slots=True)
class Job:
    """What a worker was given."""

    reply: ClaimReply
    agent: str
    # Place of the newest message it has.
    seq: int = 0
    # Its worker is of a release that says so.
    tells_begin: bool = False
    has_begun: bool = False

    @property
    def attempt(self) -> tuple[UUID, int]:
        """The turn, and which attempt of it this is."""
        assert self.reply.attempt is not None
        return self.reply.turn_id, self.reply.attempt

    def result(self, name: str, outcome: str, *, parts: int, retry: bool) -> dict[str, Any]:
        """Return a result of it, as the worker publishes it."""
        its = self.reply
        heard = " ".join(str(message.text) for message in its.messages)
        return {
            "v": 1,
            "id": name,
            "at": its.at.isoformat(),
            "session_id": str(its.session_id),
            "turn_id": str(its.turn_id),
            "attempt": its.attempt,
            "token": its.token,
            "outcome": outcome,
            "retry": retry,
            "parts": [{"text": f"{heard} ({name}.{n})"} for n in range(parts)],
        }


class Taken(NamedTuple):
    """What a worker asked to take in while it works, and what it was given."""

    request: TurnTake
    reply: TakeReply
