"""Read the data that a batch needs, let the domain decide, and write the outcome."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from chatlane.decisions import edits, replies
from chatlane.decisions.busy_turns import apply_busy_policy
from chatlane.decisions.command_executor import CommandExecutor
from chatlane.decisions.command_inputs import name_of, open_reads
from chatlane.decisions.edits import bring_files
from chatlane.decisions.erased_messages import leave_out_erased
from chatlane.decisions.inbound_decoder import ValidatedEvent, arrive, prepare_inbound
from chatlane.decisions.lane_merge import LaneMerger, update_addresses
from chatlane.decisions.limits.message_limits import MessageLimits
from chatlane.decisions.receipts import ReceiptApplier
from chatlane.decisions.result_applier import ResultApplier, prepare_result
from chatlane.domain.addressing.keys import parse_session_key
from chatlane.domain.commands.command_handlers import CommandHandlers
from chatlane.domain.commands.session_summaries import SessionSummaries
from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.effects import Effects
from chatlane.domain.lanes import Placement, is_anothers
from chatlane.domain.turns.turn_results import ArrivedResult
from chatlane.observability.logs import get_logger
from chatlane.store import questions as open_questions
from chatlane.store import turns
from chatlane.store.addressing import aliases, dedupe_marks, identities, lanes
from chatlane.store.conversations import lineage, session_summaries, sessions
from chatlane.store.turns import DraftRow
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.events import EndReason
from chatlane_schemas.inbound import Kind

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from datetime import datetime
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.decisions.unit_of_work import UnitOfWork
    from chatlane.domain.addressing.alias_rows import AliasId
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.deliveries import ArrivedReceipt
    from chatlane.domain.edits import Originals
    from chatlane.domain.erasure_key import ErasureKey
    from chatlane.domain.log import LogMessage
    from chatlane.domain.replies import Replies
    from chatlane.domain.resolved_message import ResolvedMessage
    from chatlane.domain.states import Lane, Session
    from chatlane.domain.turns.questions import OpenQuestion
    from chatlane.store.addressing.dedupe_marks import Marks

_log = get_logger("deciding")


class DecodedMessage(NamedTuple):
    """One message of a log and its decoded content."""

    message: LogMessage
    content: ValidatedEvent | ArrivedResult | RejectedMessage
    is_command: bool = False


def decoded(
    message: LogMessage, catalog: Catalog, *, is_killer: bool = False, is_old: bool = False
) -> DecodedMessage:
    """Decode one message; reject a message that crashed its readers without decoding it.

    Args:
        is_killer: Whether the message crashed its readers.
        is_old: Whether the message was stored before this router started.
    """
    if is_killer:
        return DecodedMessage(message, RejectedMessage(message, DeadReason.PROCESS_KILLER))
    try:
        if message.log == "inbound":
            prepared = prepare_inbound(message, catalog)
            is_command = (
                isinstance(prepared, ValidatedEvent) and prepared.declared.command is not None
            )
            return DecodedMessage(message, prepared, is_command)
        return DecodedMessage(message, prepare_result(message, is_old=is_old))
    except Exception as error:  # noqa: BLE001 - a bug, and a retry would fail again
        _log.exception("decode_failed", partition=message.partition, seq=message.sequence)
        return DecodedMessage(
            message, RejectedMessage(message, DeadReason.INTERNAL_ERROR, type(error).__name__)
        )


def commands_in(messages: Iterable[DecodedMessage | None]) -> int:
    """Return how many of these messages are commands."""
    return sum(message.is_command for message in messages if message is not None)


@dataclass(slots=True)
class BatchDecision:
    """Make one attempt at a batch; its state is invalid once its transaction fails."""

    catalog: Catalog
    slots: int
    erasure_key: ErasureKey | None = field(default=None, repr=False)
    _effects: Effects = field(default_factory=Effects, init=False)

    async def run(self, unit_of_work: UnitOfWork, messages: Sequence[DecodedMessage]) -> None:
        """Decide all messages and write the outcome.

        Raises:
            SupersededError: Another router decided about the same people or lanes meanwhile.
            ResultAheadError: A result has to be tried alone, or later.
        """
        contents = [message.content for message in messages]
        prepared = [content for content in contents if isinstance(content, ValidatedEvent)]
        results = [content for content in contents if isinstance(content, ArrivedResult)]
        for content in contents:
            if isinstance(content, RejectedMessage):
                content.add_dead_letter(self._effects)
        arrived = await self._address(unit_of_work, prepared)
        spoken = [message for message in arrived if message.receipt is None]
        loaded = await self._load(unit_of_work, spoken, results)
        receipts = await ReceiptApplier.load(unit_of_work.connection, arrived)
        unit_of_work.lap("read")
        for message in arrived:
            if message.receipt is None:
                await loaded.place(message)
            else:
                loaded.take_receipt(message, message.receipt, receipts)
        await loaded.void_emptied()
        if results:
            await loaded.settle(results, is_alone=len(messages) == 1)
        unit_of_work.lap("decide")
        await loaded.write()
        unit_of_work.lap("write")

    async def _address(
        self, unit_of_work: UnitOfWork, prepared: Sequence[ValidatedEvent]
    ) -> list[ResolvedMessage]:
        forgotten: dict[LogMessage, datetime] = {}
        if prepared and self.erasure_key is not None:
            prepared, forgotten = await leave_out_erased(
                unit_of_work.connection, self.erasure_key, prepared, self._effects
            )
        if not prepared:
            return []
        wanted: set[AliasId] = set().union(*(message.lookups for message in prepared))
        addresses = [message.declared.address for message in prepared]
        book = await aliases.read_book(unit_of_work.connection, wanted, addresses)
        placed: list[ResolvedMessage] = []
        for message in prepared:
            arrived = arrive(message, book)
            if isinstance(arrived, RejectedMessage):
                arrived.add_dead_letter(self._effects)
                continue
            until = forgotten.get(message.declared.message)
            placed.append(arrived if until is None else arrived._replace(forgotten=until))
        await aliases.write(unit_of_work.connection, book.changes())
        return placed

    async def _load(
        self,
        unit_of_work: UnitOfWork,
        arrived: Sequence[ResolvedMessage],
        results: Sequence[ArrivedResult],
    ) -> BatchState:
        connection = unit_of_work.connection
        limits = await MessageLimits.load(connection, arrived)
        keys = {key for message in arrived for key in (message.session_key, *message.former_keys)}
        bound = await lanes.find(connection, keys)
        session_ids = {lane.session_id for lane in bound.values()}
        session_ids |= {result.result.session_id for result in results}
        drafts = _drafts_in(arrived)
        if drafts:
            drafted_in = await turns.find_sessions(connection, {draft.turn_id for draft in drafts})
            session_ids |= set(drafted_in.values())
        reads = await open_reads(connection, arrived, self.catalog)
        if reads is not None:
            session_ids |= await reads.find_targets()
        targets = edits.targets_of(arrived)
        if targets:
            session_ids |= await edits.find_sessions(connection, targets)
        questions = await edits.find_questions(connection, arrived)
        asked_in = {session_id for found in questions.values() for session_id in found}
        session_ids |= asked_in
        locked = await sessions.lock(connection, session_ids)
        await turns.note_drafts(connection, drafts)
        await _follow(connection, bound, locked)
        owners = await self._find_owners(connection, arrived, bound, locked, questions)
        if reads is not None:
            owners |= reads.owners
        marks = await _probe(connection, arrived, targets)
        busy = {session.active_turn for session in locked.values() if arrived} - {None}
        found_questions = await open_questions.find_open(connection, filter(None, busy))
        loaded = BatchState(
            unit_of_work,
            self.catalog,
            self.slots,
            bound=bound,
            locked=locked,
            marks=marks,
            limits=limits,
            questions=questions,
            open_questions=found_questions,
            owners=owners,
            replied=await replies.load(connection, arrived, bound),
            summaries=SessionSummaries()
            if reads is None
            else await reads.read(bound, locked, asked_in),
            effects=self._effects,
        )
        if targets or marks.early:
            await loaded.load_originals(arrived, session_ids | locked.keys())
        return loaded

    async def _find_owners(
        self,
        connection: PoolConnectionProxy,
        arrived: Sequence[ResolvedMessage],
        bound: Mapping[str, Lane],
        locked: Mapping[UUID, Session],
        questions: Mapping[bytes, Sequence[UUID]],
    ) -> dict[str, frozenset[str]]:
        """Return the owner names of people with several names, by current owner.

        They are read only if a lane points to a session with another owner than the person's
        current one, if ids turn out to belong to one person, or if messages may continue in
        sessions that they find without their lane.
        """
        unsure = [
            message
            for message in arrived
            if questions
            or message.former_keys
            or (
                (lane := bound.get(message.session_key)) is not None
                and (session := locked.get(lane.session_id)) is not None
                and is_anothers(message, session.owner, {})
            )
        ]
        names = {
            name
            for message in unsure
            if self.catalog.platforms[message.event.platform].person_aliases
            and (name := name_of(message)) is not None
        }
        found = await identities.find_by_names(connection, names)
        return {identity.owner: identity.owners for identity in found.values()}


def _drafts_in(arrived: Iterable[ResolvedMessage]) -> list[DraftRow]:
    """Return the drafts that adapters report, in the order of the log."""
    return [
        DraftRow(event.draft_of, event.platform, event.account, event.message_id)
        for event in (message.event for message in arrived)
        if event.kind is Kind.RECEIPT and event.draft_of is not None and event.message_id
    ]


async def _probe(
    connection: PoolConnectionProxy, arrived: Sequence[ResolvedMessage], targets: set[bytes]
) -> Marks:
    """Return the dedupe marks of a batch, including marks that older routers wrote."""
    digests = targets.union(*(message.digests for message in arrived))
    former: list[tuple[bytes, ResolvedMessage]] = []
    for message in arrived:
        if message.pair is not None:
            digests.update(message.unheard_digests)
        if message.former_digests:
            former += [(digest, message) for digest in message.former_digests]
    older = {digest for digest, _ in former}
    marks = await dedupe_marks.probe(connection, digests | older)
    found = older & marks.known
    # Older routers did not distinguish profiles: their marks may be of another profile.
    keys = await dedupe_marks.find_keys(connection, found) if found else {}
    for digest, message in former:
        key = keys.get(digest)
        if key and parse_session_key(key).profile == parse_session_key(message.session_key).profile:
            marks.known.update(message.digests)
    return marks


async def _follow(
    connection: PoolConnectionProxy, bound: Mapping[str, Lane], locked: dict[UUID, Session]
) -> None:
    """Point lanes of compacted sessions to the sessions that continue their conversations.

    A compaction moves the lanes of its session; this covers lanes that were pointed to the
    compacted session in another way.
    """
    ended = [session for session in locked.values() if session.end_reason is not None]
    left = {session.id for session in ended if session.end_reason == EndReason.COMPRESSION}
    if not left:
        return
    tips = await lineage.find_tips(connection, left)
    locked |= await sessions.lock(connection, set(tips.values()) - locked.keys())
    for lane in bound.values():
        lane.session_id = tips.get(lane.session_id, lane.session_id)


@dataclass
class BatchState:
    """Hold the rows of one batch and the decisions that are not written yet.

    Nearly every batch is written once, at its end. Only merged lanes and moved chats change rows
    other than by effects, so the decisions before them are written first: then these messages
    are decided on the same rows as if they had come alone.
    """

    unit_of_work: UnitOfWork
    catalog: Catalog
    slots: int
    bound: dict[str, Lane]
    locked: dict[UUID, Session]
    marks: Marks
    summaries: SessionSummaries
    limits: MessageLimits
    questions: Mapping[bytes, Sequence[UUID]]
    open_questions: dict[UUID, OpenQuestion]
    owners: Mapping[str, frozenset[str]]
    replied: Replies | None
    effects: Effects
    _arrived: Sequence[ResolvedMessage] = field(default=(), init=False)
    _homes: set[UUID] = field(default_factory=set, init=False)
    _originals: Originals | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        self._start(self.effects)

    def _start(self, effects: Effects) -> None:
        self.effects = effects
        self._placement = Placement(
            self.bound,
            self.locked,
            self.marks.known,
            effects,
            self.slots,
            originals=self._originals,
            bots=self.limits.bots,
            questions=self.questions,
            open_questions=self.open_questions,
            owners=self.owners,
            replies=self.replied,
            copies=self.marks.copies,
        )
        self._command_handlers = CommandHandlers(
            self._placement, self.summaries, effects, self.catalog
        )

    async def load_originals(
        self, arrived: Sequence[ResolvedMessage], session_ids: set[UUID]
    ) -> None:
        """Read the messages that edits and deletes change, in their database state."""
        self._arrived = arrived
        self._homes = session_ids
        emptied = self._originals.emptied if self._originals else set()
        self._originals = await edits.load(
            self.unit_of_work.connection,
            arrived,
            self.marks.early,
            bound=self.bound,
            locked_sessions=session_ids,
        )
        self._originals.emptied |= emptied
        self._start(self.effects)

    async def _reload_originals(self) -> None:
        """Read the originals again after rows were moved or deleted other than by effects."""
        if self._originals is not None:
            await self._flush()
            # This batch has also locked the sessions that it wrote since.
            await self.load_originals(self._arrived, self._homes | self.locked.keys())

    async def place(self, message: ResolvedMessage) -> None:
        """Decide the next message of the inbound log."""
        self._placement.note_end(message)
        if message.counted and self._is_over_a_limit(message):
            return
        connection = self.unit_of_work.connection
        if not self.bound.keys().isdisjoint(message.former_keys):
            await self._flush()
            merger = LaneMerger(connection, self.bound, self.locked, self.effects, self.owners)
            await merger.join(message)
            await self._reload_originals()
        if message.event.kind is Kind.ATTACHMENTS:
            message = await self._bring_files(message)
        if message.command is None:
            self._placement.place(message)
        else:
            await self._obey(message)
        if message.moves_to is not None:
            await self._flush()
            await update_addresses(connection, message, self.catalog)

    def take_receipt(
        self, message: ResolvedMessage, arrived: ArrivedReceipt, receipts: ReceiptApplier
    ) -> None:
        """Apply the receipt of an adapter; the platform's copy of its message is a repeat."""
        receipts.apply(message, arrived, self.effects)
        self.marks.known.update(digest for piece in arrived.digests for digest in piece)

    async def _bring_files(self, message: ResolvedMessage) -> ResolvedMessage:
        lane = self.bound.get(message.session_key)
        is_repeat = not self.marks.known.isdisjoint(message.digests)
        if lane is None or message.is_ignored or is_repeat:
            return message
        await self._flush()
        here = self._placement.find_session(message)
        if here is None:
            return message
        others = self._left_behind(message, here)
        left = await bring_files(self.unit_of_work.connection, message, here, others, self.effects)
        await self._reload_originals()
        return left

    def _left_behind(self, message: ResolvedMessage, here: Session) -> list[Session]:
        """Return the other sessions in which a message may be pending although its lane moved."""
        session_ids = {
            session_id
            for digest in message.files_of
            for session_id in self.questions.get(digest, ())
        }
        # The marks do not cover messages of this batch.
        session_ids |= {
            session.id
            for session in self.locked.values()
            if session.session_key == message.session_key
        }
        return [
            self.locked[session_id]
            for session_id in sorted(session_ids - {here.id})
            if session_id in self.locked
        ]

    def _is_over_a_limit(self, message: ResolvedMessage) -> bool:
        if not self.marks.known.isdisjoint(message.digests):
            # A duplicate of an admitted message.
            return False
        session = self._placement.find_session(message)
        return self.limits.refuses(message, session, self.effects)

    async def _obey(self, message: ResolvedMessage) -> None:
        invocation = self._command_handlers.accept(message)
        if invocation is None:
            return
        # Read once: executing the command can change the value.
        needs_database = invocation.needs_database
        if needs_database:
            await self._flush()
            executor = CommandExecutor(
                self.unit_of_work.connection,
                self._command_handlers,
                self.catalog,
                self.locked,
                self.slots,
            )
            reply = await executor.run_command(invocation)
        else:
            reply = self._command_handlers.run_command(invocation)
        self._command_handlers.answer(invocation, reply)
        if needs_database:
            await self._reload_originals()
        self._command_handlers.bring_rest(invocation)

    async def void_emptied(self) -> None:
        """End turns whose messages were all deleted, before a worker answers them."""
        if self._originals is None or not self._originals.emptied:
            return
        await self._flush()
        connection, emptied = self.unit_of_work.connection, self._originals.emptied
        await edits.void_emptied(connection, emptied, self.locked, self.effects)
        await self._flush()

    async def settle(self, results: Sequence[ArrivedResult], *, is_alone: bool) -> None:
        """Apply the results of workers."""
        await apply_busy_policy(self.unit_of_work.connection, self.effects)
        applier = ResultApplier(self.catalog, self.locked, self.effects, is_alone=is_alone)
        await applier.settle(self.unit_of_work.connection, results)

    async def write(self) -> None:
        """Write the decisions."""
        await apply_busy_policy(self.unit_of_work.connection, self.effects)
        await session_summaries.write_shown(
            self.unit_of_work.connection, self.summaries.shown.take_changes()
        )
        await self.unit_of_work.write(
            self.effects, lanes_of=self.bound.values(), sessions_of=self.locked.values()
        )
        await self.limits.write(self.unit_of_work.connection)

    async def _flush(self) -> None:
        await self.write()
        self.summaries.waiting.update(row.session_id for row in self.effects.waiting)
        for lane in self.bound.values():
            lane.bound_to = lane.session_id
        for session in self.locked.values():
            session.is_new = False
        self._start(Effects())
