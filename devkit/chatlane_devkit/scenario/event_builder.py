"""Build the messages of the scenario, one line of the feed for each."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from chatlane_devkit.scenario.chats import Chat, Person, timestamp
from chatlane_devkit.scenario.phrases import Chance, Kind, Phrases, Script

_SHARE_OF_ASIDES: Final = 0.14
_SHARE_OF_BURSTS: Final = 0.22
_SHARE_OF_PICTURES: Final = 0.03
_SHARE_OF_REPLIES: Final = 0.05

_FILES: Final = (
    ("image/jpeg", "balcony.jpg"),
    ("image/png", "screenshot.png"),
    ("application/pdf", "ticket.pdf"),
    ("audio/ogg", "voice-note.ogg"),
)

Line = dict[str, object]


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of the feed with its time of day.

    Attributes:
        at: Seconds since midnight.
        room: The chat of the message; None for a line that is no message.
    """

    at: float
    line: Line
    room: Chat | None = None
    person: Person | None = None

    @property
    def event(self) -> dict[str, object]:
        """The inbound event of the line."""
        event = self.line["event"]
        if not isinstance(event, dict):
            raise TypeError("this line carries no event")
        return event


class EventBuilder:
    """The scenario while it is being built.

    Attributes:
        entries: In the order of creation; `at` gives the order of the day.
    """

    def __init__(self, chance: Chance, phrases: Phrases) -> None:
        self.entries: list[Entry] = []
        self.chance = chance
        self._phrases = phrases
        self._told: dict[str, set[Script]] = defaultdict(set)

    def sitting(
        self,
        room: Chat,
        people: Sequence[Person],
        start: float,
        kind: Kind,
        *,
        scripts: int = 1,
        seconds_between: float = 90,
    ) -> float:
        """Add a dialogue of several people, and return the time at which it ends.

        Args:
            room: The chat.
            people: The participants; a single person talks to the assistant alone.
            start: Seconds since midnight.
            kind: Kind of the subjects.
            scripts: Number of subjects.
            seconds_between: Average pause between two messages.
        """
        at = start
        language = people[0].language
        for _ in range(scripts):
            for text in self._phrases.script(self.chance, language, kind, self._told[room.label]):
                person = self.chance.pick(people)
                self._say_or_show(at, room, person, text)
                at += self._pause(seconds_between)
                if self.chance.happens(_SHARE_OF_ASIDES):
                    self.say(at, room, person, self._phrases.aside(self.chance, language))
                    at += self._pause(seconds_between)
        return at

    def say(
        self, at: float, room: Chat, person: Person | None, text: str | None, **more: object
    ) -> Entry:
        """Add a message that an agent must receive.

        Args:
            at: Seconds since midnight.
            room: The chat.
            person: The sender, or None if the platform does not name one.
            text: The text; None for attachments only.
            more: Further fields of the event.
        """
        event = self.event(at, room, person, text=text, **more)
        line: Line = {"event": event, "expect": "accepted", "talk": room.talk(person)}
        line["agent"] = room.agent
        return self.add(Entry(at, line, room, person))

    def tell(
        self, at: float, room: Chat, person: Person, text: str, reply: str, *, begins: bool = False
    ) -> Entry:
        """Add a command, with the expected answer of the router."""
        event = self.event(at, room, person, text=text)
        line: Line = {"event": event, "expect": "obeyed", "talk": room.talk(person)}
        line |= {"reply": reply} | ({"begins": True} if begins else {})
        return self.add(Entry(at, line, room, person))

    def happen(self, at: float, room: Chat, person: Person | None, **fields: object) -> Entry:
        """Add an event that is stored but starts nothing, such as a reaction."""
        line: Line = {"event": self.event(at, room, person, **fields), "expect": "kept"}
        return self.add(Entry(at, line, room, person))

    def add(self, entry: Entry) -> Entry:
        """Add a line as it is."""
        self.entries.append(entry)
        return entry

    def event(
        self, at: float, room: Chat, person: Person | None, **fields: object
    ) -> dict[str, object]:
        """Return an inbound event with a fresh envelope id and the room's address."""
        event: dict[str, object] = {
            "v": 1,
            "id": self.chance.hexadecimal(24),
            "at": timestamp(at + self.chance.between(0.1, 1.4)),
            "message_id": room.message_id(self.chance, at),
            "platform": room.platform,
            "account": room.account,
            "scope": room.scope,
            "profile": room.profile,
            "chat": room.chat,
            "thread_id": room.thread_id,
            "sender": person.sender(room.platform) if person else None,
            "sent_at": timestamp(at),
            **fields,
        }
        return {key: value for key, value in event.items() if value is not None}

    def _say_or_show(self, at: float, room: Chat, person: Person, text: str) -> None:
        """Add a message, sometimes with a file or as a reply; stream agents get text only."""
        more: dict[str, object] = {}
        if self.chance.happens(_SHARE_OF_REPLIES) and self.entries and room.last_number:
            more["reply_to"] = self._earlier_message_id(room)
        if room.agent == "main" and self.chance.happens(_SHARE_OF_PICTURES):
            more["attachments"] = [self._attachment()]
            self.say(at, room, person, text if self.chance.happens(0.5) else None, **more)
        else:
            self.say(at, room, person, text, **more)

    def _earlier_message_id(self, room: Chat) -> object:
        earlier = [entry for entry in self.entries[-40:] if entry.room is room]
        return self.chance.pick(earlier).event.get("message_id") if earlier else None

    def _attachment(self) -> dict[str, object]:
        media_type, name = self.chance.pick(_FILES)
        size = 20_000 + self.chance.below(900_000)
        url = f"https://files.example/{self.chance.hexadecimal(12)}/{name}"
        return {"url": url, "media_type": media_type, "size_bytes": size, "name": name}

    def _pause(self, seconds: float) -> float:
        if self.chance.happens(_SHARE_OF_BURSTS):
            return self.chance.between(0.3, 1.8)
        return self.chance.between(0.3, 1.7) * seconds
