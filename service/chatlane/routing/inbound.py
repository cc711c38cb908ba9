"""Turns a message of the inbound log into what the domain can place, or says why it cannot."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from chatlane.domain.aliases import AliasBook, AliasId, lookups
from chatlane.domain.dedupe import digests
from chatlane.domain.keys import NoConversation, session_key
from chatlane.domain.lanes import Arrived
from chatlane.domain.people import person_form
from chatlane.domain.sources import Address, address_of
from chatlane.routing.refused import Refused
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.subjects import SubjectError, chat_token_of, parse_log

if TYPE_CHECKING:
    from chatlane.domain.catalog import Account, Agent, Catalog, Platform
    from chatlane.domain.log import LogMessage
    from chatlane_schemas.inbound import Sender


class Prepared(NamedTuple):
    """A decoded event whose platform, account and profile are declared; not yet placed."""

    message: LogMessage
    event: InboundEvent
    address: Address
    platform: Platform
    account: Account
    agent: Agent

    @property
    def lookups(self) -> set[AliasId]:
        """The aliases it depends on; of a DM too, whose chat may have moved as well."""
        return lookups(self.address, persons=self.platform.person_aliases)

    @property
    def is_ignored(self) -> bool:
        """Whether a bot wrote it that may not speak here; our own echo never may.

        Anonymous admins and channels post through a bot account of the platform, with the
        chat they speak for beside it: they are people. And whoever signs for a timer or a
        hand-over, it was meant for the agent.
        """
        sender = self.event.sender
        if sender is None or self.event.kind is Kind.SYSTEM:
            return False
        if self._is_own(sender):
            return True
        return sender.is_bot and not sender.sender_chat_id and not self.platform.bots_allowed

    def _is_own(self, sender: Sender) -> bool:
        own_ids = self.account.own_ids
        if not own_ids:
            return False
        theirs = {one for one in (sender.id, sender.alt_id, *sender.aliases) if one}
        if not own_ids.isdisjoint(theirs):
            return True
        # A platform that knows a person under several forms of an id knows us so, too.
        own_forms = {person_form(self.platform.name, one) for one in own_ids} - {None}
        return not own_forms.isdisjoint(person_form(self.platform.name, one) for one in theirs)


def prepare_inbound(message: LogMessage, catalog: Catalog) -> Prepared | Refused:
    """Decode one message and check that its credential and profile may say this."""
    try:
        subject = parse_log(message.subject)
        event = decode(InboundEvent, message.body)
    except SubjectError as error:
        return Refused(message, DeadReason.SUBJECT_MISMATCH, str(error))
    except DecodeError as error:
        return Refused(message, error.reason, error.detail)
    told = (subject.platform, subject.account, subject.chat)
    if told != (event.platform, event.account, chat_token_of(event)):
        return Refused(message, DeadReason.SUBJECT_MISMATCH, "platform, account or chat")
    profile = catalog.resolve_profile(event.platform, event.account, event.profile)
    if isinstance(profile, DeadReason):
        return Refused(message, profile)
    platform = catalog.platforms[event.platform]
    return Prepared(
        message=message,
        event=event,
        address=address_of(event),
        platform=platform,
        account=platform.accounts[event.account],
        agent=profile.agent,
    )


def arrive(one: Prepared, book: AliasBook, catalog: Catalog) -> Arrived | Refused:
    """Resolve who and where, learning links on the way, and derive key and digests."""
    persons = one.platform.person_aliases
    learned = book.learn(
        one.address, one.message.stored_at, persons=persons, own_ids=one.account.own_ids
    )
    if learned.refused_move:
        return Refused(one.message, DeadReason.INVALID, "migrate_to: the id of another chat")
    resolved = book.resolve(one.address, persons=persons)
    key = session_key(resolved.address, one.platform.keys)
    if isinstance(key, NoConversation):
        return Refused(one.message, key.reason, key.detail)
    former = [session_key(address, one.platform.keys) for address in resolved.former]
    return Arrived(
        event=one.event,
        session_key=key,
        former_keys=tuple(other for other in former if isinstance(other, str) and other != key),
        digests=digests(one.event, one.address, resolved.person),
        agent=one.agent,
        policy=catalog.reset_policy_for(one.event.platform, one.address.chat_class),
        stored_at=one.message.stored_at,
        size_bytes=len(one.message.body),
        is_ignored=one.is_ignored,
        moves_to=one.address.migrate_to if learned.merges else None,
    )
