"""Normalize ids of people, and find the ids in an event that belong to one person."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chatlane.domain.addressing.sources import Address

_WHATSAPP: Final = "whatsapp"
_SIGNAL: Final = "signal"
# Platforms on which people have ids of several kinds.
_SEVERAL_IDS: Final = frozenset((_WHATSAPP, _SIGNAL))

_JID: Final = re.compile(
    r"\+?([0-9]+)(?:\.[0-9]+)?(?::[0-9]+)?@(s\.whatsapp\.net|c\.us|lid)|\+?([0-9]+)"
)
_NUMBER: Final = re.compile(r"\+[0-9]+")
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


@lru_cache(maxsize=8192)
def person_form(platform: str, raw: str) -> str | None:
    """Return the normal form of a person's id; None if it is not one.

    WhatsApp: `N` for the phone and `N@lid` for the hidden id, without device. Signal: `+N`
    or a lower-case UUID. On other platforms an id is its only form.
    """
    if platform == _WHATSAPP:
        match = _JID.fullmatch(raw)
        if match is None:
            return None
        return f"{match[1]}@lid" if match[2] == "lid" else match[1] or match[3]
    if platform == _SIGNAL:
        return raw.lower() if _UUID.fullmatch(raw) or _NUMBER.fullmatch(raw) else None
    return raw


def _form_kind(platform: str, form: str) -> str:
    """Return the kind of id that a form is; a person has one id of each kind."""
    if platform == _WHATSAPP:
        return "lid" if form.endswith("@lid") else "phone"
    if platform == _SIGNAL:
        return "number" if form.startswith("+") else "uuid"
    return ""


def is_lasting(platform: str, form: str) -> bool:
    """Return whether an id is permanent for an account, unlike a number, which may change hands."""
    return _form_kind(platform, form) in {"lid", "uuid"}


class People(NamedTuple):
    """The forms of the ids in an event: of the peer of a DM, and of the sender."""

    peer: str | None
    sender: tuple[str, ...]


def people_in(address: Address) -> People:
    """Return the people that an event names; only two platforms have several forms of an id."""
    dm_chat = address.chat_id if address.chat_class == "dm" else None
    sender_ids = (address.sender_alt_id, address.sender_id, *address.sender_aliases)
    if address.platform in _SEVERAL_IDS:
        return _people(address.platform, dm_chat, sender_ids)
    sender = tuple(dict.fromkeys(filter(None, sender_ids)))
    # The id of a DM identifies the chat only, unless it is the person's as well.
    return People(dm_chat if dm_chat in sender else None, sender)


# Runs three times for every event: to look up, to learn and to resolve.
@lru_cache(maxsize=8192)
def _people(platform: str, dm_chat: str | None, sender_ids: tuple[str | None, ...]) -> People:
    forms = (person_form(platform, raw) for raw in sender_ids if raw)
    peer = None if dm_chat is None else person_form(platform, dm_chat)
    return People(peer, tuple(dict.fromkeys(form for form in forms if form)))


def belonging_together(
    platform: str, people: People, own_ids: frozenset[str]
) -> list[tuple[str, ...]]:
    """Return the forms of each person in an event."""
    peer, sender = people
    if peer is None or peer in sender:
        return [sender] if sender else []
    if not sender or _is_sender(platform, peer, sender, own_ids):
        return [(peer, *sender)]
    return [(peer,), sender]


def _is_sender(
    platform: str, peer: str, sender_forms: Sequence[str], own_ids: frozenset[str]
) -> bool:
    """Return whether the peer of a DM wrote the message, and not the bot."""
    own_forms = {person_form(platform, raw) for raw in own_ids}
    kind = _form_kind(platform, peer)
    return own_forms.isdisjoint(sender_forms) and all(
        _form_kind(platform, form) != kind for form in sender_forms
    )


def partner_in(platform: str, form: str, forms: Sequence[str]) -> str | None:
    """Return the id of another kind that a form was seen with."""
    kind = _form_kind(platform, form)
    for other in forms:
        if other != form and (not kind or _form_kind(platform, other) != kind):
            return other
    return None


def contradicts(platform: str, alias: str, partner: str | None, forms: Sequence[str]) -> bool:
    """Return whether an id came with another partner than the known one."""
    if partner is None or partner in forms:
        return False
    kind = _form_kind(platform, partner)
    return any(form != alias and _form_kind(platform, form) == kind for form in forms)


def names_nobody(platform: str, chat_id: str) -> bool:
    """Return whether a chat id has no name in it, such as `@lid`."""
    return platform == _WHATSAPP and chat_id.startswith("@")
