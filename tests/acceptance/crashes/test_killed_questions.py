"""SIGKILL of processes in the middle of a turn that asks, is parked, or has finished a step."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final
from uuid import uuid4

import asyncpg
import pytest
from nats.aio.client import Client

from chatlane_client import AdapterClient, QuestionAnswer, Reply, Turn, TurnWorker, open_connection
from chatlane_schemas import Button, Chat, FieldKind, FormField, InboundEvent, Part, Sender
from chatlane_schemas.envelope import new_envelope_id
from tests.integration.client.routing import running
from tests.support.eventually import eventually
from tests.support.service import chat_adapter
from tests.support.service.processes import (
    ACCOUNT,
    PLATFORM,
    TURN_AGENT,
    Process,
    Service,
    open_service,
)

if TYPE_CHECKING:
    from chatlane_schemas.content.questions import FieldValue

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed]

PATIENCE: Final = timedelta(seconds=60)
# Longer than a router is away.
LEASE: Final = timedelta(seconds=90)
WORKER: Final = Path(__file__).parents[3] / "examples" / "conform_worker.py"
FIELDS: Final = (
    FormField(
        name="city",
        label="Which city?",
        kind=FieldKind.CHOICE,
        options=(Button(label="Oslo", value="osl"), Button(label="Bergen", value="bgo")),
    ),
    FormField(name="days", label="How many days?", kind=FieldKind.NUMBER),
)


@dataclass
class Chats:
    """A person in a chat, whose adapter and router are processes."""

    service: Service
    client: Client
    database: asyncpg.Connection
    sent: Path
    parts: list[Process]

    async def write(self, text: str) -> None:
        """Write a message, whether the router and the adapter run or not."""
        adapter = AdapterClient(self.client, platform=PLATFORM, account=ACCOUNT)
        event = InboundEvent(
            id=new_envelope_id(),
            at=datetime.now(UTC),
            message_id=str(uuid4()),
            platform=PLATFORM,
            account=ACCOUNT,
            chat=Chat(id="1", kind="dm"),
            sender=Sender(id="ann"),
            text=text,
        )
        await adapter.publish(event)

    @property
    def texts(self) -> list[str]:
        """Return what the chat shows."""
        lines = self.sent.read_text("utf-8").splitlines() if self.sent.exists() else []
        return [json.loads(line) for line in lines]

    async def until_shown(self, *texts: str) -> None:
        """Wait until the chat shows these messages, and the service knows it."""
        await eventually(lambda: self.texts == list(texts), PATIENCE)
        query = "SELECT count(*) FROM deliveries WHERE state = 'delivered'"

        async def is_known() -> bool:
            return bool(await self.database.fetchval(query) == len(texts))

        await eventually(is_known, PATIENCE)

    async def kill_and_restart(self) -> None:
        """Kill the router and the adapter together, and start both again."""
        for part in self.parts:
            await part.kill()
        for part in self.parts:
            part.start()


@asynccontextmanager
async def open_chats(
    tmp_path: Path, nats_url: str, database_url: str, lease: timedelta
) -> AsyncIterator[Chats]:
    """Start a router and an adapter."""
    async with (
        open_service(tmp_path, nats_url, database_url, turn_lease=lease) as service,
        open_connection(nats_url, name="test") as client,
    ):
        database = await asyncpg.connect(database_url)
        sent = tmp_path / "sent.jsonl"
        program = Path(chat_adapter.__file__)
        root = {"PYTHONPATH": str(program.parents[3])}
        adapter = Process("adapter", [str(program), nats_url, str(sent)], tmp_path, **root)
        router = service.router("router 1")
        await service.until_started(router)
        adapter.start()
        try:
            yield Chats(service, client, database, sent, [router, adapter])
        finally:
            await adapter.kill()
            await database.close()


@pytest.fixture
async def chats(tmp_path: Path, nats_url: str, database_url: str) -> AsyncIterator[Chats]:
    async with open_chats(tmp_path, nats_url, database_url, LEASE) as chats:
        yield chats


@pytest.mark.slow
async def test_a_form_survives_the_kill_of_router_and_adapter(chats: Chats) -> None:
    attempts: list[int] = []
    answers: list[QuestionAnswer] = []

    async def answer(turn: Turn) -> Reply:
        attempts.append(turn.attempt)
        answers.append(await turn.ask_form("The trip", FIELDS, within=timedelta(minutes=5)))
        return Reply(parts=["Booked.", Part(text="Have fun!", pause_before_ms=3000)])

    shown = ["The trip", "Which city?\n\n1. Oslo\n2. Bergen"]
    worker = TurnWorker(chats.client, TURN_AGENT, answer, slots=1, principal="worker")
    async with running(worker.run()):
        await chats.write("plan a trip")
        await chats.until_shown(*shown)
        await chats.kill_and_restart()
        await chats.write("2")
        shown.append("How many days?")
        await chats.until_shown(*shown)
        for part in chats.parts:
            await part.kill()
        # Nobody is there to read it.
        await chats.write("4")
        for part in chats.parts:
            part.start()
        shown.append("Booked.")
        await chats.until_shown(*shown)
        # In the pause before the last message.
        await chats.kill_and_restart()
        shown.append("Have fun!")
        await chats.until_shown(*shown)
    assert attempts == [1]
    values: dict[str, FieldValue] = {"city": "bgo", "days": 4}
    assert answers == [QuestionAnswer(None, is_default=False, values=values)]


@pytest.mark.slow
async def test_a_finished_step_survives_the_kill_of_worker_and_router(
    tmp_path: Path, nats_url: str, database_url: str
) -> None:
    lease = timedelta(seconds=3)
    variables = {"NATS_URL": nats_url, "AGENT": TURN_AGENT}
    worker = Process("worker", [str(WORKER)], tmp_path, **variables)
    kept = "SELECT attempt FROM turn_steps"
    async with open_chats(tmp_path, nats_url, database_url, lease) as chats:
        chats.parts.append(worker)
        worker.start()
        try:
            await chats.write("step 5 oslo")
            await eventually(partial(chats.database.fetchval, kept), PATIENCE)
            await chats.kill_and_restart()
            await chats.until_shown("kept oslo 1")
            assert await chats.database.fetchval("SELECT attempt FROM turns") == 2
            assert await chats.database.fetchval(kept) is None
        finally:
            await worker.kill()


@pytest.mark.slow
async def test_a_parked_turn_survives_the_kill_of_everything_and_goes_on_once(
    tmp_path: Path, nats_url: str, database_url: str
) -> None:
    variables = {"NATS_URL": nats_url, "AGENT": TURN_AGENT}
    worker = Process("worker", [str(WORKER)], tmp_path, **variables)
    parked = "SELECT count(*) FROM turns WHERE state = 'ready' AND rest = 'parked'"
    async with open_chats(tmp_path, nats_url, database_url, timedelta(seconds=3)) as chats:
        chats.parts.append(worker)
        worker.start()
        try:
            await chats.write("park oslo")
            question = "Keep oslo?\n\n1. yes\n2. no"
            await chats.until_shown(question)
            assert await chats.database.fetchval(parked) == 1
            for part in chats.parts:
                await part.kill()
            # Nobody is there to read it, and what follows waits for the turn.
            await chats.write("2")
            await chats.write("echo later")
            for part in chats.parts:
                part.start()
            await chats.until_shown(question, "kept oslo 1, told no", "heard later")
            attempts = "SELECT array_agg(attempt ORDER BY created_at) FROM turns"
            assert await chats.database.fetchval(attempts) == [2, 1]
            assert await chats.database.fetchval("SELECT count(*) FROM turn_steps") == 0
        finally:
            await worker.kill()
