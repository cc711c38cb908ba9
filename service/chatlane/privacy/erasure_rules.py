"""Who a person is in what is stored, and what goes when they are forgotten. Pure.

A person is an identity on one account of a platform, with the ids that belonged to it and when. What
is theirs: every session of theirs alone, whole; in sessions that others share, what they wrote and
what was answered to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.domain.addressing.identities import Identity, Span
from chatlane.domain.addressing.keys import MalformedKeyError, is_placeholder, parse_session_key
from chatlane.domain.addressing.people import is_lasting, person_form
from chatlane_schemas.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chatlane.domain.addressing.keys import ParsedKey
    from chatlane.domain.erasure_key import ErasureKey

# By so much a platform's clock may be ahead of ours, and its times be cut to seconds.
_CLOCKS: Final = timedelta(seconds=5)
_INSTANT: Final = timedelta(microseconds=1)


class Listed(NamedTuple):
    """An entry of the erasure list: what an id wrote in a time is to have no effect.

    Attributes:
        since: Part of the time; None where nobody had the id before.
        until: Part of it, too.
        is_past: Whether the id was somebody else's when its person was forgotten.
    """

    digest: bytes
    since: datetime | None
    until: datetime
    is_past: bool

    def covers(self, stored_at: datetime, sent_at: datetime | None) -> bool:
        """Return whether a message was written in that time.

        A message that is published once more has a new time in the log, and the platform's old one.
        """
        return (self._is_after(stored_at) and stored_at <= self.until) or (
            sent_at is not None and self._is_after(sent_at) and sent_at + _CLOCKS <= self.until
        )

    def _is_after(self, at: datetime) -> bool:
        return self.since is None or self.since <= at


def listed(key: ErasureKey, identity: Identity, until: datetime) -> list[Listed]:
    """Return the entries of the erasure list of a person who is forgotten.

    Args:
        until: What they wrote up to then.
    """
    found = []
    for span in identity.spans:
        digest = key.digest(identity.platform, identity.account, identity.scope, span.form)
        # Entries include their end.
        end = until if span.until is None else min(until, span.until - _INSTANT)
        if span.since is None or span.since <= end:
            found.append(Listed(digest, span.since, end, span.until is not None))
    return found


class Said(NamedTuple):
    """How sources name somebody, and when that is them; None for no bound.

    Attributes:
        who: The part of a source that tells who.
        since: Part of the time.
        until: Not part of it.
    """

    who: Mapping[str, Any]
    since: datetime | None
    until: datetime | None

    def covers(self, at: datetime) -> bool:
        """Return whether a row of a time is theirs."""
        return Span("", self.since, self.until).covers(at)

    def overlaps(self, first_at: datetime, last_at: datetime) -> bool:
        """Return whether rows between two times may be theirs."""
        is_begun = self.since is None or self.since <= last_at
        return is_begun and (self.until is None or first_at < self.until)


@dataclass(frozen=True)
class Ids:
    """A person in what is stored: their sessions by identity, what they wrote by id and time.

    An id that a row names is theirs only if it was at the time of the row.
    """

    identity: Identity

    @property
    def platform(self) -> str:
        """Where they are."""
        return self.identity.platform

    @property
    def account(self) -> str:
        """Our account there."""
        return self.identity.account

    @property
    def scope(self) -> str | None:
        """Workspace of their ids."""
        return self.identity.scope

    @property
    def forms(self) -> frozenset[str]:
        """All ids they ever had, in normal form."""
        return self.identity.forms

    @cached_property
    def owners(self) -> frozenset[str]:
        """What their sessions name as their owner."""
        return self.identity.owners

    @property
    def was_always_one(self) -> bool:
        """Whether none of their ids ever was somebody else's."""
        return all(span.since is None and span.until is None for span in self.identity.spans)

    def had_since(self, raw: str, since: datetime) -> Ids:
        """Return the person who got an id at a time.

        A database of before does not know that: then only what the id wrote since is theirs.
        """
        if any(span.since == since for span in self.identity.spans_of(raw)):
            return self
        spans = (Span(person_form(self.platform, raw) or raw, since),)
        name = f"{raw}~unknown"
        return Ids(replace(self.identity, name=name, names=frozenset(), spans=spans))

    def is_quoted(self, body: bytes, at: datetime) -> bool:
        """Return whether something that cannot be decoded names an id that was theirs then."""
        return any(to_json(span.form) in body for span in self.identity.spans if span.covers(at))

    def is_session(self, session_key: str, owner: str | None) -> bool:
        """Return whether a session or lane is theirs alone: by its owner, else by its key."""
        if owner is not None:
            return owner in self.owners
        try:
            return self._is_key(parse_session_key(session_key))
        except MalformedKeyError:
            return False

    def _is_key(self, key: ParsedKey) -> bool:
        # Keys are made of names of identities, which are never handed on.
        if (key.platform, key.account, key.scope) != (self.platform, self.account, self.scope):
            return False
        alone = key.user if key.chat_class == "group" else key.chat
        names = self.identity.names
        return alone is not None and (alone in names or person_form(self.platform, alone) in names)

    def is_sender(self, source: Mapping[str, Any], at: datetime) -> bool:
        """Return whether a source, or an event, of a time names them as who wrote."""
        return any(span.covers(at) for span in self._spans_of_sender(source))

    def said_as(self, who: Mapping[str, Any]) -> list[Said]:
        """Return when what a source tells of its sender was them."""
        return [Said(who, span.since, span.until) for span in self._spans_of_sender(who)]

    def is_anothers(self, who: Mapping[str, Any], first_at: datetime, last_at: datetime) -> bool:
        """Return whether another person on their account wrote the rows of a sender.

        Args:
            who: What the sources of the rows tell of their sender.
            first_at: When the first of them was stored.
            last_at: When the last of them was stored.
        """
        here = (who.get("platform"), who.get("account"), who.get("scope") or None)
        sender = who.get("sender")
        if here != (self.platform, self.account, self.scope) or not isinstance(sender, dict):
            return False
        if not (sender.get("id") or sender.get("alt_id")):
            return False
        spans = self._spans_of_sender(who)
        return not all(any(span.covers(at) for span in spans) for at in (first_at, last_at))

    def _spans_of_sender(self, source: Mapping[str, Any]) -> list[Span]:
        here = (source.get("platform"), source.get("account"), source.get("scope") or None)
        sender = source.get("sender")
        if here != (self.platform, self.account, self.scope) or not isinstance(sender, dict):
            return []
        raw = (sender.get("alt_id"), sender.get("id"), *(sender.get("aliases") or ()))
        ids = [one for one in raw if isinstance(one, str) and one]
        # A number beside the platform's own id for an account says nothing: it may be handed on
        # before what was written is stored.
        lasting = [one for one in ids if self._is_lasting(one)]
        return [span for one in lasting or ids for span in self.identity.spans_of(one)]

    def _is_lasting(self, raw: str) -> bool:
        form = person_form(self.platform, raw)
        return form is not None and is_lasting(self.platform, form)

    def is_chat(self, chat_id: str, chats: set[str], at: datetime) -> bool:
        """Return whether a direct chat was theirs at a time.

        Args:
            chat_id: As the platform names it.
            chats: What keys of their sessions name chats.
        """
        if self.identity.spans_of(chat_id):
            return self.identity.has(chat_id, at)
        return chat_id in chats and self.identity.has_any(at)


def is_said(source: Mapping[str, Any], at: datetime, said: Iterable[Said]) -> bool:
    """Return whether a source of a time names somebody in one of these ways."""
    sender = source.get("sender") or {}
    who = {
        **{name: source.get(name) for name in ("platform", "account", "scope")},
        "sender": {name: sender.get(name) for name in ("id", "alt_id", "aliases")},
    }
    return any(one.who == who and one.covers(at) for one in said)


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


def names_in(detail: object, ids: Ids, at: datetime) -> bool:
    """Return whether a JSON value names a person, by an id or by the key of a session of theirs.

    Args:
        at: When it was written.
    """
    if isinstance(detail, dict):
        return any(names_in(value, ids, at) for value in detail.values())
    if isinstance(detail, list):
        return any(names_in(value, ids, at) for value in detail)
    if not isinstance(detail, str):
        return False
    is_id = any(span.form == detail and span.covers(at) for span in ids.identity.spans)
    return is_id or detail in ids.owners or ids.is_session(detail, None)


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
            return stored_at <= self.until and self.ids.is_quoted(body, stored_at)
        if _uuid_in(said, "session_id", self.sessions) or _uuid_in(said, "turn_id", self.turns):
            return True
        return self._is_said_in(stream, said, stored_at)

    def _is_said_in(self, stream: StreamName, said: Mapping[str, Any], stored_at: datetime) -> bool:
        match stream:
            case StreamName.INBOUND:
                return stored_at <= self.until and self._is_event(said, stored_at)
            case StreamName.ROUTED:
                written_at = _time_in(said, "stored_at") or stored_at
                return _uuid_in(said, "id", self.messages) or self._is_from(said, written_at)
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
        if not isinstance(source, dict) or stored_at > self.until:
            return False
        return self.ids.is_sender(source, stored_at)

    def _is_event(self, event: Mapping[str, Any], stored_at: datetime) -> bool:
        if self.ids.is_sender(event, stored_at):
            return True
        chat = event.get("chat")
        here = (event.get("platform"), event.get("account"), event.get("scope") or None)
        return (
            isinstance(chat, dict)
            and here == (self.ids.platform, self.ids.account, self.ids.scope)
            and str(chat.get("kind", "dm")).lower() == "dm"
            and isinstance(chat_id := chat.get("id"), str)
            and self.ids.is_chat(chat_id, self.chats, stored_at)
        )


def _time_in(said: Mapping[str, Any], name: str) -> datetime | None:
    text = said.get(name)
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _uuid_in(said: Mapping[str, Any], name: str, known: set[UUID]) -> bool:
    text = said.get(name)
    if not known or not isinstance(text, str):
        return False
    try:
        return UUID(text) in known
    except ValueError:
        return False
