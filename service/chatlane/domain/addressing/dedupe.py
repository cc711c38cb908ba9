"""Compute the digests by which repeated events are recognized.

A digest covers the identity of an event and not its place in the log. Fields are length-prefixed,
so two different lists of fields never give the same input.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from chatlane.domain.addressing.people import person_form
from chatlane.domain.catalog import MAIN_PROFILE, canonical_profile
from chatlane_schemas.codec import encode_part
from chatlane_schemas.content.elements import EDITED_FIELDS
from chatlane_schemas.inbound import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from chatlane.domain.addressing.sources import Address
    from chatlane.domain.effects import FirstCopy
    from chatlane_schemas.inbound import InboundEvent
    from chatlane_schemas.source import Source

DIGEST_VERSION: Final = "1"
# Kinds whose copies are compared: a delete, a receipt or a service event loses no words.
_COMPARED: Final = frozenset(
    {Kind.MESSAGE, Kind.EDIT, Kind.ACTION, Kind.REACTION, Kind.ATTACHMENTS, Kind.SYSTEM}
)
# Fields with content besides the text.
_CONTENT_FIELDS: Final = {*EDITED_FIELDS, "press", "vote", "removed"}


def digests(event: InboundEvent, address: Address, person: str | None = None) -> tuple[bytes, ...]:
    """Return the digests of an event; it is a repeat if any of them was seen.

    The first covers the ids as received. A platform with several ids for one person may repeat a
    message under another one of them, so there is a second digest with the canonical id. Chats that
    moved have no second digest: their new id restarts the message numbers from 1. A message to two
    profiles of one account counts once for each.

    Args:
        address: Its address, aliases *not* resolved.
        person: Canonical id of the person whose DM this is (`Resolved.person`).
    """
    chat = address.chat_or_sender
    if not event.message_id:
        # Without an id of the platform, only a retried publish is a repeat.
        if not event.event_id:
            return (_digest(address.platform, address.account, "", "", "", "", event.id),)
        return (
            _digest(
                address.platform,
                address.account,
                address.scope or "",
                chat or "",
                event.kind,
                "",
                f"event:{event.event_id}",
                address.profile,
            ),
        )
    first = _message_digest(event, address, chat)
    if person is None or person == chat:
        return (first,)
    return first, _message_digest(event, address, person)


def former_digests(
    event: InboundEvent, address: Address, person: str | None = None
) -> tuple[bytes, ...]:
    """Return the digests of an event from before profiles counted; none for the main profile.

    A mark under one of them may belong to any profile.
    """
    if address.profile == MAIN_PROFILE:
        return ()
    return digests(event, address._replace(profile=MAIN_PROFILE), person)


def unheard_digests(marks: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return the digests for an ignored message of a bot, given its regular digests.

    It is a repeat of itself, and no message of a person is a repeat of it.
    """
    return tuple(sha256(b"unheard" + mark).digest() for mark in marks)


def digests_of_message(
    message_id: str | None, event: InboundEvent, address: Address, person: str | None = None
) -> tuple[bytes, ...]:
    """Return the digests of the message that an event in the same chat refers to.

    Args:
        message_id: The platform's id of the message; an empty one has no digest.
        address: Its address, aliases *not* resolved.
        person: Canonical id of the person whose DM this is (`Resolved.person`).
    """
    if not message_id:
        return ()
    changes = {"kind": Kind.MESSAGE, "message_id": message_id}
    return digests(event.model_copy(update=changes), address, person)


def digest_of(source: Source) -> bytes:
    """Return the first digest of a message that came with this source."""
    chat, sender = source.chat, source.sender
    people = (sender.alt_id, sender.id) if sender else ()
    place = next(filter(None, ((chat.id if chat else None), *people)), "")
    return _digest(
        source.platform,
        source.account,
        source.scope or "",
        place,
        Kind.MESSAGE,
        source.message_id or "",
        "",
        canonical_profile(source.profile),
    )


def fingerprint(digest: bytes, event: InboundEvent, sender: str | None) -> int | None:
    """Return a hash of what an event says and who says it; None for kinds without words.

    Two events with one digest and different fingerprints are no copies of each other. Files are
    left out: platforms sign their addresses again for each copy. The hash has 32 bits, so that it
    does not reveal a text.

    Args:
        digest: The digest that the event is recognized by.
        event: An event, with the text that its agent gets.
        sender: An id of the sender.
    """
    if event.kind not in _COMPARED:
        return None
    # Without an id of the platform, the digest does not contain the chat.
    has_id = event.message_id or event.event_id or event.version
    chat = "" if has_id or event.chat is None else event.chat.id or ""
    content = f"{len(chat)}:{chat}{len(sender or '')}:{sender or ''}{event.text or ''}"
    hashed = sha256(digest + content.encode())
    if not event.model_fields_set.isdisjoint(_CONTENT_FIELDS):
        parts = encode_part(event, _CONTENT_FIELDS)
        if parts != "{}":
            hashed.update(b"\0" + parts.encode())
    return int.from_bytes(hashed.digest()[:4], "big", signed=True)


def is_copy(first: FirstCopy, digest: bytes, event: InboundEvent, person: str | None) -> bool:
    """Return whether an event says what the first event with its digest said, by the same sender.

    Args:
        person: Name of the sender's identity. An adapter may have sent fewer ids the first time.
    """
    found = fingerprint(digest, event, person)
    if found is None or found == first.fingerprint:
        return True
    sender = event.sender
    raw = () if sender is None else (sender.id, sender.alt_id, *sender.aliases)
    # The first event may have come before the ids of the person were joined.
    ids = {form for id_ in raw if id_ for form in (id_, person_form(event.platform, id_)) if form}
    return any(fingerprint(digest, event, id_) == first.fingerprint for id_ in ids)


def _message_digest(event: InboundEvent, address: Address, chat: str | None) -> bytes:
    return _digest(
        address.platform,
        address.account,
        address.scope or "",
        chat or "",
        event.kind,
        event.message_id or "",
        _discriminator(event),
        address.profile,
    )


def _discriminator(event: InboundEvent) -> str:
    """Return the text that distinguishes two events on one message."""
    if event.kind == "message":
        return ""
    if event.event_id:
        return f"event:{event.event_id}"
    if event.version:
        return f"version:{event.version}"
    return f"envelope:{event.id}"


def _digest(  # noqa: PLR0917 - of every message
    platform: str,
    account: str,
    scope: str,
    chat: str,
    kind: str,
    message_id: str,
    which: str,
    profile: str = MAIN_PROFILE,
) -> bytes:
    # The main profile is left out, so that the digests of its messages never changed.
    end = "" if profile == MAIN_PROFILE else f"{len(profile)}:{profile}"
    # Runs for every message: a loop over the fields would take twice as long.
    return sha256(
        f"{len(DIGEST_VERSION)}:{DIGEST_VERSION}{len(platform)}:{platform}{len(account)}:{account}"
        f"{len(scope)}:{scope}{len(chat)}:{chat}{len(kind)}:{kind}"
        f"{len(message_id)}:{message_id}{len(which)}:{which}{end}".encode()
    ).digest()


def undecodable_digest(body: bytes, stored_at: datetime) -> bytes:
    """Return the digest of an undecodable body, over the body and its storage time."""
    parts = (DIGEST_VERSION, "undecodable", stored_at.isoformat())
    head = "".join(f"{len(part)}:{part}" for part in parts)
    return sha256(head.encode() + body).digest()
