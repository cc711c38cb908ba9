"""Who a person is in what is stored, and what goes when they are forgotten. Pure.

A person is a set of ids on one account of a platform. What is theirs: every session of theirs
alone, whole; in sessions that others share, what they wrote and what was answered to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import blake2b, sha256
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.domain.keys import MalformedKeyError, is_placeholder, parse_session_key
from chatlane.domain.owners import owner_text
from chatlane.domain.people import people_in, person_form
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime

    from chatlane.domain.keys import ParsedKey
    from chatlane.domain.sources import Address
    from chatlane_schemas.people import Person

MIN_KEY_BYTES: Final = 32
# By so much a platform's clock may be ahead of ours, and its times be cut to seconds.
_CLOCKS: Final = timedelta(seconds=5)


class ErasureKey:
    """Makes the digests under which the erasure list knows people.

    Args:
        secret: At least `MIN_KEY_BYTES`; who has it can tell whether somebody is on the list.
    """

    def __init__(self, secret: bytes) -> None:
        self._key = sha256(secret).digest()
        self.id = self._hash("", b"key id")[:8].hex()

    def _hash(self, text: str, purpose: bytes) -> bytes:
        return blake2b(text.encode(), digest_size=32, key=self._key, person=purpose).digest()

    def digest(self, platform: str, account: str, scope: str | None, form: str) -> bytes:
        """Return what stands for an id of a person."""
        return self._hash(owner_text(platform, account, scope, form), b"person")

    def digests_of(self, address: Address) -> frozenset[bytes]:
        """Return what stands for the people whose message this is: its sender, or a DM's peer."""
        peer, sender = people_in(address)
        forms = sender if peer is None else (peer, *sender)
        return frozenset(
            self.digest(address.platform, address.account, address.scope, form) for form in forms
        )


def is_before(until: datetime, stored_at: datetime, sent_at: datetime | None) -> bool:
    """Return whether somebody wrote a message before they were forgotten.

    A message that is published once more has a new time in the log, and the platform's old one.
    """
    return stored_at <= until or (sent_at is not None and sent_at + _CLOCKS <= until)


@dataclass(frozen=True)
class Ids:
    """The ids of a person on one account, in every form that is known.

    Attributes:
        forms: Normal forms.
    """

    platform: str
    account: str
    scope: str | None
    forms: frozenset[str]

    @property
    def owners(self) -> frozenset[str]:
        """The texts under which sessions name them as their owner."""
        return frozenset(
            owner_text(self.platform, self.account, self.scope, form) for form in self.forms
        )

    @property
    def quoted(self) -> tuple[bytes, ...]:
        """The ids as JSON has them, to look for in what cannot be decoded."""
        return tuple(to_json(form) for form in sorted(self.forms))

    def is_session(self, session_key: str, owner: str | None) -> bool:
        """Return whether a session or lane is theirs alone."""
        if owner is not None and owner in self.owners:
            return True
        try:
            return self._is_key(parse_session_key(session_key))
        except MalformedKeyError:
            return False

    def _is_key(self, key: ParsedKey) -> bool:
        if (key.platform, key.account, key.scope) != (self.platform, self.account, self.scope):
            return False
        alone = key.user if key.chat_class == "group" else key.chat
        return alone is not None and self._has(alone)

    def _has(self, raw: str) -> bool:
        return raw in self.forms or person_form(self.platform, raw) in self.forms

    def is_sender(self, source: Mapping[str, Any]) -> bool:
        """Return whether a source, or an event, names them as who wrote."""
        here = (source.get("platform"), source.get("account"), source.get("scope") or None)
        sender = source.get("sender")
        if here != (self.platform, self.account, self.scope) or not isinstance(sender, dict):
            return False
        raw = (sender.get("alt_id"), sender.get("id"), *(sender.get("aliases") or ()))
        return any(isinstance(one, str) and bool(one) and self._has(one) for one in raw)


def ids_of(person: Person, known: Iterable[str]) -> Ids:
    """Return the ids of a person.

    Args:
        person: As an operator names them.
        known: Every form that is known of them besides.
    """
    form = person_form(person.platform, person.id)
    forms = frozenset(known) | {form or person.id}
    return Ids(person.platform, person.account, person.scope or None, forms)


def why_not_to_forget(ids: Ids, own_ids: frozenset[str]) -> str | None:
    """Return why somebody cannot be erased: because they are nobody, or we ourselves."""
    if any(is_placeholder(ids.platform, form) for form in ids.forms):
        return "this id stands for several people of the platform, not for one"
    own = own_ids | {form for one in own_ids if (form := person_form(ids.platform, one))}
    if not own.isdisjoint(ids.forms):
        return "this is an id of our own account"
    return None


class Row(NamedTuple):
    """A row of a transcript as far as it matters whose it is.

    Attributes:
        is_theirs: Whether the person wrote it.
        has_source: Whether it came from a chat.
    """

    seq: int
    role: str
    is_theirs: bool
    id: UUID | None
    turn_id: UUID | None
    reply_to: UUID | None
    has_source: bool = True


def rows_to_blank(
    rows: Iterable[Row],
    turns: frozenset[UUID],
    messages: frozenset[UUID],
    *,
    has_summary: bool = False,
) -> list[int]:
    """Return the places of what goes from a transcript that others share.

    What the person wrote; what was answered in a turn, or to a message, of theirs; rows without
    such a link behind a message of theirs; and a summary at the beginning that may be of it.
    What others wrote stays.

    Args:
        rows: In order.
        turns: Turns that had a message of theirs.
        messages: Our ids of their messages.
        has_summary: Whether rows of theirs were summed up.
    """
    gone: list[int] = []
    is_behind_theirs = False
    is_beginning = has_summary
    for row in rows:
        is_linked = row.turn_id is not None or row.reply_to is not None
        if row.has_source or is_linked:
            is_beginning = False
        if row.role == "user":
            is_behind_theirs = row.is_theirs
            if row.is_theirs or is_beginning:
                gone.append(row.seq)
        elif (
            row.turn_id in turns
            or row.reply_to in messages
            or is_beginning
            or (is_behind_theirs and not is_linked)
        ):
            gone.append(row.seq)
    return gone


def names_in(detail: object, ids: Ids) -> bool:
    """Return whether a JSON value names a person, by an id or by the key of a session of theirs."""
    if isinstance(detail, dict):
        return any(names_in(value, ids) for value in detail.values())
    if isinstance(detail, list):
        return any(names_in(value, ids) for value in detail)
    if not isinstance(detail, str):
        return False
    return detail in ids.forms or detail in ids.owners or ids.is_session(detail, None)


def ranges(numbers: Iterable[int]) -> list[list[int]]:
    """Return numbers as ranges, first and last, in order."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1][1] = max(number, found[-1][1])
        else:
            found.append([number, number])
    return found


@dataclass(slots=True)
class Gone:
    """What was erased, as streams and other stores name it.

    Attributes:
        ids: Of the person.
        until: What they wrote later stays.
        sessions: Theirs alone.
        turns: Turns in other sessions that had a message of theirs.
        messages: Our ids of their messages there.
        shared: Those other sessions.
        letters: Dead letters.
        chats: The platform's ids of chats that only they and we have.
    """

    ids: Ids
    until: datetime
    sessions: set[UUID] = field(default_factory=set)
    turns: set[UUID] = field(default_factory=set)
    messages: set[UUID] = field(default_factory=set)
    shared: set[UUID] = field(default_factory=set)
    letters: set[UUID] = field(default_factory=set)
    chats: set[str] = field(default_factory=set)

    def add_chat(self, session_key: str) -> None:
        """Note the chat of a session of theirs, if it is between them and us."""
        try:
            key = parse_session_key(session_key)
        except MalformedKeyError:
            return
        if key.chat_class == "dm" and key.chat is not None:
            self.chats.add(key.chat)

    def holds(self, stream: StreamName, stored_at: datetime, body: bytes) -> bool:
        """Return whether a message of a stream is theirs."""
        try:
            said = from_json(body)
        except ValueError:
            said = None
        if not isinstance(said, dict):
            return stored_at <= self.until and any(one in body for one in self.ids.quoted)
        if _uuid_in(said, "session_id", self.sessions) or _uuid_in(said, "turn_id", self.turns):
            return True
        return self._is_said_in(stream, said, stored_at)

    def _is_said_in(self, stream: StreamName, said: Mapping[str, Any], stored_at: datetime) -> bool:
        match stream:
            case StreamName.INBOUND:
                return stored_at <= self.until and self._is_event(said)
            case StreamName.ROUTED:
                return _uuid_in(said, "id", self.messages) or self._is_from(said, stored_at)
            case StreamName.RESULTS:
                return _uuid_in(said, "reply_to", self.messages)
            case StreamName.OUTBOUND:
                return self._is_from({"source": said.get("target")}, stored_at)
            case StreamName.EVENTS:
                return self._is_from(said, stored_at)
            case _:
                return stream is StreamName.DEAD and _uuid_in(said, "id", self.letters)

    def _is_from(self, said: Mapping[str, Any], stored_at: datetime) -> bool:
        source = said.get("source")
        return isinstance(source, dict) and stored_at <= self.until and self.ids.is_sender(source)

    def _is_event(self, event: Mapping[str, Any]) -> bool:
        if self.ids.is_sender(event):
            return True
        chat = event.get("chat")
        here = (event.get("platform"), event.get("account"), event.get("scope") or None)
        return (
            isinstance(chat, dict)
            and here == (self.ids.platform, self.ids.account, self.ids.scope)
            and str(chat.get("kind", "dm")).lower() == "dm"
            and chat.get("id") in self.chats
        )


def _uuid_in(said: Mapping[str, Any], name: str, known: set[UUID]) -> bool:
    text = said.get(name)
    if not known or not isinstance(text, str):
        return False
    try:
        return UUID(text) in known
    except ValueError:
        return False
