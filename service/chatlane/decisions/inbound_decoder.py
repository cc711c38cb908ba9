"""Decode and validate messages of the inbound log, or reject them with a reason."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID

from pydantic_core import from_json

from chatlane.domain.addressing.alias_rows import AliasId, Resolved, lookups
from chatlane.domain.addressing.dedupe import digests, digests_of_message, former_digests
from chatlane.domain.addressing.keys import NoConversation, session_key
from chatlane.domain.addressing.people import person_form
from chatlane.domain.addressing.sources import Address, address_of, is_bot
from chatlane.domain.catalog import MAIN_PROFILE
from chatlane.domain.commands.command_words import CommandName, parse_command
from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.deliveries import ArrivedReceipt, DeliveryKey
from chatlane.domain.effects import without_nulls
from chatlane.domain.limits.message_limits import Counted, counters, pair_of
from chatlane.domain.resolved_message import ResolvedMessage, details_json
from chatlane.observability.tracing import PARENT
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.content.elements import Press
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.inbound import InboundEvent, Kind
from chatlane_schemas.source import source_json
from chatlane_schemas.topology.subjects import SubjectError, chat_token_of, parse_log

if TYPE_CHECKING:
    from chatlane.domain.addressing.aliases import AliasBook
    from chatlane.domain.catalog import Account, Agent, Catalog, DeliveryPolicy, Platform
    from chatlane.domain.commands.command_words import Command
    from chatlane.domain.limits.message_limits import Pair
    from chatlane.domain.log import LogMessage
    from chatlane.domain.policy import ResetPolicy
    from chatlane_schemas.inbound import Sender
    from chatlane_schemas.topology.subjects import LogSubject


_CHANGES: Final = frozenset({Kind.EDIT, Kind.DELETE})
_REWRITTEN: Final = frozenset({Kind.EDIT, Kind.ACTION, Kind.REACTION, Kind.SERVICE})
_OF_PEOPLE: Final = frozenset({Kind.MESSAGE, Kind.ACTION})


class DeclaredEvent(NamedTuple):
    """A decoded event whose platform, account and profile are declared."""

    message: LogMessage
    event: InboundEvent
    address: Address
    platform: Platform
    account: Account
    agent: Agent
    policy: ResetPolicy
    delivery_policy: DeliveryPolicy
    command: Command | None

    @property
    def is_ignored(self) -> bool:
        """Return whether to ignore the event because a bot wrote it that must not start turns.

        The bot's own messages are always ignored. A message of another bot is also ignored if it
        is empty, a notice or a command: two bots that answer each other's notices never stop.

        Anonymous admins and channels post through a bot account of the platform, which names the
        chat for which they post: they count as people. A timer or a hand-over is meant for the
        agent, whatever its sender is.
        """
        sender = self.event.sender
        if sender is None or not (sender.is_bot or self.account.own_ids) or self.is_of_staff:
            return False
        if self.event.kind is Kind.SYSTEM or self.tells_delivery:
            return False
        if self._is_own(sender):
            return True
        if not is_bot(sender):
            return False
        return not self._may_bots_speak or (self.event.kind is Kind.MESSAGE and self.asks_nothing)

    @property
    def is_of_staff(self) -> bool:
        """Return whether one of our people wrote to the person of a direct chat."""
        sender = self.event.sender
        return sender is not None and _is_staff(sender, self.address, self.account)

    @property
    def tells_delivery(self) -> bool:
        """Return whether the event is a receipt with the platform's id of a sent message."""
        return self.event.kind is Kind.RECEIPT and bool(self.event.delivered)

    @property
    def asks_nothing(self) -> bool:
        """Return whether the message of a bot is empty, a notice, or a command."""
        text = self.event.text or ""
        if is_blank(text):
            return not self.event.attachments
        if self.platform.notices.recognizes(text) or text.strip() == self.delivery_policy.note:
            return True
        return _parsed(self.event, self.platform, self.account) is not None

    @property
    def _may_bots_speak(self) -> bool:
        of_account = self.account.bots_allowed
        return self.platform.bots_allowed if of_account is None else of_account

    @property
    def opens_thread(self) -> bool:
        """Return whether the event shows that a thread was opened on a message.

        A service event does, and the bot's own answer in the thread.
        """
        sender, event = self.event.sender, self.event
        if self.address.thread_id is None or not event.reply_to:
            return False
        if event.kind is Kind.MESSAGE and sender is not None:
            return self._is_own(sender)
        return event.kind is Kind.SERVICE

    @property
    def is_of_bot(self) -> bool:
        """Return whether another bot wrote a message that could start a turn."""
        sender, event = self.event.sender, self.event
        if sender is None or not is_bot(sender):
            return False
        return event.kind in _OF_PEOPLE or bool(event.counts_as_new)

    def _is_own(self, sender: Sender) -> bool:
        own_ids = self.account.own_ids
        if not own_ids:
            return False
        # The declared ids of the bot may include channels for which it posts.
        ids = (sender.id, sender.alt_id, sender.sender_chat_id, *sender.aliases)
        sender_ids = {id_ for id_ in ids if id_}
        if not own_ids.isdisjoint(sender_ids):
            return True
        # A platform that has several forms of a person's id has several forms of the bot's id.
        own_forms = {person_form(self.platform.name, id_) for id_ in own_ids} - {None}
        return not own_forms.isdisjoint(person_form(self.platform.name, id_) for id_ in sender_ids)


class ValidatedEvent(NamedTuple):
    """A message validated before the transaction, with the aliases that it still needs.

    Attributes:
        lookups: The aliases on which it depends; also for a DM, because its chat may have moved.
        plain: The resolved message if no alias is known; None on platforms where people have
            several ids, because aliases are always known there.
    """

    declared: DeclaredEvent
    lookups: set[AliasId]
    plain: ResolvedMessage | RejectedMessage | None


def _is_staff(sender: Sender, address: Address, account: Account) -> bool:
    # This runs for every event, and nearly no sender is of our staff.
    if not (sender.is_staff or account.staff_ids):
        return False
    if address.chat_class != "dm" or not address.chat_id:
        return False
    if sender.is_staff:
        return True
    # Our people may talk to the account themselves: then the chat is theirs.
    ids = {id_ for id_ in (sender.id, sender.alt_id) if id_}
    return not account.staff_ids.isdisjoint(ids) and address.chat_id not in ids


def _command(event: InboundEvent, platform: Platform, account: Account) -> Command | None:
    """Return the command in an event, or None; only messages of people can be commands."""
    # Parsing first is cheap: the first character shows that a text is no command.
    command = _parsed(event, platform, account)
    if command is None or event.kind is not Kind.MESSAGE or event.observed:
        return None
    return None if event.sender is not None and is_bot(event.sender) else command


def _parsed(event: InboundEvent, platform: Platform, account: Account) -> Command | None:
    return parse_command(event.text, platform.commands, account.bot_name, account.mention)


def _details(declared: DeclaredEvent, event: InboundEvent) -> str:
    details = details_json(event)
    if declared.message.trace is None:
        return details
    # Stored with the message, so that its turn joins the trace whenever it is claimed.
    return without_nulls({**from_json(details), PARENT: dict(declared.message.trace)[PARENT]})


def prepare_inbound(message: LogMessage, catalog: Catalog) -> ValidatedEvent | RejectedMessage:
    """Decode one message, and check that its subject and profile are permitted."""
    try:
        subject = parse_log(message.subject)
        event = decode(InboundEvent, message.body)
    except SubjectError as error:
        return RejectedMessage(message, DeadReason.SUBJECT_MISMATCH, str(error))
    except DecodeError as error:
        return RejectedMessage(message, error.reason, error.detail)
    expected = (subject.platform, subject.account, subject.chat)
    if expected != (event.platform, event.account, chat_token_of(event)):
        return RejectedMessage(message, DeadReason.SUBJECT_MISMATCH, "platform, account or chat")
    profile = catalog.resolve_profile(event.platform, event.account, event.profile)
    if isinstance(profile, DeadReason):
        return RejectedMessage(message, profile, _undeclared(profile, subject))
    platform = catalog.platforms[event.platform]
    account = platform.accounts[event.account]
    address = address_of(event)
    if event.sender is not None and _is_staff(event.sender, address, account):
        # The chat is that of the person, and our people are not its person.
        address = address._replace(sender_id=None, sender_alt_id=None, sender_aliases=())
    declared = DeclaredEvent(
        message=message,
        event=event,
        address=address,
        platform=platform,
        account=account,
        agent=profile.agent,
        policy=catalog.reset_policy_for(event.platform, address.chat_class),
        delivery_policy=catalog.manners_of(profile.agent, platform),
        command=_command(event, platform, account),
    )
    persons = platform.person_aliases
    plain = None if persons else _arrived(declared, Resolved(address))
    return ValidatedEvent(declared, lookups(address, persons=persons), plain)


def _undeclared(reason: DeadReason, subject: LogSubject) -> str:
    """Describe the undeclared account or profile, without the profile's name from the body."""
    account = f"{subject.platform}/{subject.account}"
    match reason:
        case DeadReason.UNKNOWN_ACCOUNT:
            return f"account {account} is not declared"
        case DeadReason.PROFILE_FORBIDDEN:
            return f"account {account} does not allow the profile"
        case _:
            return "the profile is not declared"


def arrive(prepared: ValidatedEvent, book: AliasBook) -> ResolvedMessage | RejectedMessage:
    """Resolve the person and chat of a message, and learn aliases from it."""
    declared = prepared.declared
    persons = declared.platform.person_aliases
    if declared.address.migrate_to is not None and not declared.platform.chats_migrate:
        # Trusting the event would give people access to the history of another chat.
        detail = "migrate_to: chats of this platform keep their ids (chats_migrate)"
        return RejectedMessage(declared.message, DeadReason.INVALID, detail)
    learned = book.learn(
        declared.address,
        declared.message.stored_at,
        persons=persons,
        own_ids=declared.account.own_ids,
    )
    if learned.refused_move:
        return RejectedMessage(
            declared.message, DeadReason.INVALID, "migrate_to: the id of another chat"
        )
    resolved = book.resolve(declared.address, persons=persons, at=declared.message.stored_at)
    if prepared.plain is not None and resolved.address is declared.address and not learned.merges:
        return prepared.plain
    return _arrived(declared, resolved, declared.address.migrate_to if learned.merges else None)


def _arrived(
    declared: DeclaredEvent, resolved: Resolved, moves_to: str | None = None
) -> ResolvedMessage | RejectedMessage:
    if declared.tells_delivery:
        return _receipt_message(declared, resolved)
    key = session_key(resolved.address, declared.platform.keys)
    if isinstance(key, NoConversation):
        return RejectedMessage(declared.message, key.reason, key.detail)
    message, event, platform = declared.message, declared.event, declared.platform
    meant = event if event.kind not in _REWRITTEN else _as_meant(declared)
    is_ignored = declared.is_ignored
    arrived = ResolvedMessage(
        event=meant,
        session_key=key,
        former_keys=_former_keys(declared, resolved, key) if resolved.former else (),
        digests=digests(event, _numbering(declared, resolved), resolved.person),
        agent=declared.agent,
        policy=declared.policy,
        stored_at=message.stored_at,
        size_bytes=len(message.body),
        source=source_json(event),
        details=_details(declared, meant),
        person=resolved.person or resolved.address.participant,
        is_ignored=is_ignored,
        wants_reset_notice=platform.reset_notices,
        notices=platform.notices,
        moves_to=moves_to,
        trace=message.trace,
        command=None if is_ignored else declared.command,
        logged=message,
        targets=_digests_of(event.message_id, declared, resolved) if event.kind in _CHANGES else (),
        thread_of=_digests_of(event.reply_to, declared, resolved) if declared.opens_thread else (),
        pair=_pair(declared, resolved, key) if declared.is_of_bot and not is_ignored else None,
        counted=_counted(declared, resolved) if platform.limits and not is_ignored else None,
        delivery_policy=declared.delivery_policy,
    )
    if meant.reply_to and not is_ignored:
        arrived = arrived._replace(replied=_digests_of(meant.reply_to, declared, resolved))
    sender = event.sender
    if sender is not None and sender.alt_id and sender.id:
        is_unresolved = resolved.address is declared.address and not platform.person_aliases
        # The adapter may have sent only this id before.
        arrived = arrived._replace(other_ids=(sender.id,)) if is_unresolved else arrived
    if declared.is_of_staff:
        pause = declared.account.staff_pause
        arrived = arrived._replace(command=None, pair=None, counted=None, staff_pause=pause)
    if declared.address.profile != MAIN_PROFILE:
        former = former_digests(event, _numbering(declared, resolved), resolved.person)
        arrived = arrived._replace(former_digests=former)
    if event.kind is not Kind.ATTACHMENTS:
        return arrived
    return arrived._replace(files_of=_digests_of(event.message_id, declared, resolved))


def _former_keys(declared: DeclaredEvent, resolved: Resolved, key: str) -> tuple[str, ...]:
    former = [session_key(address, declared.platform.keys) for address in resolved.former]
    return tuple(other for other in former if isinstance(other, str) and other != key)


def _digests_of(
    message_id: str | None, declared: DeclaredEvent, resolved: Resolved
) -> tuple[bytes, ...]:
    address = _numbering(declared, resolved)
    return digests_of_message(message_id, declared.event, address, resolved.person)


def _numbering(declared: DeclaredEvent, resolved: Resolved) -> Address:
    """Return the address within which the platform's message ids are unique.

    It is the address of the event, unless the id of the DM was reassigned: the new holder of the
    id must not change messages of an earlier holder, and messages of the new holder must not
    count as duplicates of them.
    """
    if not resolved.is_handed_on or resolved.person is None:
        return declared.address
    return declared.address._replace(chat_id=resolved.person)


def _receipt_message(declared: DeclaredEvent, resolved: Resolved) -> ResolvedMessage:
    """Return a receipt: it belongs to no conversation by its key, and leaves no mark itself."""
    return ResolvedMessage(
        event=declared.event,
        session_key="",
        former_keys=(),
        digests=(),
        agent=declared.agent,
        policy=declared.policy,
        stored_at=declared.message.stored_at,
        size_bytes=len(declared.message.body),
        source="",
        details="",
        receipt=_receipt(declared, resolved),
    )


def _receipt(declared: DeclaredEvent, resolved: Resolved) -> ArrivedReceipt:
    event = declared.event
    receipt, key = event.receipt, None
    if receipt is not None:
        with suppress(ValueError):
            key = DeliveryKey(receipt.session_id, UUID(event.delivered))
    ids = receipt.message_ids if receipt is not None else ()
    # An empty id names nothing, and keeps the place of its piece.
    message_ids = ids or tuple(filter(None, (event.message_id,)))
    digests = tuple(_digests_of(message_id, declared, resolved) for message_id in message_ids)
    return ArrivedReceipt(key, receipt, message_ids, digests)


def _pair(declared: DeclaredEvent, resolved: Resolved, key: str) -> Pair:
    bot = resolved.person or resolved.address.participant or ""
    return pair_of(key, bot, declared.platform.bot_budget)


def _as_meant(declared: DeclaredEvent) -> InboundEvent:
    """Return an event as its turn or the transcript has to show it.

    An action is a message that answers the message with its control. A reaction and a change of the
    chat are context for later turns, unless reactions start turns of the agent. An edit has no
    command before its text.
    """
    event, sender = declared.event, declared.event.sender
    if event.kind is Kind.ACTION:
        return as_message(event)
    if event.kind is Kind.REACTION:
        return _as_reply(event, is_observed=not declared.agent.reaction_turns)
    if event.kind is Kind.SERVICE:
        return event.model_copy(update={"observed": True}) if event.service else event
    if event.counts_as_new and sender is not None and is_bot(sender) and declared.asks_nothing:
        return event.model_copy(update={"counts_as_new": None})
    command = _parsed(event, declared.platform, declared.account)
    if command is None or command.name is None or command.is_for_router_only:
        return event
    return event.model_copy(update={"text": command.message})


def as_message(action: InboundEvent) -> InboundEvent:
    """Return an action as a message: its text is what the person pressed."""
    press = action.press
    text = action.text or (press and (press.label or press.value)) or None
    changes = {
        "kind": Kind.MESSAGE,
        "text": text,
        "press": press or Press(),
        "message_id": None,
        "reply_to": action.message_id or action.reply_to,
    }
    return action.model_copy(update=changes)


def _as_reply(reaction: InboundEvent, *, is_observed: bool) -> InboundEvent:
    """Return a reaction or a vote as a reply to the message that it is about."""
    chosen = ", ".join(reaction.vote.options) if reaction.vote is not None else None
    changes = {
        "text": reaction.text or chosen,
        "message_id": None,
        "reply_to": reaction.message_id or reaction.reply_to,
        "observed": is_observed or None,
    }
    return reaction.model_copy(update=changes)


def _stops(command: Command | None) -> bool:
    """Return whether a message is only a stop command; rate limits must not block these."""
    return command is not None and command.name is CommandName.STOP and not command.rest


def _counted(declared: DeclaredEvent, resolved: Resolved) -> Counted | None:
    limits, event = declared.platform.limits, declared.event
    if limits is None or event.kind not in _OF_PEOPLE or _stops(declared.command):
        return None
    person = resolved.person or resolved.address.participant
    found = counters(limits, event.platform, event.account, chat_token_of(event), person)
    return Counted(found, declared.message) if found else None
