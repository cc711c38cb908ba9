"""Decode events of rooms into events of chatlane."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

from pydantic import ValidationError

from chatlane_adapters.matrix.files import FILE_TYPES, file_of, mapping, number, text
from chatlane_client import deleted, edited, reacted
from chatlane_schemas import Chat, InboundEvent, Kind, Sender
from chatlane_schemas.content.elements import Location, Poll, Quote, Sticker, Vote

NewEvent = Callable[..., InboundEvent]

_EDITS: Final = "m.replace"
_THREADS: Final = ("m.thread", "io.element.thread")
_POLL_STARTS: Final = ("m.poll.start", "org.matrix.msc3381.poll.start")
_POLL_RESPONSES: Final = ("m.poll.response", "org.matrix.msc3381.poll.response")
_MESSAGES: Final = frozenset({"m.room.message", "m.sticker", *_POLL_STARTS})
_GEO: Final = re.compile(r"^geo:(-?\d{1,2}(?:\.\d{1,15})?),(-?\d{1,3}(?:\.\d{1,15})?)")
# A fallback of a reply begins with its author: `> <@ann:example.org> words`.
_QUOTED: Final = re.compile(r"^> (?:\* )?<(@[^>\s]+)> ?(.*)$")
_MEMBERSHIPS: Final = {"join": "joined", "leave": "left", "ban": "left"}


class Dropped(StrEnum):
    """Why an event of a room is not published."""

    OWN = "own"
    EMPTY = "empty"
    STATE = "state"
    CALL = "call"
    VERIFICATION = "verification"
    ENCRYPTED = "encrypted"
    FOREIGN_EDIT = "foreign_edit"
    MALFORMED = "malformed"
    UNKNOWN = "unknown"


# By how their type begins.
_UNREAD: Final = {
    "m.room.encrypted": Dropped.ENCRYPTED,
    "m.call.": Dropped.CALL,
    "m.key.": Dropped.VERIFICATION,
}


@dataclass(frozen=True, slots=True)
class Room:
    """The facts of a room that its events are decoded with.

    Attributes:
        id: Room id.
        is_direct: Whether it is a conversation of one person with the account.
        name: Name that people see, if it has one.
        topic: Its topic.
        names: Display names by user id, as far as they are known.
    """

    id: str
    is_direct: bool
    name: str | None = None
    topic: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)

    @property
    def chat(self) -> Chat:
        """The room as a chat of chatlane."""
        kind = "dm" if self.is_direct else "room"
        return Chat(id=self.id, kind=kind, name=self.name, topic=self.topic)


@dataclass(frozen=True, slots=True)
class Reaction:
    """A reaction as it was added, which a redaction takes back."""

    message_id: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Given:
    """An event with what is known about it."""

    event: Mapping[str, Any]
    event_id: str
    sender: str
    room: Room
    author: str | None
    reaction: Reaction | None

    @property
    def kind(self) -> str:
        return text(self.event, "type") or ""

    @property
    def content(self) -> Mapping[str, Any]:
        return mapping(self.event, "content")

    @property
    def relation(self) -> Mapping[str, Any]:
        return mapping(self.content, "m.relates_to")

    @property
    def common(self) -> dict[str, Any]:
        """The fields that each event has."""
        return {
            "chat": self.room.chat,
            "sender": Sender(id=self.sender, name=self.room.names.get(self.sender)),
            "sent_at": _time_of(self.event),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoder:
    """Decodes the events of one account.

    Attributes:
        new_event: Returns an event of the account with the given fields.
        user_id: The user of the account.
        display_name: Its name, by which older clients mention it.
        answers_all: Whether each message of a room is meant for the account. Else those of a room
            of several people that do not mention it are only observed.
    """

    new_event: NewEvent
    user_id: str
    display_name: str | None = None
    answers_all: bool = False

    def decode(
        self,
        event: Mapping[str, Any],
        room: Room,
        *,
        author: str | None = None,
        reaction: Reaction | None = None,
    ) -> InboundEvent | Dropped:
        """Return an event of a room as one of chatlane, or why it is dropped.

        Args:
            event: The event, decrypted; nothing in it is trusted to have the right type.
            room: Its room.
            author: Who wrote the message that an edit replaces.
            reaction: The reaction that a redaction takes back, if it was one.
        """
        event_id, sender = text(event, "event_id"), text(event, "sender")
        if event_id is None or sender is None:
            return Dropped.MALFORMED
        if sender == self.user_id:
            return Dropped.OWN
        given = _Given(
            event=event,
            event_id=event_id,
            sender=sender,
            room=room,
            author=author,
            reaction=reaction,
        )
        try:
            return self._decode(given)
        except ValidationError:
            # A server may send what the contract does not allow, such as an id of 300 bytes.
            return Dropped.MALFORMED

    def _decode(self, given: "_Given") -> InboundEvent | Dropped:
        kind = given.kind
        if "state_key" in given.event:
            return self._service(given)
        if kind in _MESSAGES:
            return self._message(given)
        if kind == "m.room.redaction":
            return self._redaction(given)
        if kind == "m.reaction":
            return self._reaction(given)
        if kind in _POLL_RESPONSES:
            return self._vote(given)
        begins = (reason for begin, reason in _UNREAD.items() if kind.startswith(begin))
        return next(begins, Dropped.UNKNOWN)

    def _redaction(self, given: "_Given") -> InboundEvent | Dropped:
        target = text(given.event, "redacts") or text(given.content, "redacts")
        if target is None:
            return Dropped.MALFORMED
        if given.reaction is None:
            message = self.new_event(message_id=target, **given.common)
            return deleted(message, event_id=given.event_id)
        message = self.new_event(message_id=given.reaction.message_id, **given.common)
        return reacted(message, given.reaction.key, event_id=given.event_id, removed=True)

    def _reaction(self, given: "_Given") -> InboundEvent | Dropped:
        target, key = text(given.relation, "event_id"), text(given.relation, "key")
        if target is None or key is None:
            # Redacted before it was read.
            return Dropped.EMPTY
        message = self.new_event(message_id=target, **given.common)
        return reacted(message, key, event_id=given.event_id)

    def _message(self, given: "_Given") -> InboundEvent | Dropped:
        is_edit = given.relation.get("rel_type") == _EDITS
        if is_edit and given.author != given.sender:
            # Servers pass on edits by others; clients have to ignore them.
            return Dropped.FOREIGN_EDIT
        shown = mapping(given.content, "m.new_content") if is_edit else given.content
        common = given.common
        content = _content_of(given.kind, shown, common["sender"])
        if isinstance(content, Dropped):
            return content
        if text(shown, "msgtype") == "m.notice":
            # Notices are for messages that no bot may answer.
            common["sender"] = common["sender"].model_copy(update={"is_bot": True})
        is_addressed = given.room.is_direct or self.answers_all or self._is_mentioned(shown)
        if not is_edit:
            place = _place_of(given.relation)
            observed = None if is_addressed else True
            return self.new_event(
                message_id=given.event_id, observed=observed, **common, **place, **content
            )
        target = text(given.relation, "event_id")
        if target is None:
            return Dropped.MALFORMED
        message = self.new_event(message_id=target, **common, **content)
        return edited(
            message,
            version=number(given.event, "origin_server_ts"),
            event_id=given.event_id,
            counts_as_new=is_addressed,
        )

    def _vote(self, given: "_Given") -> InboundEvent | Dropped:
        poll_id = text(given.relation, "event_id")
        if poll_id is None:
            return Dropped.MALFORMED
        response = mapping(given.content, "org.matrix.msc3381.poll.response")
        chosen = _items(given.content.get("m.selections") or response.get("answers"))
        options = tuple(it for it in chosen if isinstance(it, str))
        return self.new_event(
            kind=Kind.REACTION,
            message_id=poll_id,
            event_id=given.event_id,
            vote=Vote(poll_id=poll_id, options=options),
            removed=None if options else True,
            **given.common,
        )

    def _service(self, given: "_Given") -> InboundEvent | Dropped:
        """Return the event about a change of the room."""
        content, common = given.content, given.common
        words: str | None = None
        match given.kind:
            case "m.room.member":
                person = text(given.event, "state_key")
                change = _MEMBERSHIPS.get(text(content, "membership") or "")
                before = mapping(mapping(given.event, "unsigned"), "prev_content")
                was_member = before.get("membership") == "join"
                if person in {None, self.user_id}:
                    return Dropped.OWN
                if change is None or was_member == (change == "joined"):
                    return Dropped.STATE
                name = text(content, "displayname")
                common["sender"] = Sender(id=person, name=name)
            case "m.room.name":
                change, words = "title_changed", text(content, "name")
            case "m.room.topic":
                change, words = "topic_changed", text(content, "topic")
            case "m.room.pinned_events":
                change = "pinned"
            case _:
                return Dropped.STATE
        return self.new_event(
            kind=Kind.SERVICE, event_id=given.event_id, service=change, text=words, **common
        )

    def _is_mentioned(self, content: Mapping[str, Any]) -> bool:
        if "m.mentions" in content:
            return self.user_id in _items(mapping(content, "m.mentions").get("user_ids"))
        words = f"{text(content, 'body') or ''}\n{text(content, 'formatted_body') or ''}"
        if self.user_id in words:
            return True
        name = self.display_name
        return (
            bool(name)
            and re.search(rf"(?i)(?<!\w){re.escape(name or '')}(?!\w)", words) is not None
        )


def _content_of(kind: str, content: Mapping[str, Any], sender: Sender) -> dict[str, Any] | Dropped:
    """Return the content of a message as fields of an event."""
    message_type = "m.sticker" if kind == "m.sticker" else text(content, "msgtype") or ""
    if message_type.startswith("m.key.verification."):
        return Dropped.VERIFICATION
    special = _special_content_of(kind, message_type, content)
    if special is not None:
        return special
    body = text(content, "body")
    if body is None:
        # A message that was redacted before it was read has no content.
        return Dropped.EMPTY
    # A message of an unknown type, or with a file that cannot be found, has a body as well.
    quote, words = _without_fallback(body) if _answers(content) else (None, body)
    if message_type == "m.emote":
        words = f"* {sender.name or sender.id} {words}"
    return {"text": words, "quote": quote}


def _special_content_of(
    kind: str, message_type: str, content: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Return the content of a message that is more than a text."""
    body = text(content, "body")
    if kind in _POLL_STARTS and (poll := _poll_of(content)) is not None:
        return {"poll": poll}
    if message_type == "m.location" and (place := _location_of(content)) is not None:
        return {"location": place}
    found = file_of(message_type, content) if message_type in FILE_TYPES else None
    if found is None:
        return None
    fields: dict[str, Any] = {"attachments": [found.attachment()]}
    if message_type == "m.sticker":
        fields["sticker"] = Sticker(name=body)
    elif text(content, "filename") not in {None, body}:
        fields["text"] = body
    return fields


def _answers(content: Mapping[str, Any]) -> bool:
    return bool(mapping(mapping(content, "m.relates_to"), "m.in_reply_to"))


def _place_of(relation: Mapping[str, Any]) -> dict[str, Any]:
    """Return the thread of a message and what it answers."""
    fields: dict[str, Any] = {}
    is_thread = relation.get("rel_type") in _THREADS
    if is_thread:
        fields["thread_id"] = text(relation, "event_id")
    answered = text(mapping(relation, "m.in_reply_to"), "event_id")
    # In a thread, clients without threads are shown an answer to the message before.
    if answered is not None and not (is_thread and relation.get("is_falling_back") is True):
        fields["reply_to"] = answered
    return fields


def _without_fallback(body: str) -> tuple[Quote | None, str]:
    """Return the quotation that older clients put before a reply, and what follows it."""
    lines = body.split("\n")
    first = _QUOTED.match(lines[0])
    if first is None:
        return None, body
    end = next((at for at, line in enumerate(lines) if not line.startswith(">")), len(lines))
    words = [first[2], *(line.removeprefix(">").removeprefix(" ") for line in lines[1:end])]
    quote = Quote(text="\n".join(words), sender_id=first[1])
    return quote, "\n".join(lines[end:]).removeprefix("\n")


def _location_of(content: Mapping[str, Any]) -> Location | None:
    stated = mapping(content, "m.location") or mapping(content, "org.matrix.msc3488.location")
    found = _GEO.match(text(content, "geo_uri") or text(stated, "uri") or "")
    if found is None:
        return None
    latitude, longitude = float(found[1]), float(found[2])
    if abs(latitude) > 90 or abs(longitude) > 180:  # noqa: PLR2004 - degrees
        return None
    name = text(stated, "description") or text(content, "body")
    return Location(latitude=latitude, longitude=longitude, name=name)


def _poll_of(content: Mapping[str, Any]) -> Poll | None:
    stated = mapping(content, "m.poll") or mapping(content, "org.matrix.msc3381.poll.start")
    if not stated:
        return None
    answers = (_words_of(it) for it in _items(stated.get("answers")) if isinstance(it, Mapping))
    return Poll(
        question=_words_of(mapping(stated, "question")),
        options=tuple(it for it in answers if it is not None),
    )


def _words_of(content: Mapping[str, Any]) -> str | None:
    """Return a text in one of the forms of extensible events."""
    stated = _items(content.get("m.text"))
    if stated and isinstance(stated[0], Mapping):
        return text(stated[0], "body")
    return (
        text(content, "m.text") or text(content, "org.matrix.msc1767.text") or text(content, "body")
    )


def _items(value: object) -> Sequence[Any]:
    """Return a list of a content that anybody may have written; an empty one by default."""
    return value if isinstance(value, list | tuple) else ()


def _time_of(event: Mapping[str, Any]) -> datetime | None:
    milliseconds = number(event, "origin_server_ts")
    if milliseconds is None:
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return None
