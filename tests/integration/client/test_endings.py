"""Notes that an agent leaves when it is told that a conversation will be closed by time."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import UUID, uuid4

import pytest
from nats.aio.client import Client

from chatlane_client import (
    AdapterClient,
    ConnectionClosedError,
    NoteWriter,
    SessionApi,
    Turn,
    open_connection,
)
from chatlane_schemas import SessionEnding, encode, new_envelope_id
from chatlane_schemas.events import ResetReason
from chatlane_schemas.topology import subjects
from tests.integration.client.routing import (
    ACCOUNT,
    MAIN,
    PLATFORM,
    PRINCIPAL,
    running,
    said,
    working,
)
from tests.integration.client.sessions.test_session_api import client as client  # noqa: PLC0414 - a fixture
from tests.integration.client.sessions.test_session_api import opened
from tests.support.eventually import eventually

pytestmark = pytest.mark.integration

SUBJECT = subjects.ending(MAIN.name)


def ending(session_id: UUID, agent: str = MAIN.name) -> bytes:
    now = datetime.now(UTC)
    return encode(
        SessionEnding(
            id=new_envelope_id(),
            at=now,
            session_id=session_id,
            session_key="agent:main:test:bot:dm:1",
            agent=agent,
            deadline=now + timedelta(minutes=5),
            reason=ResetReason.IDLE,
        )
    )


class Notes:
    """Writes a note, and remembers which sessions it was asked about."""

    def __init__(self, note: str, *, failures: int = 0) -> None:
        self.asked: list[UUID] = []
        self._note = note
        self._failures = failures

    async def write(self, announced: SessionEnding) -> str:
        self.asked.append(announced.session_id)
        if len(self.asked) <= self._failures:
            raise RuntimeError("no model today")
        return self._note


async def announced(client: Client, session_id: UUID, notes: Notes, times: int) -> None:
    """Announce until it was heard so often: a subscription takes a moment."""

    async def is_heard() -> bool:
        await client.publish(SUBJECT, ending(session_id))
        return len(notes.asked) >= times

    await eventually(is_heard)


async def test_the_next_session_is_told_what_the_agent_wrote(client: Client) -> None:
    session = await opened(client, "1")
    notes, turns = Notes("they want tea"), list[Turn]()

    async def answer(turn: Turn) -> str:
        turns.append(turn)
        return "yes"

    async with running(NoteWriter(client, MAIN.name, notes.write, principal=PRINCIPAL).run()):
        # One note after the other: the first is left when the second is asked for.
        await announced(client, session.id, notes, 2)
    following = await SessionApi(client, principal=PRINCIPAL).reset(session.id)
    async with working(client, answer):
        await AdapterClient(client, platform=PLATFORM, account=ACCOUNT).publish(said("hello again"))
        await eventually(lambda: [one for one in turns if one.session_id == following.id])

    told = {turn.session_id: turn.opening_note for turn in turns}
    assert told[following.id] == "they want tea"


async def test_a_failure_and_the_sessions_of_others_keep_no_note_from_being_left(
    client: Client,
) -> None:
    session = await opened(client, "1")
    notes = Notes("they want tea", failures=1)

    async with running(NoteWriter(client, MAIN.name, notes.write, principal=PRINCIPAL).run()):
        await announced(client, session.id, notes, 1)
        await client.publish(SUBJECT, b"not json")
        await client.publish(SUBJECT, ending(uuid4(), agent="desk"))
        await announced(client, session.id, notes, 3)

    assert set(notes.asked) == {session.id}


@pytest.mark.parametrize(
    "note",
    [
        pytest.param("", id="waiting"),
        # Nobody answers: it is being left until the connection is closed.
        pytest.param("they want tea", id="leaving a note"),
    ],
)
async def test_a_closed_connection_ends_a_note_writer(nats_url: str, note: str) -> None:
    notes = Notes(note)
    async with open_connection(nats_url, name="test") as mortal:
        writer = NoteWriter(mortal, MAIN.name, notes.write, principal=PRINCIPAL)
        run = asyncio.create_task(writer.run())
        await announced(mortal, uuid4(), notes, 1)
        await mortal.close()
        with pytest.raises(ConnectionClosedError):
            await run


async def test_no_note_is_written_on_a_closed_connection(nats_url: str) -> None:
    async with open_connection(nats_url, name="test") as closed:
        await closed.close()
        writer = NoteWriter(closed, MAIN.name, Notes("").write, principal=PRINCIPAL)
        with pytest.raises(ConnectionClosedError):
            await writer.run()
