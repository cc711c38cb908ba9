"""Make the changes that callers of the API request, each once."""

from __future__ import annotations

import asyncio
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeGuard

from chatlane.importer.exports import uploads
from chatlane.importer.exports.uploads import ImportLimits, OverLimitError
from chatlane.privacy import erasure_requests_sql
from chatlane.requests import (
    bulk_session_operations,
    dead_letters,
    lane_changes,
    outbox,
    person_state,
    projects,
    rooms,
    session_changes,
    session_creation,
    takeovers,
    transcripts,
)
from chatlane.requests.context import Call
from chatlane.requests.session_lookup import decide_session_change
from chatlane.requests.turns import cancellation, questions, turn_messages
from chatlane.store.api_requests import answer_once
from chatlane_schemas.questions import QuestionReply, TurnAsk, TurnReply, TurnSay
from chatlane_schemas.session_api import session_changes as changes
from chatlane_schemas.session_api import session_life as life
from chatlane_schemas.session_api.catalogue import (
    SessionLabel,
    SessionPin,
    SessionProtect,
    SessionTree,
)
from chatlane_schemas.session_api.operators.dead_letters import LetterDrop, LetterRetry
from chatlane_schemas.session_api.outbox import OutboxReply, OutboxSend
from chatlane_schemas.session_api.person_state import (
    PersonErase,
    PersonErasureReply,
    SessionDraft,
    SessionDraftReply,
    SessionRead,
    SessionReadReply,
)
from chatlane_schemas.session_api.projects import (
    ProjectArrange,
    ProjectCreate,
    ProjectListReply,
    ProjectRemove,
    ProjectReply,
    ProjectUpdate,
    SessionMove,
)
from chatlane_schemas.session_api.rooms import RoomMembers
from chatlane_schemas.session_api.session_openings import (
    SessionCreate,
    SessionImport,
    SessionImportReply,
    SessionSubmit,
)
from chatlane_schemas.session_api.session_sweeps import (
    SessionCleanup,
    SessionPrune,
    SessionRemove,
    SessionSweepReply,
)
from chatlane_schemas.session_api.sessions import ApiReply, SessionReply
from chatlane_schemas.session_api.transcripts import (
    TranscriptAppend,
    TranscriptChange,
    TranscriptChanged,
    TranscriptCompact,
    TranscriptReplace,
    TranscriptRestore,
    TranscriptRetry,
    TranscriptRewind,
)
from chatlane_schemas.turns import StopReply, TurnCancel

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from datetime import datetime

    from chatlane.decisions.unit_of_work import UnitOfWorkFactory
    from chatlane.domain.catalog import Catalog
    from chatlane.postgres.pool import Store
    from chatlane.requests.session_lookup import Decide
    from chatlane_schemas.envelope import Envelope


class Change(NamedTuple):
    """A request that changes something.

    Attributes:
        method: Its name in subjects.
        reply: Model of its reply.
        decide: Makes the change and returns the reply; a refused request writes nothing.
    """

    method: str
    reply: type[ApiReply]
    decide: Callable[[Any, Call], Awaitable[ApiReply]]


def _of_session(method: str, decide: Decide) -> Change:
    return Change(method, SessionReply, partial(decide_session_change, decide))


async def _import(request: SessionImport, call: Call) -> SessionImportReply:
    return await uploads.write(call.connection, request, call.catalog, ImportLimits())


async def _erase(request: PersonErase, call: Call) -> PersonErasureReply:
    return await erasure_requests_sql.request_erasure(
        call.connection, request, call.principal, call.at, call.trigger
    )


CHANGES: Final[Mapping[type[Envelope], Change]] = MappingProxyType(
    {
        SessionCreate: Change("session.create", SessionReply, session_creation.create),
        SessionSubmit: _of_session("session.submit", session_creation.submit),
        SessionImport: Change("session.import", SessionImportReply, _import),
        SessionRemove: _of_session("session.remove", bulk_session_operations.remove),
        changes.SessionUpdate: _of_session("session.update", session_changes.update),
        changes.SessionTitle: _of_session("session.title", session_changes.set_title),
        changes.SessionArchive: _of_session("session.archive", session_changes.archive),
        SessionPin: _of_session("session.pin", session_changes.pin),
        SessionLabel: _of_session("session.label", session_changes.label),
        SessionProtect: _of_session("session.protect", session_changes.protect),
        SessionTree: _of_session("session.tree", session_changes.note_worktree),
        SessionMove: _of_session("session.move", projects.move),
        SessionDraft: Change("session.draft", SessionDraftReply, person_state.change),
        SessionRead: Change("session.read", SessionReadReply, person_state.change),
        PersonErase: Change("person.erase", PersonErasureReply, _erase),
        ProjectCreate: Change("project.create", ProjectReply, projects.create),
        ProjectUpdate: Change("project.update", ProjectReply, projects.update),
        ProjectArrange: Change("project.arrange", ProjectListReply, projects.arrange),
        ProjectRemove: Change("project.remove", ProjectReply, projects.remove),
        changes.SessionEnd: _of_session("session.end", session_changes.end),
        changes.SessionReopen: _of_session("session.reopen", session_changes.reopen),
        changes.SessionReset: _of_session("session.reset", lane_changes.reset),
        changes.SessionSwitch: _of_session("session.switch", lane_changes.switch),
        changes.SessionFork: _of_session("session.fork", lane_changes.fork),
        life.SessionSuspend: _of_session("session.suspend", session_changes.suspend),
        life.SessionMark: _of_session("session.mark", session_changes.mark),
        life.SessionUnmark: _of_session("session.unmark", session_changes.unmark),
        life.SessionHold: _of_session("session.hold", session_changes.hold),
        life.SessionRelease: _of_session("session.release", session_changes.release),
        life.SessionOverride: _of_session("session.override", session_changes.override),
        life.SessionNote: _of_session("session.note", session_changes.note),
        life.SessionTakeover: Change("session.takeover", SessionReply, takeovers.take_over),
        life.SessionSpeak: Change("session.speak", SessionReply, takeovers.speak),
        life.SessionHandback: Change("session.handback", SessionReply, takeovers.hand_back),
        SessionPrune: Change("session.prune", SessionSweepReply, bulk_session_operations.prune),
        SessionCleanup: Change(
            "session.cleanup", SessionSweepReply, bulk_session_operations.clean_up
        ),
        changes.SessionStop: Change("session.stop", StopReply, cancellation.stop),
        TurnCancel: Change("turn.cancel", StopReply, cancellation.stop),
        LetterRetry: Change("letter.retry", ApiReply, dead_letters.retry),
        LetterDrop: Change("letter.drop", ApiReply, dead_letters.drop),
        RoomMembers: Change("room.members", ApiReply, rooms.report),
        OutboxSend: Change("outbox.send", OutboxReply, outbox.send),
        TurnSay: Change("turn.say", OutboxReply, turn_messages.say),
        TurnAsk: Change("turn.ask", QuestionReply, turn_messages.ask),
        TurnReply: Change("turn.reply", QuestionReply, questions.reply),
        TranscriptAppend: Change("transcript.append", TranscriptChanged, transcripts.change),
        TranscriptReplace: Change("transcript.replace", TranscriptChanged, transcripts.change),
        TranscriptCompact: Change("transcript.compact", TranscriptChanged, transcripts.change),
        TranscriptRewind: Change("transcript.rewind", TranscriptChanged, transcripts.change),
        TranscriptRestore: Change("transcript.restore", TranscriptChanged, transcripts.change),
        TranscriptRetry: Change("transcript.retry", TranscriptChanged, transcripts.change),
    }
)
"""How each request that changes something is decided, by its model."""


class ChangeService:
    """Makes the changes that callers of the API request.

    Args:
        store: Opens the transactions of changes that publish nothing.
        writer: Opens the other transactions, which run one at a time with the router's batches.
        catalog: The policies in force.
        slots: Number of slots for the messages of a `stream` agent.
        import_limits: What a person may import in total.
    """

    def __init__(
        self,
        store: Store,
        writer: UnitOfWorkFactory,
        catalog: Catalog,
        slots: int,
        *,
        import_limits: ImportLimits = ImportLimits(),  # noqa: B008 - immutable
    ) -> None:
        self._store = store
        self._writer = writer
        self._catalog = catalog
        self._slots = slots
        self._import_limits = import_limits
        # A conversation takes several times its size while it is read.
        self._one_import = asyncio.Lock()

    async def change(self, principal: str, request: Envelope, digest: bytes) -> ApiReply:
        """Make a change once and return its reply, which is the same for every repetition.

        Args:
            principal: The caller; request ids are unique per principal.
            request: The change.
            digest: Digest of the request's content, to detect another request under the same id.

        Raises:
            TransientError: Nothing changed, or the outcome is unknown; the caller repeats it.
        """
        change = CHANGES[type(request)]
        if isinstance(request, SessionImport):
            return await self._import(principal, request, digest)
        if _publishes_nothing(request):
            async with self._store.transaction() as connection:

                async def write(at: datetime) -> ApiReply:
                    if isinstance(request, TranscriptChange):
                        return await transcripts.write(connection, request)
                    if isinstance(request, RoomMembers):
                        return await rooms.write(connection, request, self._catalog, at)
                    return await person_state.write(connection, request)

                reply = await answer_once(
                    connection, principal, request, digest, change.reply, write
                )
        else:
            trigger = f"{principal}:{request.id}".encode()
            async with self._writer.begin() as unit_of_work:

                async def decide(at: datetime) -> ApiReply:
                    call = Call(unit_of_work, self._catalog, self._slots, principal, at, trigger)
                    return await change.decide(request, call)

                reply = await answer_once(
                    unit_of_work.connection, principal, request, digest, change.reply, decide
                )
        if isinstance(request, TranscriptChange) and isinstance(reply, TranscriptChanged):
            changed = () if reply.session_id is None else (request.session_id, reply.session_id)
            self._writer.notify_written(set(changed))
        return reply

    async def _import(
        self, principal: str, request: SessionImport, digest: bytes
    ) -> SessionImportReply:
        try:
            async with self._one_import, self._store.transaction() as connection:

                async def write(_at: datetime) -> SessionImportReply:
                    return await uploads.write(
                        connection, request, self._catalog, self._import_limits
                    )

                return await answer_once(
                    connection, principal, request, digest, SessionImportReply, write
                )
        except OverLimitError as error:
            # The rollback took the request with it, so that it may succeed once there is room.
            return uploads.over_limit(error)


def _publishes_nothing(
    request: Envelope,
) -> TypeGuard[TranscriptChange | SessionDraft | SessionRead | RoomMembers]:
    """Return whether a change needs no place between the batches of the router."""
    if isinstance(request, TranscriptChange):
        return not transcripts.publishes(request)
    return isinstance(request, SessionDraft | SessionRead | RoomMembers)
