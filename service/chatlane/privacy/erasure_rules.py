"""Decide which stored data belong to a person, and what an erasure deletes. Pure functions.

A person is an identity on one account of a platform, with its ids and the times at which it held
them. These data belong to the person: every session without other participants, as a whole; in
shared sessions, what the person wrote and the answers to it.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from uuid import UUID

from pydantic_core import from_json, to_json

from chatlane.domain.addressing.keys import MalformedKeyError, is_placeholder, parse_session_key
from chatlane.domain.addressing.owners import Identity, Span
from chatlane.domain.addressing.people import is_lasting, person_form
from chatlane_schemas.topology.streams import StreamName

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chatlane.domain.addressing.keys import ParsedKey
    from chatlane.domain.erasure_key import ErasureKey

# A platform's clock may be ahead of ours by so much, including times truncated to seconds.
_CLOCKS: Final = timedelta(seconds=5)
_INSTANT: Final = timedelta(microseconds=1)


class Listed(NamedTuple):
    """An entry of the erasure list: messages of an id in a time span have no effect.

    Attributes:
        since: Start of the span, inclusive; None if the id had no earlier holder.
        until: End of the span, inclusive.
        is_past: True if the id belonged to another person at the time of the erasure.
    """

    digest: bytes
    since: datetime | None
    until: datetime
    is_past: bool

    def covers(self, stored_at: datetime, sent_at: datetime | None) -> bool:
        """Return True if a message was written in the time span.

        A repeated publish gets a new time in the log but keeps the old time of the platform.
        """
        return (self._is_after(stored_at) and stored_at <= self.until) or (
            sent_at is not None and self._is_after(sent_at) and sent_at + _CLOCKS <= self.until
        )

    def _is_after(self, at: datetime) -> bool:
        return self.since is None or self.since <= at


def listed(key: ErasureKey, identity: Identity, until: datetime) -> list[Listed]:
    """Return the erasure list entries of a person.

    Args:
        until: The erasure covers what the person wrote up to this time.
    """
    found = []
    for span in identity.spans:
        digest = key.digest(identity.platform, identity.account, identity.scope, span.form)
        # Entries include their end.
        end = until if span.until is None else min(until, span.until - _INSTANT)
        if span.since is None or span.since <= end:
            found.append(Listed(digest, span.since, end, span.until is not None))
    return found


class SenderSpan(NamedTuple):
    """A sender as sources name it, and the time span in which it is the person; None: unbounded.

    Attributes:
        who: The part of a source that names the sender.
        since: Start of the span, inclusive.
        until: End of the span, exclusive.
    """

    who: Mapping[str, Any]
    since: datetime | None
    until: datetime | None

    def covers(self, at: datetime) -> bool:
        """Return True if a row of this sender and time belongs to the person."""
        return Span("", self.since, self.until).covers(at)

    def overlaps(self, first_at: datetime, last_at: datetime) -> bool:
        """Return True if rows of this sender between two times may belong to the person."""
        is_begun = self.since is None or self.since <= last_at
        return is_begun and (self.until is None or first_at < self.until)


@dataclass(frozen=True)
class Ids:
    """Matches stored data to a person: sessions by identity, messages by id and time.

    An id in a row names the person only if the person had it at the time of the row.
    """

    identity: Identity

    @property
    def platform(self) -> str:
        """Return the platform of the person."""
        return self.identity.platform

    @property
    def account(self) -> str:
        """Return our account on the platform."""
        return self.identity.account

    @property
    def scope(self) -> str | None:
        """Return the workspace of the person's ids."""
        return self.identity.scope

    @property
    def forms(self) -> frozenset[str]:
        """Return all ids that the person ever had, in normal form."""
        return self.identity.forms

    @cached_property
    def owners(self) -> frozenset[str]:
        """Return the owner values of the person's sessions."""
        return self.identity.owners

    @property
    def was_always_one(self) -> bool:
        """Return True if none of the ids ever belonged to another person."""
        return all(span.since is None and span.until is None for span in self.identity.spans)

    def had_since(self, raw: str, since: datetime) -> Ids:
        """Return the person that got an id at a time.

        A database restored from before that time does not know this. Then only the messages of the
        id since that time belong to the person.
        """
        if any(span.since == since for span in self.identity.spans_of(raw)):
            return self
        spans = (Span(person_form(self.platform, raw) or raw, since),)
        name = f"{raw}~unknown"
        return Ids(replace(self.identity, name=name, names=frozenset(), spans=spans))

    def is_quoted(self, body: bytes, at: datetime) -> bool:
        """Return True if an undecodable body names an id that the person had at the time."""
        return any(to_json(span.form) in body for span in self.identity.spans if span.covers(at))

    def is_session(self, session_key: str, owner: str | None) -> bool:
        """Return True if a session or lane belongs to the person alone, by owner or else by key."""
        if owner is not None:
            return owner in self.owners
        try:
            return self._is_key(parse_session_key(session_key))
        except MalformedKeyError:
            return False

    def _is_key(self, key: ParsedKey) -> bool:
        # Keys contain the names of identities, which never pass to another person.
        if (key.platform, key.account, key.scope) != (self.platform, self.account, self.scope):
            return False
        alone = key.user if key.chat_class == "group" else key.chat
        names = self.identity.names
        return alone is not None and (alone in names or person_form(self.platform, alone) in names)

    def is_sender(self, source: Mapping[str, Any], at: datetime) -> bool:
        """Return True if a source or event of a time names the person as its sender."""
        return any(span.covers(at) for span in self._spans_of_sender(source))

    def sender_spans(self, who: Mapping[str, Any]) -> list[SenderSpan]:
        """Return the time spans in which a sender was the person."""
        return [SenderSpan(who, span.since, span.until) for span in self._spans_of_sender(who)]

    def is_anothers(self, who: Mapping[str, Any], first_at: datetime, last_at: datetime) -> bool:
        """Return True if another person on the same account wrote some rows of a sender.

        Args:
            who: The sender as the sources of the rows name it.
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
        ids = [raw_id for raw_id in raw if isinstance(raw_id, str) and raw_id]
        # Ignore a number beside the platform's own id of an account: the number may pass to another
        # person before the message is stored.
        lasting = [raw_id for raw_id in ids if self._is_lasting(raw_id)]
        return [span for raw_id in lasting or ids for span in self.identity.spans_of(raw_id)]

    def _is_lasting(self, raw: str) -> bool:
        form = person_form(self.platform, raw)
        return form is not None and is_lasting(self.platform, form)

    def is_chat(self, chat_id: str, chats: set[str], at: datetime) -> bool:
        """Return True if a direct chat belonged to the person at a time.

        Args:
            chat_id: The platform's id of the chat.
            chats: Chat ids in the keys of the person's sessions.
        """
        if self.identity.spans_of(chat_id):
            return self.identity.has(chat_id, at)
        return chat_id in chats and self.identity.has_any(at)


def is_of_senders(source: Mapping[str, Any], at: datetime, senders: Iterable[SenderSpan]) -> bool:
    """Return True if a source of a time matches one of these senders."""
    sender = source.get("sender") or {}
    who = {
        **{name: source.get(name) for name in ("platform", "account", "scope")},
        "sender": {name: sender.get(name) for name in ("id", "alt_id", "aliases")},
    }
    return any(sender_span.who == who and sender_span.covers(at) for sender_span in senders)


def why_not_to_forget(ids: Ids, own_ids: frozenset[str]) -> str | None:
    """Return why an identity cannot be erased (a placeholder or our own account), or None."""
    if any(is_placeholder(ids.platform, form) for form in ids.forms):
        return "this id stands for several people of the platform, not for one"
    own = own_ids | {form for own_id in own_ids if (form := person_form(ids.platform, own_id))}
    if not own.isdisjoint(ids.forms):
        return "this is an id of our own account"
    return None


class Row(NamedTuple):
    """A row of a transcript with the fields that decide whether an erasure blanks it.

    Attributes:
        is_own: True if the person wrote it.
        has_source: True if it came from a chat.
    """

    seq: int
    role: str
    is_own: bool
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
    """Return the seq numbers of the rows to blank in a shared transcript.

    These are the person's messages; answers in a turn of, or in reply to, such a message; unlinked
    rows that follow such a message; and a summary at the beginning that may cover them. Messages
    of others stay.

    Args:
        rows: The rows in order.
        turns: Turns that had a message of the person.
        messages: Our ids of the person's messages.
        has_summary: True if a summary may cover rows of the person.
    """
    places: list[int] = []
    follows_own = False
    is_beginning = has_summary
    for row in rows:
        is_linked = row.turn_id is not None or row.reply_to is not None
        if row.has_source or is_linked:
            is_beginning = False
        if row.role == "user":
            follows_own = row.is_own
            if row.is_own or is_beginning:
                places.append(row.seq)
        elif (
            row.turn_id in turns
            or row.reply_to in messages
            or is_beginning
            or (follows_own and not is_linked)
        ):
            places.append(row.seq)
    return places


def names_in(detail: object, ids: Ids, at: datetime) -> bool:
    """Return True if a JSON value names a person, by an id or by the key of their session.

    Args:
        at: When the value was written.
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
    """Return numbers as sorted ranges of [first, last]."""
    found: list[list[int]] = []
    for number in sorted(numbers):
        if found and number <= found[-1][1] + 1:
            found[-1][1] = max(number, found[-1][1])
        else:
            found.append([number, number])
    return found


@dataclass(slots=True)
class ErasureScope:
    """Scope of an erasure, with the ids under which streams and other stores name the data.

    Attributes:
        ids: The person's identity.
        until: Later messages of the person stay.
        sessions: Sessions that belong to the person alone.
        turns: Turns in shared sessions that had a message of the person.
        messages: Our ids of the person's messages in shared sessions.
        shared: The shared sessions.
        letters: Dead letters of the person.
        chats: The platform's ids of direct chats between the person and our account.
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
        """Add the chat of one of the person's sessions, if it is a direct chat."""
        try:
            key = parse_session_key(session_key)
        except MalformedKeyError:
            return
        if key.chat_class == "dm" and key.chat is not None:
            self.chats.add(key.chat)

    def holds(self, stream: StreamName, stored_at: datetime, body: bytes) -> bool:
        """Return True if a message of a stream belongs to the person."""
        try:
            decoded = from_json(body)
        except ValueError:
            decoded = None
        if not isinstance(decoded, dict):
            return stored_at <= self.until and self.ids.is_quoted(body, stored_at)
        if _uuid_in(decoded, "session_id", self.sessions) or _uuid_in(
            decoded, "turn_id", self.turns
        ):
            return True
        return self._is_personal(stream, decoded, stored_at)

    def _is_personal(
        self, stream: StreamName, message: Mapping[str, Any], stored_at: datetime
    ) -> bool:
        match stream:
            case StreamName.INBOUND:
                return stored_at <= self.until and self._is_event(message, stored_at)
            case StreamName.ROUTED:
                written_at = _time_in(message, "stored_at") or stored_at
                return _uuid_in(message, "id", self.messages) or self._is_from(message, written_at)
            case StreamName.RESULTS:
                return _uuid_in(message, "reply_to", self.messages)
            case StreamName.OUTBOUND:
                return self._is_from({"source": message.get("target")}, stored_at)
            case StreamName.EVENTS:
                return self._is_from(message, stored_at)
            case _:
                return stream is StreamName.DEAD and _uuid_in(message, "id", self.letters)

    def _is_from(self, message: Mapping[str, Any], stored_at: datetime) -> bool:
        source = message.get("source")
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


def _time_in(message: Mapping[str, Any], name: str) -> datetime | None:
    text = message.get(name)
    try:
        return datetime.fromisoformat(text) if isinstance(text, str) else None
    except ValueError:
        return None


def _uuid_in(message: Mapping[str, Any], name: str, known: set[UUID]) -> bool:
    text = message.get(name)
    if not known or not isinstance(text, str):
        return False
    try:
        return UUID(text) in known
    except ValueError:
        return False
