"""An inbound message with everything that a decision needs to know about it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from pydantic_core import to_json

from chatlane.domain.addressing.dedupe import unheard_digests
from chatlane.domain.catalog import DeliveryPolicy
from chatlane.domain.notices import ENGLISH, Notices
from chatlane.domain.outbound_builder import Speaking
from chatlane.domain.turns.claims import LONGEST_BURST
from chatlane_schemas.codec import encode_part
from chatlane_schemas.content.elements import CONTENT_FIELDS
from chatlane_schemas.content.visible_text import is_blank
from chatlane_schemas.inbound import Kind
from chatlane_schemas.outbound import OutboundKind
from chatlane_schemas.source import source_of

if TYPE_CHECKING:
    from datetime import datetime, timedelta

    from chatlane.domain.catalog import Agent, BusyMode
    from chatlane.domain.commands.command_words import Command
    from chatlane.domain.deliveries import ArrivedReceipt
    from chatlane.domain.limits.message_limits import Counted, Pair
    from chatlane.domain.log import LogMessage, Trace
    from chatlane.domain.policy import ResetPolicy
    from chatlane.domain.states import Session
    from chatlane_schemas.inbound import InboundEvent

_STARTS_TURN: Final = frozenset({Kind.MESSAGE, Kind.ACTION, Kind.SYSTEM})
_PLAIN_DETAILS: Final = '{"kind":"message"}'
_SENT_DETAILS: Final = '{"kind":"message","sent_at":%s}'
_CALM: Final = frozenset({Kind.SYSTEM, Kind.REACTION})
_DETAIL_FIELDS: Final = {"kind", "sent_at", "album_id", *CONTENT_FIELDS}
_RARE_FIELDS: Final = frozenset({"album_id", *CONTENT_FIELDS})
_DETAIL_FIELDS_WITH_FILES: Final = {*_DETAIL_FIELDS, "attachments"}


_DEFAULT_POLICY: Final = DeliveryPolicy()


def starts_turn(event: InboundEvent, agent: Agent) -> bool:
    """Return whether an agent answers an event, as far as the kind of the event decides."""
    if event.observed:
        return False
    return event.kind in _STARTS_TURN or (event.kind is Kind.REACTION and agent.reaction_turns)


class ResolvedMessage(NamedTuple):
    """One inbound message with everything a decision needs to know about it.

    Attributes:
        former_keys: Keys under which the same conversation may have begun.
        digests: Identify repeats; ids of the effects are derived from the first one.
        stored_at: When JetStream stored it: the only clock of the decision.
        source: Its `Source` as JSON text.
        details: Its stored fields besides text and source, as JSON text.
        person: Name of the sender's identity, if an id came.
        is_ignored: It comes from a bot that may not speak here, or is an echo of this bot.
        wants_reset_notice: Whether its platform wants notices of resets by time.
        notices: The texts in the language of its platform.
        moves_to: The new id of its chat, if the event was the first to report it.
        trace: The trace context it came with.
        command: Its command to the router, if it is not a message to the agent.
        counted: The limits it counts towards; None where there are none.
        delivery_policy: The policy of its platform for messages that meet a running turn.
        busy: The busy mode, if the message sets one.
        targets: Digests of the message that it edits or deletes.
        thread_of: Digests of the message that it opens a thread on.
        files_of: Digests of the message whose files it brings.
        forgotten: Messages of its person up to this time were erased, if any were.
        other_ids: Other ids of the sender, on a platform with one id per person.
        pair: The other bot that wrote it and the chat, if it may speak; None for people.
        former_digests: Its digests from before profiles counted.
        staff_pause: How long the agent waits after it, if one of our people wrote it; else None.
        receipt: What it reports about an outbound message, if it is a receipt.
        replied: Digests of the message that it answers.
        logged: The message as the log has it; None for one that came by a request.
    """

    event: InboundEvent
    session_key: str
    former_keys: tuple[str, ...]
    digests: tuple[bytes, ...]
    agent: Agent
    policy: ResetPolicy
    stored_at: datetime
    size_bytes: int
    source: str
    details: str
    person: str | None = None
    is_ignored: bool = False
    wants_reset_notice: bool = True
    notices: Notices = ENGLISH
    moves_to: str | None = None
    trace: Trace | None = None
    command: Command | None = None
    targets: tuple[bytes, ...] = ()
    thread_of: tuple[bytes, ...] = ()
    pair: Pair | None = None
    counted: Counted | None = None
    delivery_policy: DeliveryPolicy = _DEFAULT_POLICY
    busy: BusyMode | None = None
    files_of: tuple[bytes, ...] = ()
    forgotten: datetime | None = None
    other_ids: tuple[str, ...] = ()
    former_digests: tuple[bytes, ...] = ()
    receipt: ArrivedReceipt | None = None
    staff_pause: timedelta | None = None
    replied: tuple[bytes, ...] = ()
    logged: LogMessage | None = None

    @property
    def starts_turn(self) -> bool:
        """Return whether its agent answers it, as far as its kind decides."""
        return starts_turn(self.event, self.agent)

    @property
    def is_routed(self) -> bool:
        """Return whether it starts a turn or, if our people wrote it, is recorded as ours."""
        if self.staff_pause is not None:
            return self.event.kind in _STARTS_TURN
        return self.starts_turn

    @property
    def unheard_digests(self) -> tuple[bytes, ...]:
        """Return the digests that mark it if it is an ignored message of a bot."""
        return () if self.pair is None else unheard_digests(self.digests)

    @property
    def rest(self) -> timedelta | None:
        """Return how long it waits for others of its burst or album; None for not at all."""
        delivery_policy = self.delivery_policy
        if self.event.kind is Kind.SYSTEM:
            return None
        if self.event.album_id is not None:
            return max(delivery_policy.debounce, delivery_policy.album_wait) or None
        return delivery_policy.debounce or None

    @property
    def rest_cap(self) -> timedelta:
        """Return the longest delay of a turn for a burst that it is part of."""
        return (
            LONGEST_BURST if self.event.album_id is not None else self.delivery_policy.debounce_cap
        )

    def notice_in(self, session: Session) -> Speaking:
        """Return the sender of a notice to the chat of this message."""
        return Speaking(
            session,
            self.agent.name,
            source_of(self.event),
            self.stored_at,
            kind=OutboundKind.NOTICE,
        )

    @property
    def busy_mode(self) -> BusyMode:
        """Return its effect on a running turn; a timer or a reaction never disturbs one."""
        if self.busy is not None:
            return self.busy
        return "collect" if self.event.kind in _CALM else self.delivery_policy.busy


def says_nothing(event: InboundEvent) -> bool:
    """Return whether an event has nothing to show; a platform may take back reactions unnamed."""
    if event.kind is Kind.REACTION:
        return is_blank(event.text or "") and not event.removed
    return event.kind is not Kind.SERVICE and event.is_empty


def author_of(event: InboundEvent) -> str | None:
    """Return the id of the sender of an event, as rows name it."""
    sender = event.sender
    return None if sender is None else (sender.id or sender.alt_id)


def details_json(event: InboundEvent) -> str:
    """Return the stored fields of a message besides its text and source."""
    if event.attachments:
        return encode_part(event, _DETAIL_FIELDS_WITH_FILES)
    # An empty list of attachments would not be left out automatically.
    if event.kind is Kind.MESSAGE and event.model_fields_set.isdisjoint(_RARE_FIELDS):
        sent_at = event.sent_at
        # Nearly all are like this; the serializer of the event would take three times as long.
        return _PLAIN_DETAILS if sent_at is None else _SENT_DETAILS % to_json(sent_at).decode()
    return encode_part(event, _DETAIL_FIELDS)
