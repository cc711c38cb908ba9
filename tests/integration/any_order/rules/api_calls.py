"""What callers of the session API ask for, each request perhaps more than once."""

from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Any, Final
from uuid import UUID

from chatlane.domain.sessions.transcripts import Version
from chatlane_schemas.content.buttons import Button
from chatlane_schemas.envelope import Envelope
from chatlane_schemas.questions import TurnAsk
from chatlane_schemas.results import Part, Role
from chatlane_schemas.session_api.session_changes import (
    SessionEnd,
    SessionFork,
    SessionReopen,
    SessionReset,
    SessionStop,
    SessionSwitch,
)
from chatlane_schemas.session_api.session_life import SessionSuspend
from chatlane_schemas.session_api.session_openings import SessionSubmit
from chatlane_schemas.session_api.session_sweeps import SessionRemove
from chatlane_schemas.session_api.sessions import ApiReply, SessionReply
from chatlane_schemas.session_api.transcripts import AppendedRow, TranscriptCompact, TranscriptRetry
from chatlane_schemas.turns import TurnCancel
from tests.integration.any_order.people import Story
from tests.integration.any_order.router import Router
from tests.integration.any_order.rules.jobs import Job
from tests.integration.any_order.snapshot import Session, Snapshot
from tests.integration.any_order.world import World

_PRINCIPAL: Final = "caller"
_PLAIN: Final[dict[str, type[Envelope]]] = {
    "reset": SessionReset,
    "stop": SessionStop,
    "end": SessionEnd,
    "reopen": SessionReopen,
    "suspend": SessionSuspend,
    "fork": SessionFork,
    "remove": SessionRemove,
    "retry": TranscriptRetry,
}
# A summary stands for more rows than it has.
_FEWEST_ROWS: Final = 2


@dataclass(slots=True)
class Asked:
    """A request and the answer to it, once there is one."""

    kind: str
    session_id: UUID
    request: Any
    reply: ApiReply | None = None

    @property
    def digest(self) -> bytes:
        """Of what it asks for."""
        said = self.request.model_dump_json(exclude={"at"}).encode()
        return sha256(self.kind.encode() + said).digest()


@dataclass(slots=True)
class Asking:
    """Everything that was asked for."""

    world: World
    story: Story
    asked: list[Asked] = field(default_factory=list)

    def new(self, kind: str, now: Snapshot, session: int, other: int) -> Asked | None:
        """Return a new request about one of the newest sessions, if there is what it needs."""
        if not now.sessions:
            return None
        its = _nth_newest(now, session)
        fields = self._fields(kind, now, its, other)
        if fields is None:
            return None
        self.world.pass_time(timedelta(milliseconds=1))
        model, more = fields
        name = f"request-{len(self.asked)}"
        request = model(id=name, at=self.world.now, **more)
        asked = Asked(kind, its.id, request)
        self.asked.append(asked)
        return asked

    def question(self, job: Job, *, has_options: bool) -> Asked:
        """Return a request of a worker that parks its turn."""
        self.world.pass_time(timedelta(milliseconds=1))
        its, name = job.reply, f"question-{len(self.asked)}"
        assert its.session_id is not None
        request = TurnAsk(
            id=name,
            at=self.world.now,
            session_id=its.session_id,
            turn_id=its.turn_id,
            attempt=its.attempt or 0,
            token=its.token or "",
            message=Part(text=name),
            options=(Button(label="Yes"),) if has_options else (),
            within_ms=3_600_000,
            park_as="answer",
        )
        asked = Asked("question", its.session_id, request)
        self.asked.append(asked)
        return asked

    def _fields(
        self, kind: str, now: Snapshot, its: Session, other: int
    ) -> tuple[Any, dict[str, object]] | None:
        if kind in _PLAIN:
            return _PLAIN[kind], {"session_id": its.id}
        if kind == "submit":
            return SessionSubmit, {"session_id": its.id, "text": f"submitted {len(self.asked)}"}
        if kind == "cancel":
            turn_id = its.active_turn
            return None if turn_id is None else (TurnCancel, {"turn_id": turn_id})
        if kind in {"compact", "continue"}:
            return self._summary(kind, now, its, other)
        return self._rebinding(kind, now, its, other)

    def _rebinding(
        self, kind: str, now: Snapshot, its: Session, other: int
    ) -> tuple[Any, dict[str, object]] | None:
        """Return what leads the first lane of a session to another one, if there is a lane."""
        keys = sorted(key for key, session_id in now.lanes.items() if session_id == its.id)
        if not keys:
            return None
        if kind == "branch":
            return SessionFork, {"session_id": its.id, "session_key": keys[0]}
        return SessionSwitch, {
            "session_id": _nth_newest(now, other).id,
            "session_key": keys[0],
            "expected_session_id": its.id,
        }

    def _summary(
        self, kind: str, now: Snapshot, its: Session, other: int
    ) -> tuple[Any, dict[str, object]] | None:
        """Return what puts a summary in the place of some of the oldest rows, if there are."""
        places = [row.seq for row in now.rows if row.session_id == its.id]
        if len(places) < _FEWEST_ROWS:
            return None
        return TranscriptCompact, {
            "session_id": its.id,
            "expected_version": Version(its.revision, its.next_seq).text,
            "through_seq": places[1 + other % (len(places) - 1)],
            "rows": (AppendedRow(role=Role.ASSISTANT, content=f"summary {len(self.asked)}"),),
            "in_child": kind == "continue",
        }

    async def ask(self, router: Router, asked: Asked) -> None:
        """Ask a router; whoever asked before is given the same answer."""
        reply = await router.changes.change(_PRINCIPAL, asked.request, asked.digest)
        if asked.reply is None:
            asked.reply = reply
            if asked.kind == "remove" and reply.error is None:
                self.story.removed.add(asked.session_id)
            if asked.kind == "submit" and isinstance(reply, SessionReply) and reply.message_id:
                self.story.submitted(asked.request.text, reply.message_id)
        assert reply == asked.reply, "a repeated request was answered otherwise"


def _nth_newest(now: Snapshot, number: int) -> Session:
    sessions = list(now.sessions.values())
    return sessions[-1 - number % len(sessions)]
