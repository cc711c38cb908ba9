"""A conversation that an editor has open, and what it shows of its turns."""

import asyncio
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from time import monotonic
from uuid import UUID

from chatlane_bridges.acp.editor import Editor, Update
from chatlane_bridges.acp.live_turn import LiveTurn
from chatlane_bridges.acp.service_link import Service
from chatlane_schemas.content.editor_calls import EditorMethod
from chatlane_schemas.session_api.sessions import SessionView


@dataclass(slots=True)
class Conversation:
    """A conversation under the id that the editor knows.

    Attributes:
        key: Id of the session for the editor, as long as it is open.
        tip: Session in which the conversation goes on; a compaction makes another one.
        turns: The turns that the editor shows.
        has_prompt: Whether a prompt waits for its answer.
        own_turn: The turn that answers the prompt, once it is known.
        cancelled_at: Monotonic time at which the editor cancelled the prompt.
        allowed: What a person has allowed a turn to do in the editor without being asked again.
    """

    service: Service
    editor: Editor
    key: str
    tip: UUID
    turns: dict[UUID, LiveTurn] = field(default_factory=dict)
    has_prompt: bool = False
    own_turn: UUID | None = None
    cancelled_at: float | None = None
    allowed: set[EditorMethod] = field(default_factory=set)
    _background: asyncio.Task[None] | None = None

    async def show(self, updates: Iterable[Update]) -> None:
        """Show updates in the editor."""
        await self.editor.show(self.key, updates)

    def turn(self, turn_id: UUID) -> LiveTurn:
        """Return the live state of a turn; from now on the editor shows it."""
        return self.turns.setdefault(turn_id, LiveTurn(turn_id))

    async def refresh(self) -> SessionView:
        """Return the session in which the conversation goes on."""
        session = await self.service.sessions.get(self.tip, whole_chain=True)
        if session.chain is not None and session.chain.tip_id != session.id:
            self.tip = session.chain.tip_id
            session = await self.service.sessions.get(self.tip)
        return session

    async def stop(self) -> None:
        """End the turn of the prompt; until it is known, all that waits is dropped."""
        if self.own_turn is not None:
            await self.service.sessions.cancel_turn(self.own_turn)
        else:
            await self.service.sessions.stop(self.tip)

    async def cancel(self) -> None:
        """End the prompt at the request of the editor."""
        if self.has_prompt:
            self.cancelled_at = monotonic()
            await self.stop()

    def start(self, work: Coroutine[None, None, None]) -> None:
        """Do something beside the requests of the editor, until a prompt comes."""
        self._background = asyncio.create_task(work)

    async def end_background(self) -> None:
        """End what runs beside the requests."""
        task, self._background = self._background, None
        if task is not None:
            task.cancel()
            await asyncio.wait({task})
