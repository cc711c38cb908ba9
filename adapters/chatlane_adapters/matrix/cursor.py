"""The position up to which everything that happened on the homeserver is stored."""

import json
from dataclasses import asdict, dataclass
from typing import Final

# The oldest are given up beyond this, so that the cursor stays small.
MAX_KEPT: Final = 100


@dataclass(frozen=True, slots=True)
class Unread:
    """An encrypted event whose key has not come yet.

    Attributes:
        room_id: Its room.
        event_id: Its id.
        since: When it was first seen, in seconds of Unix time.
    """

    room_id: str
    event_id: str
    since: float


@dataclass(frozen=True, slots=True)
class Cursor:
    """The start of the next sync, and the work that is left from earlier ones.

    Attributes:
        since: `next_batch` of the last sync whose events are stored; None before the first.
        invitations: Rooms that are still to be joined.
        unread: Encrypted events whose keys have not come yet.
    """

    since: str | None = None
    invitations: tuple[str, ...] = ()
    unread: tuple[Unread, ...] = ()

    def dump(self) -> str:
        """Return the cursor as text."""
        return json.dumps(asdict(self), separators=(",", ":"))

    @classmethod
    def load(cls, text: str | None) -> "Cursor":
        """Return the cursor that a text holds; the first one if there is no text."""
        if not text:
            return cls()
        saved = json.loads(text)
        unread = tuple(Unread(**each) for each in saved["unread"])
        return cls(saved["since"], tuple(saved["invitations"]), unread)
