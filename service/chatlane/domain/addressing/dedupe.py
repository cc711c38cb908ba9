"""What makes an event a repeat: digests over its identity, never over its place in the log.

Fields are length-prefixed, so no two lists of fields read alike.
"""

from __future__ import annotations

from hashlib import sha256
from typing import TYPE_CHECKING, Final

from chatlane.domain.catalog import MAIN_PROFILE, canonical_profile
from chatlane_schemas.inbound import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from chatlane.domain.addressing.sources import Address
    from chatlane_schemas.inbound import InboundEvent
    from chatlane_schemas.source import Source

DIGEST_VERSION: Final = "1"


def digests(event: InboundEvent, address: Address, person: str | None = None) -> tuple[bytes, ...]:
    """Return the digests of an event; it is a repeat if any of them was seen.

    The first is over ids as they came. A platform that knows one person under several ids
    may repeat a message under another one of them, so there is a second with the canonical
    id. Chats that moved have none: their new id starts to count from 1 again. A message to two
    profiles of one account is one of each.

    Args:
        event: The decoded event.
        address: Its address, aliases *not* resolved.
        person: Canonical id of the person whose DM this is (`Resolved.person`).
    """
    chat = address.chat_or_sender
    if not event.message_id:
        # Events without a number are never copies of each other; only a retried publish is.
        return (_digest(address.platform, address.account, "", "", "", "", event.id),)
    first = _message_digest(event, address, chat)
    if person is None or person == chat:
        return (first,)
    return first, _message_digest(event, address, person)


def former_digests(
    event: InboundEvent, address: Address, person: str | None = None
) -> tuple[bytes, ...]:
    """Return the digests that an event had while profiles did not count; none of the main one.

    A mark under one of them is of any profile.
    """
    if address.profile == MAIN_PROFILE:
        return ()
    return digests(event, address._replace(profile=MAIN_PROFILE), person)


def unheard_digests(marks: Iterable[bytes]) -> tuple[bytes, ...]:
    """Return what marks a message of a bot that was not heard, given its digests.

    It is a repeat of itself, and no message of a person is a repeat of it.
    """
    return tuple(sha256(b"unheard" + mark).digest() for mark in marks)


def digests_of_message(
    message_id: str | None, event: InboundEvent, address: Address, person: str | None = None
) -> tuple[bytes, ...]:
    """Return the digests of a message that an event in the same chat is about.

    Args:
        message_id: The platform's id of the message; none has no digest.
        event: The decoded event.
        address: Its address, aliases *not* resolved.
        person: Canonical id of the person whose DM this is (`Resolved.person`).
    """
    if not message_id:
        return ()
    said = {"kind": Kind.MESSAGE, "message_id": message_id}
    return digests(event.model_copy(update=said), address, person)


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
    """Return what tells two events about one message apart."""
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
    # The main profile is left out, so that its messages have the digests that they always had.
    end = "" if profile == MAIN_PROFILE else f"{len(profile)}:{profile}"
    # Of every message: a loop over the fields would take twice as long.
    return sha256(
        f"{len(DIGEST_VERSION)}:{DIGEST_VERSION}{len(platform)}:{platform}{len(account)}:{account}"
        f"{len(scope)}:{scope}{len(chat)}:{chat}{len(kind)}:{kind}"
        f"{len(message_id)}:{message_id}{len(which)}:{which}{end}".encode()
    ).digest()


def undecodable_digest(body: bytes, stored_at: datetime) -> bytes:
    """Return the digest of a body that cannot be read: itself and when it was stored."""
    parts = (DIGEST_VERSION, "undecodable", stored_at.isoformat())
    head = "".join(f"{len(part)}:{part}" for part in parts)
    return sha256(head.encode() + body).digest()
