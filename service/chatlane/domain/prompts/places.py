"""Describe the place of a session in the words and ids that a prompt may show."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.addressing.keys import (
    MalformedKeyError,
    ParsedKey,
    identity_of,
    is_shared,
    parse_session_key,
)
from chatlane.domain.addressing.people import people_in, person_form
from chatlane.domain.addressing.sources import address_of_source
from chatlane.domain.prompts.sanitize import without_numbers
from chatlane_schemas.content.quotation import cleaned, shortened

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chatlane.domain.addressing.sources import Address
    from chatlane.domain.policy import KeyRules
    from chatlane.domain.prompts.sanitize import Redaction
    from chatlane_schemas.source import Source


class Place(NamedTuple):
    """An address as a prompt may show it: texts are cleaned, and ids hidden where required.

    Attributes:
        thread: Set only if it is part of the identity of the conversation; other threads change
            with the message.
        sender_id: The one in the key if there is one, since it never changes.
        hides_ids: Whether ids are digests.
    """

    platform: str
    profile: str
    kind: str
    scope: str | None
    chat: str | None
    chat_name: str | None
    topic: str | None
    parent: str | None
    thread: str | None
    sender_name: str | None
    sender_id: str | None
    is_shared: bool
    hides_ids: bool


def place_of(
    source: Source, session_key: str, rules: KeyRules, redaction: Redaction | None
) -> Place:
    """Return the place of a session.

    Args:
        source: Of one of its messages.
        session_key: Key of the session; its lane may have another one, which then follows from
            the source.
        redaction: Hides ids; None where they are shown.
    """
    address = address_of_source(source)
    identity, key = identity_of(address, rules), _parsed(session_key)
    keys = [known for known in (identity, key) if isinstance(known, ParsedKey)]
    chat, sender = source.chat, source.sender
    person_id = _person_id(address, key)
    chat_id = address.chat_id
    if address.chat_class == "dm":
        chat_id = person_id if people_in(address).peer is not None else address.chat_or_sender
    show = _Showing(address.platform, redaction, _ids_in(source, person_id) if redaction else ())
    return Place(
        platform=address.platform,
        profile=address.profile,
        kind=address.chat_kind,
        scope=address.scope,
        chat=show.chat(chat_id),
        chat_name=show.words(chat.name if chat else None),
        topic=show.words(chat.topic if chat else None),
        parent=show.chat(chat.parent_id or None) if chat else None,
        thread=show.chat(identity.thread if isinstance(identity, ParsedKey) else address.thread_id),
        sender_name=show.words(sender.name if sender else None),
        sender_id=show.person(person_id),
        is_shared=any(map(is_shared, keys)),
        hides_ids=redaction is not None,
    )


# The same key comes with every message of a session.
@lru_cache(maxsize=8192)
def _parsed(session_key: str) -> ParsedKey | None:
    try:
        return parse_session_key(session_key)
    except MalformedKeyError:
        # The session was imported with the key of another system.
        return None


def _person_id(address: Address, key: ParsedKey | None) -> str | None:
    """Return the id of the sender; the one in the key is stable and comes first."""
    raw = address.participant
    if key is not None and key[1:4] == (address.platform, address.account, address.chat_class):
        if key.user is not None:
            raw = key.user
        elif people_in(address).peer is not None:
            raw = key.chat
    return raw and (person_form(address.platform, raw) or raw)


def _ids_in(source: Source, person_id: str | None) -> frozenset[str]:
    """Return every form of every id that may occur in a name of this source."""
    chat, sender = source.chat, source.sender
    raw = [person_id]
    if chat is not None:
        raw += (chat.id, chat.parent_id)
    if sender is not None:
        raw += (sender.id, sender.alt_id, sender.sender_chat_id, *sender.aliases)
    return frozenset(form for id_ in raw if id_ for form in _forms(source.platform, id_))


def _forms(platform: str, raw: str) -> Iterator[str]:
    yield from filter(None, (cleaned(raw), person_form(platform, raw), raw.partition("@")[0]))


class _Showing(NamedTuple):
    """Shows ids and words of one source."""

    platform: str
    redaction: Redaction | None
    ids: frozenset[str] | tuple[()]

    def chat(self, raw: str | None) -> str | None:
        if raw is None or self.redaction is None:
            return raw
        return self.redaction.chat(self.platform, raw)

    def person(self, raw: str | None) -> str | None:
        if raw is None or self.redaction is None:
            return raw
        return self.redaction.person(self.platform, raw)

    def words(self, text: str | None) -> str | None:
        """Return a name or topic as shown; None if nothing of it is left."""
        if not text:
            return None
        shown: str | None = cleaned(text)
        if shown and self.redaction is not None:
            shown = without_numbers(shown, self.ids)
        return shortened(shown) if shown else None
