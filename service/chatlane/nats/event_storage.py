"""Know whether EVENTS stores the events about turns; that of the release before does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chatlane.nats import topology
from chatlane_schemas.topology.streams import TURN_EVENTS, StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chatlane.nats.jetstream import JetStream
    from chatlane_schemas.topology.streams import DurableSpec, StreamSpec

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

    async def compare(
        self, jetstream: JetStream, streams: Iterable[StreamSpec], durables: Iterable[DurableSpec]
    ) -> list[str]:
        """Return the differences from the declarations, as `topology.verify`, and read the stream.

        An operator who sees a difference may replace this router by one of the release before, which
        can never publish an event that the stream lacks. So the stream is read last: from then on
        this router writes no such event.

        Raises:
            BusUnavailableError: No answer in time.
        """
        differences = await topology.verify(jetstream, streams, durables)
        await self.look(jetstream)
        return differences

    def lacks(self, subject: str) -> bool:
        """Return whether the stream does not store an event with this subject."""
        return not self.has_turn_events and subject.startswith(_TURN_EVENT)
