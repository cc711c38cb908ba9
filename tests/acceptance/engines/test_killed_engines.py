"""SIGKILL of a worker in the middle of a turn that runs in another engine of durable execution."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from aiohttp import web

from chatlane_servers.embedded import LOOPBACK, free_port
from tests.acceptance.crashes.test_killed_questions import open_chats
from tests.support.eventually import eventually
from tests.support.servers.backends import RunningPostgres
from tests.support.servers.databases import open_database
from tests.support.servers.restate_server import open_restate, require_restate
from tests.support.service.processes import TURN_AGENT, Process

pytestmark = [pytest.mark.acceptance, pytest.mark.untimed, pytest.mark.slow]

EXAMPLES: Final = Path(__file__).parents[3] / "examples"
LEASE: Final = timedelta(seconds=2)
PLAN, WRITE = "Plan the answer.", "Write the answer."


@dataclass
class Model:
    """A model whose next answer can be held back.

    Attributes:
        asked: How often each step asked, by its instructions.
        answers: Set while it answers.
    """

    url: str = ""
    asked: Counter[str] = field(default_factory=Counter)
    answers: asyncio.Event = field(default_factory=asyncio.Event)

    async def complete(self, request: web.Request) -> web.Response:
        """Answer with the name of the step."""
        step = (await request.json())["messages"][0]["content"]
        self.asked[step] += 1
        if step == WRITE:
            await self.answers.wait()
        message = {"role": "assistant", "content": f"{step} Done."}
        return web.json_response({"choices": [{"message": message}]})


@asynccontextmanager
async def open_model() -> AsyncIterator[Model]:
    """Serve a model during the block."""
    model = Model()
    application = web.Application()
    application.router.add_post("/v1/chat/completions", model.complete)
    runner = web.AppRunner(application, handler_cancellation=True)
    await runner.setup()
    site = web.TCPSite(runner, LOOPBACK, port := free_port())
    await site.start()
    model.url = f"http://{LOOPBACK}:{port}/v1"
    try:
        yield model
    finally:
        model.answers.set()
        await runner.cleanup()


@dataclass(frozen=True)
class Engine:
    """An engine, as an example uses it.

    Attributes:
        variables: Settings of the example.
        is_ready: Makes the handlers of the example known; returns whether it could.
    """

    variables: dict[str, str]
    is_ready: Callable[[], Awaitable[bool]] | None = None


@asynccontextmanager
async def open_engine(
    name: str, directory: Path, postgres: RunningPostgres
) -> AsyncIterator[Engine]:
    """Run what an example needs besides chatlane."""
    if name == "restate_worker":
        async with open_restate(directory / "restate", require_restate()) as server:
            handlers = f"{LOOPBACK}:{free_port()}"
            variables = {
                "RESTATE_INGRESS_URL": server.url,
                "RESTATE_ADMIN_URL": server.admin_url,
                "RESTATE_HANDLERS": handlers,
            }
            yield Engine(variables, lambda: server.register(f"http://{handlers}"))
        return
    async with open_database(postgres.url) as database:
        dsn = postgres.dsn(database)
        yield Engine({"DBOS_SYSTEM_DATABASE_URL": dsn, "CHECKPOINT_DATABASE_URL": dsn})


@pytest.mark.parametrize("name", ["restate_worker", "dbos_worker", "langgraph_checkpoint_worker"])
async def test_a_killed_turn_goes_on_after_the_step_that_ended(
    name: str, tmp_path: Path, nats_url: str, database_url: str, postgres_server: RunningPostgres
) -> None:
    async with (
        open_model() as model,
        open_engine(name, tmp_path, postgres_server) as engine,
        open_chats(tmp_path, nats_url, database_url, LEASE) as chats,
    ):
        place = {"NATS_URL": nats_url, "AGENT": TURN_AGENT, "LLM_BASE_URL": model.url}
        program = [str(EXAMPLES / f"{name}.py")]
        worker = Process("worker", program, tmp_path, **place, **engine.variables)
        worker.start()
        try:
            if engine.is_ready is not None:
                await eventually(engine.is_ready)
            await chats.write("Is it going to rain?")
            await eventually(lambda: model.asked[WRITE])
            await worker.kill()
            worker.start()
            # The step that was interrupted runs again; the one that ended does not.
            await eventually(lambda: model.asked[WRITE] == 2)
            model.answers.set()
            await chats.until_shown(f"{WRITE} Done.")
            assert model.asked == {PLAN: 1, WRITE: 2}
            # Another turn: nothing of the first is left to do.
            await chats.write("And tomorrow?")
            await chats.until_shown(*[f"{WRITE} Done."] * 2)
            assert model.asked == {PLAN: 2, WRITE: 3}
            attempts = await chats.database.fetch("SELECT attempt FROM turns ORDER BY attempt")
            assert [row["attempt"] for row in attempts] == [1, 2]
        finally:
            await worker.kill()
