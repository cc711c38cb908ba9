"""Who writes where, and what was said: the small model that everything is compared with."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from chatlane.domain.log import LogMessage
from chatlane_schemas.inbound import InboundEvent
from tests.support.worlds.kernel import event


class Place(NamedTuple):
    """Where somebody writes; two people in one thread write in one lane."""

    key: str
    fields: dict[str, Any]

    def event(self, **fields: Any) -> InboundEvent:  # noqa: ANN401 - any field of an event
        """Return an event that happens here."""
        return event("telegram", **self.fields, **fields)


_GROUP: Final = {"kind_of_chat": "group", "chat": "g"}

# The id that the group gets when it moves; its conversations stay those of the first one.
FIRST_ID: Final = "g"
NEXT_ID: Final = "g2"
_MOVED: Final = {**_GROUP, "chat": NEXT_ID}

PLACES: Final = (
    Place("agent:main:telegram:bot:dm:1", {"chat": "1", "user": "u1"}),
    Place("agent:main:telegram:bot:group:g:user=u1", {**_GROUP, "user": "u1"}),
    Place("agent:main:telegram:bot:group:g:thread=t", {**_GROUP, "thr": "t", "user": "u1"}),
    Place("agent:main:telegram:bot:group:g:thread=t", {**_GROUP, "thr": "t", "user": "u2"}),
    Place("agent:quick:telegram:bot:dm:2", {"chat": "2", "user": "u1", "profile": "quick"}),
    Place("agent:desk:telegram:bot:dm:3", {"chat": "3", "user": "u1", "profile": "desk"}),
    Place("agent:main:telegram:bot:dm:4", {"chat": "4", "user": "u1"}),
    Place("agent:main:telegram:bot:group:g2:user=u1", {**_MOVED, "user": "u1"}),
    Place("agent:main:telegram:bot:group:g2:thread=t", {**_MOVED, "thr": "t", "user": "u2"}),
    Place("agent:calm:telegram:bot:dm:5", {"chat": "5", "user": "u1", "profile": "calm"}),
)


def file_of(mid: str) -> str:
    """Return where the file of a message can be read."""
    return f"https://files.example/{mid}"


def first_key(key: str) -> str:
    """Return the key of the same lane under the id that its chat had first."""
    return key.replace(f":group:{NEXT_ID}:", f":group:{FIRST_ID}:")


@dataclass(slots=True)
class Said:
    """One message of a person, however often it was sent.

    Attributes:
        place: Where it was said; None where a request said it.
        id: Ours; known once it is decided.
        order: Its place among all that was decided.
        text: As its newest edit says, of those that were decided; None once it is deleted.
        version: Of that edit.
        album: What it is shown as one with.
        is_copy: It was said in one conversation and run again in a branch of it: edits are
            about the first.
    """

    mid: str
    place: Place | None
    text: str | None
    event: InboundEvent | None = None
    id: UUID | None = None
    order: int = 0
    version: int = 0
    album: str | None = None
    is_copy: bool = False

    @property
    def key(self) -> str:
        """The lane it was said in."""
        return self.place.key if self.place else ""


@dataclass(slots=True)
class Story:
    """What was said and decided so far."""

    by_mid: dict[str, Said] = field(default_factory=dict)
    by_id: dict[UUID, Said] = field(default_factory=dict)
    # Why what was said is in no line, no transcript and no archive any more, by id.
    gone: dict[UUID, str] = field(default_factory=dict)
    # Whose files have come, by id of the platform; they may be sent again.
    brought: set[str] = field(default_factory=set)
    # What running turns took in.
    taken: set[UUID] = field(default_factory=set)
    # The sessions that were taken away, by request.
    removed: set[UUID] = field(default_factory=set)
    decided: int = 0
    # What was decided before the step in which the group was known to have moved.
    moved_at: int | None = None
    reopened: int = 0
    # The results that were published, by envelope id, and the claim of each (turn, attempt).
    results: dict[str, dict[str, Any]] = field(default_factory=dict)
    claims: dict[tuple[UUID, int], str] = field(default_factory=dict)
    # What turns asked, and what was taken as an answer.
    questions: dict[UUID, list[str]] = field(default_factory=dict)
    answers: set[UUID] = field(default_factory=set)
    # The attempts (turn, attempt) that count when they are lost.
    begun: set[tuple[UUID, int]] = field(default_factory=set)

    def new(self, place: Place, text: str | None = None) -> Said:
        """Return something new to say, with a text of its own."""
        mid = f"m{len(self.by_mid) + 1}"
        said = Said(mid, place, text or mid)
        said.event = place.event(mid=mid, text=said.text)
        self.by_mid[mid] = said
        return said

    def accept(self, said: Said, message_id: UUID) -> None:
        """Note that something was decided for the first time."""
        self.decided += 1
        said.id, said.order = message_id, self.decided
        self.by_id[message_id] = said

    def repeat(self, said: Said, message_id: UUID) -> None:
        """Note that something runs again under another id."""
        self.by_id[message_id] = said

    def submitted(self, text: str, message_id: UUID) -> Said:
        """Note what a request said."""
        said = Said(f"s{len(self.by_mid) + 1}", None, text)
        self.by_mid[said.mid] = said
        self.accept(said, message_id)
        return said


class Decided(NamedTuple):
    """What one step took from the logs.

    Attributes:
        commands: By lane, with the place of each among all that was decided.
        files: By id of the platform, messages that were to be given files; and the id and the
            place of the message that these are by themselves if they came too late.
        moves: How often the group was said to have moved.
    """

    messages: list[LogMessage]
    commands: list[tuple[str, str, int]]
    deleted: set[str]
    results: dict[str, dict[str, Any]]
    accepted: list[Said]
    files: dict[str, tuple[UUID, int]]
    moves: list[LogMessage]

    def stops(self, keys: Iterable[str]) -> bool:
        """Whether a command that ends what waits was given in one of these lanes."""
        wanted = {first_key(key) for key in keys}
        given = {first_key(key) for key, name, _ in self.commands if name in {"stop", "new"}}
        return not wanted.isdisjoint(given)
