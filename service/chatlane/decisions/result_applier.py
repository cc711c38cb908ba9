"""Apply results of workers: ends of turns, and answers of `stream` agents."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import TYPE_CHECKING
from uuid import UUID

from chatlane.decisions.claim_recovery import recall, require_known
from chatlane.decisions.erased_messages import note_erased
from chatlane.domain.addressing.alias_rows import AliasId, AliasKind
from chatlane.domain.addressing.owners import parse_owner_text
from chatlane.domain.addressing.people import is_lasting, person_form
from chatlane.domain.addressing.sources import class_of
from chatlane.domain.catalog import Agent
from chatlane.domain.dead_letters import RejectedMessage
from chatlane.domain.turns.turn_results import ArrivedResult, Question, answer_stream, settle
from chatlane.failpoints import RouterPoint, hit
from chatlane.privacy import erasure_list_sql
from chatlane.store import agent_pauses, pending_messages, turns
from chatlane.store.addressing import identities
from chatlane.store.addressing.identities import Name
from chatlane.store.history import messages
from chatlane_schemas.codec import DecodeError, decode
from chatlane_schemas.dead import DeadReason
from chatlane_schemas.results import ResultMessage
from chatlane_schemas.topology.streams import StreamName
from chatlane_schemas.topology.subjects import SubjectError, parse_rlog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import datetime

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.addressing.owners import Identity
    from chatlane.domain.catalog import Catalog
    from chatlane.domain.effects import Effects
    from chatlane.domain.log import LogMessage
    from chatlane.domain.states import Session, Turn
    from chatlane_schemas.source import Source


def prepare_result(message: LogMessage, *, is_old: bool = False) -> ArrivedResult | RejectedMessage:
    """Decode one message of the results log, or reject it with a reason.

    Args:
        is_old: Whether it was stored before this router started.
    """
    try:
        subject = parse_rlog(message.subject)
        result = decode(ResultMessage, message.body)
    except SubjectError as error:
        return RejectedMessage(message, DeadReason.SUBJECT_MISMATCH, str(error))
    except DecodeError as error:
        return RejectedMessage(message, error.reason, error.detail)
    if subject.session_id != result.session_id:
        return RejectedMessage(message, DeadReason.SUBJECT_MISMATCH, "session_id")
    return ArrivedResult(
        result=result,
        agent=subject.agent,
        stored_at=message.stored_at,
        body=message.body,
        subject=message.subject,
        partition=message.partition,
        sequence=message.sequence,
        trace=message.trace,
        is_old=is_old,
        may_wait=is_old,
    )


@dataclass(slots=True)
class ResultApplier:
    """Apply the results of one batch.

    Attributes:
        sessions: The locked sessions by id; their counters change in place.
        effects: The effects of the whole batch: messages placed before count as pending.
        is_alone: Whether the batch is one message.
    """

    catalog: Catalog
    sessions: Mapping[UUID, Session]
    effects: Effects
    is_alone: bool = False
    _found: dict[UUID, Turn] = field(default_factory=dict, init=False)
    _questions: dict[tuple[UUID, int], tuple[UUID, Question, str | None]] = field(
        default_factory=dict, init=False
    )
    _busy: set[UUID] = field(default_factory=set, init=False)

    async def settle(
        self, connection: PoolConnectionProxy, results: Sequence[ArrivedResult]
    ) -> None:
        """Apply results one after the other, in log order.

        Raises:
            ResultAheadError: A result has to be tried alone, or later.
        """
        turn_ids = {
            arrived.result.turn_id for arrived in results if arrived.result.turn_id is not None
        }
        self._found = await turns.lock(connection, turn_ids) if turn_ids else {}
        wanted = {key for arrived in results if (key := _question_key(arrived)) is not None}
        self._questions = await messages.find_questions(connection, list(wanted)) if wanted else {}
        results = await self._without_erased(connection, results)
        for arrived in results:
            if arrived.is_old:
                await self._recall(connection, arrived)
        # In most installations no id is ever reassigned.
        if await identities.has_former_ids(connection):
            await self._readdress(connection, results)
        self._busy = await self._sessions_with_waiting(connection, results)
        for arrived in results:
            begin = len(self.effects.publications)
            self._settle_one(arrived)
            self.effects.trace(begin, arrived.trace)
        await self._write_pauses(connection)
        hit(RouterPoint.RESULTS_SETTLED)

    async def _write_pauses(self, connection: PoolConnectionProxy) -> None:
        """Record which agents are unavailable or answer again, before later tables are locked."""
        effects = self.effects
        if (back := effects.available - effects.unavailable.keys()) and await agent_pauses.end(
            connection, back
        ):
            effects.due_within(timedelta(0))
        await agent_pauses.pause(connection, effects.unavailable)

    async def _readdress(
        self, connection: PoolConnectionProxy, results: Sequence[ArrivedResult]
    ) -> None:
        """Replace addresses whose id was reassigned, so that no answer reaches the new holder."""
        of_turns = [turn for turn in self._found.values() if turn.source is not None]
        sources = [(turn.session_id, turn.source) for turn in of_turns]
        sources += [
            (session_id, question.source) for session_id, question, _ in self._questions.values()
        ]
        owners = [
            session.owner if (session := self.sessions.get(session_id)) else None
            for session_id, _ in sources
        ]
        present = await find_present(
            connection,
            [(owner, source) for owner, (_, source) in zip(owners, sources, strict=True)],
            max(arrived.stored_at for arrived in results),
        )
        for turn, source in zip(of_turns, present, strict=False):
            turn.source = source
        for key, source in zip([*self._questions], present[len(of_turns) :], strict=True):
            session_id, question, known = self._questions[key]
            if source is not question.source:
                self._questions[key] = session_id, replace(question, source=source), known

    async def _recall(self, connection: PoolConnectionProxy, arrived: ArrivedResult) -> None:
        """Find the turn or question of an old result, in case the database was restored."""
        session = self.sessions.get(arrived.result.session_id)
        turn_id = arrived.result.turn_id
        if session is None or (turn_id is None and _question_key(arrived) not in self._questions):
            require_known(arrived)
        elif turn_id is not None:
            turn = await recall(
                connection, arrived, session, self._found.get(turn_id), is_alone=self.is_alone
            )
            if turn is not None:
                self._found[turn_id] = turn

    async def _without_erased(
        self, connection: PoolConnectionProxy, results: Sequence[ArrivedResult]
    ) -> Sequence[ArrivedResult]:
        """Return the results without answers to erased messages, which are not kept.

        Only results without effect are looked up, and these are rare.
        """
        idle = [arrived for arrived in results if not self._counts(arrived)]
        if not idle:
            return results
        ids = {id_ for arrived in idle for id_ in _ids_of(arrived)}
        erased = await erasure_list_sql.find_ids(connection, ids)
        dropped = {arrived.sequence for arrived in idle if not erased.isdisjoint(_ids_of(arrived))}
        for arrived in idle:
            if arrived.sequence in dropped:
                note_erased(self.effects, StreamName.RESULTS, arrived.sequence, arrived.stored_at)
        return [arrived for arrived in results if arrived.sequence not in dropped]

    def _counts(self, arrived: ArrivedResult) -> bool:
        result = arrived.result
        if result.session_id not in self.sessions:
            return False
        if result.turn_id is None:
            return _question_key(arrived) in self._questions
        turn = self._found.get(result.turn_id)
        return turn is not None and turn.is_live and turn.token == result.token

    def _settle_one(self, arrived: ArrivedResult) -> None:
        session = self.sessions.get(arrived.result.session_id)
        if session is None:
            arrived.reject(DeadReason.UNKNOWN_SESSION, self.effects)
        elif arrived.result.turn_id is not None:
            turn = self._found.get(arrived.result.turn_id)
            settle(
                arrived,
                session,
                turn,
                agent=self._declared(arrived.agent),
                has_waiting=session.id in self._busy,
                notices=self.catalog.notices_of(session.platform),
                effects=self.effects,
            )
        else:
            self._answer(arrived, session)

    async def _sessions_with_waiting(
        self, connection: PoolConnectionProxy, results: Sequence[ArrivedResult]
    ) -> set[UUID]:
        ended = {
            arrived.result.session_id for arrived in results if arrived.result.turn_id is not None
        }
        stored = await pending_messages.sessions_with_waiting(connection, ended) if ended else set()
        return stored | {row.session_id for row in self.effects.waiting}

    def _answer(self, arrived: ArrivedResult, session: Session) -> None:
        key = _question_key(arrived)
        session_id, question, known = (
            self._questions.get(key, (None, None, None)) if key else (None, None, None)
        )
        if session_id != session.id:
            question = None
        answer_stream(arrived, session, question, known, self.effects)
        if key and question and known is None and session.agent == arrived.agent:
            # Another answer to the same part in this batch counts as late.
            self._questions[key] = (session.id, question, arrived.result.id)

    def _declared(self, name: str) -> Agent:
        # The agent may have been removed from the settings while its turns were running.
        return self.catalog.agents.get(name) or Agent(name, max_attempts=1)


def _ids_of(arrived: ArrivedResult) -> set[UUID]:
    question = _question_key(arrived)
    ids = (arrived.result.session_id, arrived.result.turn_id, question and question[0])
    return {id_ for id_ in ids if id_ is not None}


def _question_key(arrived: ArrivedResult) -> tuple[UUID, int] | None:
    if arrived.result.reply_to is None:
        return None
    try:
        return UUID(arrived.result.reply_to), arrived.result.part
    except ValueError:
        return None


async def find_present(
    connection: PoolConnectionProxy,
    targets: Sequence[tuple[str | None, Source | None]],
    at: datetime,
) -> list[Source | None]:
    """Return the current address of each target, in the order given.

    An id that now belongs to another person is replaced by the platform's permanent id of the
    account. If that is unknown, the address is None: the answer stays in the transcript only.

    Args:
        targets: The owner of each session, and the source of its question.
    """
    ids = [_dm_of(target) if owner else None for owner, target in targets]
    handed_on = await identities.find_handed_on(connection, filter(None, ids))
    if not handed_on:
        return [target for _, target in targets]
    names = {owner: Name(*parse_owner_text(owner)) for owner, _ in targets if owner is not None}
    found = await identities.find_by_names(connection, names.values())
    return [
        target
        if owner is None or target is None or chat_id not in handed_on
        else _present(target, found[names[owner]], at)
        for (owner, target), chat_id in zip(targets, ids, strict=True)
    ]


def _dm_of(target: Source | None) -> AliasId | None:
    chat = None if target is None else target.chat
    if target is None or chat is None or not chat.id or class_of(chat.kind) != "dm":
        return None
    form = person_form(target.platform, chat.id)
    if form is None:
        return None
    return AliasId(target.platform, target.account, AliasKind.PERSON, form)


def _present(target: Source, identity: Identity, at: datetime) -> Source | None:
    chat = target.chat
    if chat is None or chat.id is None or identity.has(chat.id, at):
        return target
    if not identity.spans_of(chat.id):
        # The chat id is not the id of the person.
        return target
    lasting = (
        span.form
        for span in identity.spans
        if is_lasting(identity.platform, span.form) and span.covers(at)
    )
    new = next(lasting, None)
    if new is None:
        return None
    return target.model_copy(update={"chat": chat.model_copy(update={"id": new})})
