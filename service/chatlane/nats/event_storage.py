"""Know whether EVENTS stores the events about turns; that of the release before does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chatlane_schemas.topology.streams import TURN_EVENTS, StreamName

if TYPE_CHECKING:
    from chatlane.nats.jetstream import JetStream

_TURN_EVENT: Final = TURN_EVENTS.partition("*")[0]


@dataclass(slots=True)
class EventStorage:
    """The kinds of events that the stream EVENTS stored when it was last read."""

    has_turn_events: bool = True

    async def look(self, jetstream: JetStream) -> None:
        """Read the subjects of the stream; one that is missing changes nothing.

        Raises:
            BusUnavailableError: No answer in time.
        """
        state = await jetstream.find_stream(StreamName.EVENTS)
        if state is not None:
            self.has_turn_events = TURN_EVENTS in state.config.get("subjects", ())

    def lacks(self, subject: str) -> bool:
        """Return whether the stream does not store an event with this subject."""
        return not self.has_turn_events and subject.startswith(_TURN_EVENT)
