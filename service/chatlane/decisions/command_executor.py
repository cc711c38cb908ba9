"""Execute commands that change more than a session and its title.

Each command takes extra statements, so earlier decisions of the batch are written first, and a
batch contains only a few commands.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from chatlane.decisions.operations.cancellation import Stopped, stop_session
from chatlane.decisions.operations.rewind import retry, rewind
from chatlane.decisions.operations.switch_and_fork import Rebinding
from chatlane.domain.addressing.keys import MalformedKeyError, is_shared, parse_session_key
from chatlane.domain.commands import replies
from chatlane.domain.commands.command_handlers import ids_of
from chatlane.domain.commands.command_words import CommandName
from chatlane.domain.notices import NoticeId
from chatlane.domain.states import Lane
from chatlane.errors import SupersededError
from chatlane.store.conversations import session_changes, sessions
from chatlane_schemas.content.visible_text import shown_title
from chatlane_schemas.session_api.session_state import ModelOverride, without_credential
from chatlane_schemas.session_api.sessions import ApiError
from chatlane_schemas.turns import CancelReason

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from uuid import UUID

    from asyncpg.pool import PoolConnectionProxy

    from chatlane.domain.catalog import Catalog
    from chatlane.domain.commands.command_handlers import CommandHandlers, CommandInvocation
    from chatlane.domain.states import Session

_CLEAR: Final = "-"
_MAX_TURN_DIGITS: Final = 6


@dataclass(slots=True)
class CommandExecutor:
    """Execute one command after all earlier decisions were written to the database.

    Attributes:
        locked: The sessions of the batch, by id; new sessions are added.
    """

    connection: PoolConnectionProxy
    handlers: CommandHandlers
    catalog: Catalog
    locked: dict[UUID, Session]
    slots: int

    async def run_command(self, invocation: CommandInvocation) -> str:
        """Execute the command and return its reply.

        Raises:
            SupersededError: Another transaction changed the target of the command meanwhile.
        """
        return await _BY_NAME[invocation.name](self, invocation)

    async def new_session(self, invocation: CommandInvocation) -> str:
        """Stop the live turn and pending messages, and start a new session."""
        stopped = await self._stop_session(
            invocation, CancelReason.SESSION_ENDED, own_words_only=True
        )
        reply = self.handlers.new_session(invocation)
        return replies.with_unanswered(
            invocation.notices, reply, dropped=stopped.dropped, left=stopped.left
        )

    async def stop(self, invocation: CommandInvocation) -> str:
        """Stop the live turn and pending messages; the session stays open."""
        stopped = await self._stop_session(invocation, CancelReason.STOPPED)
        if stopped.is_nothing:
            return invocation.text(NoticeId.NOTHING_TO_STOP)
        return replies.stopped(
            invocation.notices, was_running=stopped.was_running, dropped=stopped.dropped
        )

    async def _stop_session(
        self, invocation: CommandInvocation, reason: CancelReason, *, own_words_only: bool = False
    ) -> Stopped:
        """Stop the live turn and pending messages, or only those of the command's author.

        In a session of a single person all messages are by that person, under any id.
        """
        session = invocation.session_or_raise
        authors = None
        if own_words_only and is_shared(parse_session_key(session.session_key)):
            authors = ids_of(invocation.arrived)
        stopped = await stop_session(
            self.connection,
            session,
            reason,
            invocation.arrived.stored_at,
            self.handlers.effects,
            authors=authors,
        )
        if not stopped.left:
            self.handlers.summaries.nothing_waits(session)
        return stopped

    async def undo(self, invocation: CommandInvocation) -> str:
        """Remove the last turns from the transcript."""
        session = invocation.session_or_raise
        wanted = invocation.argument or "1"
        if not (wanted.isascii() and wanted.isdecimal() and len(wanted) <= _MAX_TURN_DIGITS):
            return invocation.text(NoticeId.WRONG_NUMBER)
        turns = int(wanted)
        if turns == 0:
            return invocation.text(NoticeId.WRONG_NUMBER)
        undone = await rewind(self.connection, session, turns)
        return (
            replies.undone(invocation.notices, undone.text)
            if undone.removed_rows
            else invocation.text(NoticeId.NOTHING_TO_UNDO)
        )

    async def retry(self, invocation: CommandInvocation) -> str:
        """Run the last turn again."""
        session = invocation.session_or_raise
        arrived = invocation.arrived
        # As for a message: the settings may have assigned the profile to another agent.
        session.agent = arrived.agent.name
        try:
            undone = await retry(
                self.connection,
                session,
                arrived.agent,
                at=arrived.stored_at,
                trigger=arrived.digests[0],
                slots=self.slots,
                effects=self.handlers.effects,
            )
        except MalformedKeyError:
            undone = None
        return (
            invocation.text(NoticeId.NOTHING_TO_RETRY)
            if undone is None
            else invocation.text(NoticeId.RETRYING)
        )

    async def branch(self, invocation: CommandInvocation) -> str:
        """Continue the conversation in a copy of the session."""
        session = invocation.session_or_raise
        lane = self.handlers.placement.lanes[invocation.arrived.session_key]
        was_running = invocation.is_running
        branch = await self._rebinding(invocation).fork(
            session, trigger=invocation.arrived.digests[0], lane=lane
        )
        if isinstance(branch, ApiError):
            return invocation.text(NoticeId.NOTHING_TO_UNDO)
        # Read the counters, which result from the copied rows.
        self.locked |= await sessions.lock(self.connection, [branch.id])
        reply_lines = (
            [invocation.text(NoticeId.BRANCHED), invocation.text(NoticeId.ANSWER_STILL_ARRIVES)]
            if was_running
            else [invocation.text(NoticeId.BRANCHED)]
        )
        if title := shown_title(invocation.argument):
            reply_lines.append(self.handlers.entitle(self.locked[branch.id], title, invocation))
        return "\n".join(reply_lines)

    async def resume(self, invocation: CommandInvocation) -> str:
        """Point the lane to another session of the person."""
        if self.handlers.means_old_list(invocation):
            return f"{invocation.text(NoticeId.LIST_OUTDATED)}\n{self.handlers.list_sessions(invocation)}"
        card = self.handlers.sought(invocation)
        if card is None:
            return invocation.text(NoticeId.NOT_FOUND)
        target_id = self.handlers.summaries.tips.get(card.id, card.id)
        target = self.locked.get(target_id)
        if target is None:
            raise SupersededError("sessions")
        if invocation.session is target:
            return invocation.text(NoticeId.ALREADY_HERE)
        if not self.handlers.scope(invocation.arrived).holds(target.session_key, target.owner):
            return invocation.text(NoticeId.NOT_FOUND)
        was_running = invocation.is_running
        bound = self.handlers.placement.lanes
        key = invocation.arrived.session_key
        lane = bound.get(key) or Lane(key, target.id)
        if await self._rebinding(invocation).switch(lane, target) is not None:
            return invocation.text(NoticeId.NOT_FOUND)
        bound[key] = lane
        back = replies.resumed(invocation.notices, card)
        return f"{back}\n{invocation.text(NoticeId.ANSWER_STILL_ARRIVES)}" if was_running else back

    def _rebinding(self, invocation: CommandInvocation) -> Rebinding:
        return Rebinding(
            self.connection,
            self.catalog,
            self.locked,
            self.handlers.effects,
            invocation.arrived.stored_at,
        )

    async def choose_model(self, invocation: CommandInvocation) -> str:
        """Override the model of the session, or remove the override."""
        session = invocation.session_or_raise
        name = shown_title(invocation.argument)
        card = self.handlers.summaries.of(session)
        if name == _CLEAR:
            session.model_override = None
            await session_changes.override(self.connection, session.id, None)
            card.model = None
            return invocation.text(NoticeId.MODEL_CLEARED)
        try:
            override = ModelOverride(model=without_credential(name))
        except ValueError:
            return invocation.text(NoticeId.WRONG_MODEL)
        session.model_override = override.model_dump_json(exclude_none=True)
        await session_changes.override(self.connection, session.id, session.model_override)
        card.model = name
        return replies.model_chosen(invocation.notices, name)


_BY_NAME: Final[
    Mapping[CommandName, Callable[[CommandExecutor, CommandInvocation], Awaitable[str]]]
] = {
    CommandName.NEW: CommandExecutor.new_session,
    CommandName.STOP: CommandExecutor.stop,
    CommandName.UNDO: CommandExecutor.undo,
    CommandName.RETRY: CommandExecutor.retry,
    CommandName.RESUME: CommandExecutor.resume,
    CommandName.BRANCH: CommandExecutor.branch,
    CommandName.MODEL: CommandExecutor.choose_model,
}
