"""Represent the address of an inbound event for the rules on keys, aliases and dedupe.

Answers go to the contract's `Source`, which keeps the received values. An `Address` is the same
with every spelling of "none" replaced by None.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

from chatlane.domain.catalog import MAIN_PROFILE, canonical_profile
from chatlane_schemas.inbound import Kind

if TYPE_CHECKING:
    from chatlane_schemas.inbound import InboundEvent, Sender
    from chatlane_schemas.source import Source

ChatClass = Literal["dm", "group"]

_DM: Final = "dm"
_NO_THREAD: Final = frozenset({None, "", "0"})


def class_of(chat_kind: str) -> ChatClass:
    """Return `dm` or, for every kind with several people, `group`.

    An unknown kind counts as `group`: that can only split a conversation per sender, and never
    shows one person's direct messages to another.
    """
    # Kinds are nearly always written in lower case.
    return "dm" if chat_kind == _DM or chat_kind.lower() == _DM else "group"


class Address(NamedTuple):
    """The place, the people and the profile of an event.

    Ids are None or not empty; they are opaque, and never trimmed or folded. `migrate_to`
    is set for migrations only.
    """

    platform: str
    account: str
    scope: str | None = None
    profile: str = MAIN_PROFILE
    chat_id: str | None = None
    chat_kind: str = _DM
    is_forum: bool | None = None
    thread_id: str | None = None
    sender_id: str | None = None
    sender_alt_id: str | None = None
    sender_aliases: tuple[str, ...] = ()
    migrate_to: str | None = None

    @property
    def chat_class(self) -> ChatClass:
        """Return whether one person or several can write here."""
        return class_of(self.chat_kind)

    @property
    def participant(self) -> str | None:
        """Return the sender's id, the more stable one if there are two."""
        return self.sender_alt_id or self.sender_id

    @property
    def chat_or_sender(self) -> str | None:
        """Return the chat id, or the sender's id if no chat id came."""
        return self.chat_id or self.sender_alt_id or self.sender_id

    def with_ids(
        self, chat_id: str | None, sender_id: str | None, sender_alt_id: str | None
    ) -> Address:
        """Return the address with other ids; `_replace` takes twice as long."""
        return Address(
            self.platform,
            self.account,
            self.scope,
            self.profile,
            chat_id,
            self.chat_kind,
            self.is_forum,
            self.thread_id,
            sender_id,
            sender_alt_id,
            self.sender_aliases,
            self.migrate_to,
        )


def is_bot(sender: Sender) -> bool:
    """Return whether a sender is a bot.

    Anonymous admins and channels post through a bot account of the platform: they are people.
    """
    return sender.is_bot and not sender.sender_chat_id


def is_of_person(kind: str | None, source: Source) -> bool:
    """Return whether a person wrote a stored message, and not a timer or another bot."""
    return kind == Kind.MESSAGE and not (source.sender is not None and is_bot(source.sender))


def address_of(event: InboundEvent) -> Address:
    """Return the address of a decoded event, with missing, `""` and thread `"0"` as None."""
    return _address(event, (event.migrate_to or None) if event.kind == "migration" else None)


def address_of_source(source: Source) -> Address:
    """Return the address of the event that a source was stored for."""
    return _address(source, None)


def _address(event: InboundEvent | Source, migrate_to: str | None) -> Address:
    chat, sender = event.chat, event.sender
    thread_id = event.thread_id
    return Address(
        event.platform,
        event.account,
        event.scope or None,
        canonical_profile(event.profile),
        (chat.id or None) if chat else None,
        chat.kind if chat else _DM,
        chat.is_forum if chat else None,
        None if thread_id in _NO_THREAD else thread_id,
        (sender.id or None) if sender else None,
        (sender.alt_id or None) if sender else None,
        sender.aliases if sender else (),
        migrate_to,
    )
